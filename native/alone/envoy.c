// The parts of Envoy that the native form needs to decide requests, in a process of its own: one worker,
// no network, and a clock that advances with each request. It lets Valgrind and sanitizers watch the host,
// and a tool count the instructions of a request.
//
//	alone CONFIGURATION REQUESTS
//
// It prints how many requests got the status 429.
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "abi.h"

typedef struct {
  int n;
  field headers[32];
} map;

// A stream as Envoy has it.
typedef struct {
  map maps[4];
  bytes piece;
  uint32_t status; // of the reply
  _Atomic bool woken, resumed;
  bool encoding; // Envoy has begun to send a response
} filter;

#define TEXT(s) ((bytes){s, sizeof(s) - 1})
#define HEADER(k, v) {TEXT(k), TEXT(v)}

static const map request = {11, {
    HEADER(":authority", "127.0.0.1:10000"), HEADER(":path", "/api/items?page=2&sort=name"), HEADER(":method", "GET"),
    HEADER(":scheme", "http"), HEADER("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
    HEADER("accept", "application/json"), HEADER("accept-encoding", "gzip, deflate, br"), HEADER("x-forwarded-for", "203.0.113.7"),
    HEADER("x-forwarded-proto", "https"), HEADER("x-request-id", "3f0e5b1c-58f4-4c8e-9d0a-1f7f0a8f6a51"), HEADER("x-user", "user-000000"),
}};
static const map response = {5, {
    HEADER(":status", "200"), HEADER("content-type", "application/json"), HEADER("content-length", "13"),
    HEADER("date", "Mon, 23 Nov 2026 22:00:00 GMT"), HEADER("x-envoy-upstream-service-time", "1"),
}};

static _Atomic int64_t nanos = 1795471200ll * 1000000000;
static _Atomic bool scheduled;
static bool quiet;
static uint32_t workers = 1;
static __thread uint32_t worker;

// ---- the system, equal in each run

int clock_gettime(clockid_t clock, struct timespec* t) {
  const int64_t now = nanos;
  *t = (struct timespec){now / 1000000000, now % 1000000000};
  return 0;
}

ssize_t getrandom(void* to, size_t size, unsigned flags) {
  memset(to, 42, size);
  return size;
}

// The timer's thread waits for ever, because ticks come between requests here.
static _Atomic bool timer_waits;
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* lock, const struct timespec* until) {
  timer_waits = true;
  for (;;) pthread_cond_wait(condition, lock);
}

// ---- calls

void CB(log)(log_level level, bytes message) {
  if (level >= LOG_WARN && !quiet) fprintf(stderr, "%.*s\n", (int)message.size, message.data);
}
uint32_t CB(get_concurrency)(void) { return workers; }
int CB(http_filter_config_define_counter)(void* config, bytes name, bytes* labels, size_t n, size_t* id) { return *id = 1, 0; }
int CB(http_filter_config_define_gauge)(void* config, bytes name, bytes* labels, size_t n, size_t* id) { return *id = 1, 0; }
int CB(http_filter_config_increment_counter)(void* config, size_t id, bytes* values, size_t n, uint64_t by) { return 0; }
int CB(http_filter_config_set_gauge)(void* config, size_t id, bytes* values, size_t n, uint64_t value) { return 0; }

static int find(const map* m, bytes name, int from) {
  while (from < m->n && (m->headers[from].key.size != name.size || memcmp(m->headers[from].key.data, name.data, name.size) != 0)) from++;
  return from;
}

bool CB(http_get_header)(void* of, header_map kind, bytes name, bytes* value, size_t index, size_t* count) {
  const map* m = &((filter*)of)->maps[kind];
  size_t found = 0;
  for (int i = find(m, name, 0); i < m->n; i = find(m, name, i + 1)) {
    if (found++ == index) *value = m->headers[i].value;
  }
  if (count) *count = found;
  return found > index;
}
size_t CB(http_get_headers_size)(void* of, header_map kind) { return ((filter*)of)->maps[kind].n; }
bool CB(http_get_headers)(void* of, header_map kind, field* headers) {
  const map* m = &((filter*)of)->maps[kind];
  memcpy(headers, m->headers, m->n * sizeof(field));
  return true;
}
// Envoy would copy the value, but nothing here reads it.
bool CB(http_add_header)(void* of, header_map kind, bytes name, bytes value) { return true; }
bool CB(http_set_header)(void* of, header_map kind, bytes name, bytes value) { return true; }
void CB(http_clear_route_cache)(void* of) {}
void CB(http_send_response)(void* of, uint32_t status, field* headers, size_t n, bytes body, bytes details) {
  if (((filter*)of)->encoding) abort(); // Envoy would end the stream at once
  ((filter*)of)->status = status;
}
size_t CB(http_get_body_size)(void* of, body_kind body) { return ((filter*)of)->piece.size; }
size_t CB(http_get_body_chunks_size)(void* of, body_kind body) { return 1; }
bool CB(http_get_body_chunks)(void* of, body_kind body, bytes* chunks) { return *chunks = ((filter*)of)->piece, true; }
bool CB(http_append_body)(void* of, body_kind body, bytes data) { return true; }
bool CB(http_drain_body)(void* of, body_kind body, size_t n) { return true; }
bool CB(http_filter_get_attribute_string)(void* of, int attribute, bytes* value) {
  *value = TEXT("203.0.113.7:4711");
  return attribute == ATTRIBUTE_SOURCE_ADDRESS;
}
bool CB(http_filter_get_attribute_int)(void* of, int attribute, uint64_t* value) { return false; }
void CB(http_set_dynamic_metadata_string)(void* of, bytes space, bytes key, bytes value) {}
bool CB(http_set_filter_state_bytes)(void* of, bytes key, bytes value) { return true; }
bool CB(http_get_metadata_string)(void* of, int source, bytes space, bytes key, bytes* value) { return false; }
uint32_t CB(http_filter_get_worker_index)(void* of) { return worker; }
void CB(http_filter_continue_decoding)(void* of) { ((filter*)of)->resumed = true; }
void* CB(http_filter_scheduler_new)(void* of) { return of; }
void CB(http_filter_scheduler_commit)(void* of, uint64_t event) { ((filter*)of)->woken = true; }
void CB(http_filter_scheduler_delete)(void* of) {}
void* CB(http_filter_config_scheduler_new)(void* config) { return config; }
void CB(http_filter_config_scheduler_commit)(void* config, uint64_t event) { scheduled = true; }
void CB(http_filter_config_scheduler_delete)(void* config) {}
int CB(http_filter_config_http_callout)(void* config, uint64_t* id, bytes cluster, field* headers, size_t n, bytes body, uint64_t timeout) {
  return CLUSTER_NOT_FOUND;
}

// ---- requests

static bool ask(const void* module, int number) {
  filter f = {.maps = {[REQUEST_HEADERS] = request}};
  char user[16];
  f.maps[REQUEST_HEADERS].headers[request.n - 1].value = (bytes){user, snprintf(user, sizeof user, "user-%06d", number % 16)};
  const void* m = ON(http_filter_new)(module, &f);
  if (ON(http_filter_request_headers)(&f, m, true) == HEADERS_CONTINUE) {
    f.maps[RESPONSE_HEADERS] = response;
    f.piece = TEXT("{\"items\": []}");
    ON(http_filter_response_headers)(&f, m, false);
    ON(http_filter_response_body)(&f, m, true);
  }
  ON(http_filter_stream_complete)(&f, m);
  ON(http_filter_destroy)(m);
  return f.status == 429;
}

int main(int n, char** args) {
  if (n != 3) return fprintf(stderr, "want a configuration and the number of requests\n"), 2;
  int config, refused = 0;
  ON(program_init)();
  while (!timer_waits) sched_yield(); // so that each run does the same
  const void* module = ON(http_filter_config_new)(&config, TEXT("alone"), (bytes){args[1], strlen(args[1])});
  if (!module) return 1;
  for (int i = 0; i < atoi(args[2]); i++) {
    nanos += 200000;
    refused += ask(module, i);
    if (scheduled || i % 500 == 0) {
      scheduled = false;
      ON(http_filter_config_scheduled)(&config, module, 0);
    }
  }
  ON(http_filter_config_destroy)(module);
  printf("%d refused\n", refused);
}
