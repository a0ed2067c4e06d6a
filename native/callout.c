#include "callout.h"

#include <time.h>

#include "answer.h"
#include "calls.h"
#include "mail.h"

struct callout {
  callout* next;
  vm* vm;
  uint32_t generation; // of the VM
  uint32_t root, id;
  uint64_t number; // Envoy's id of it
  uint32_t timeout_millis;
  bytes cluster, headers, body; // they point into data
  char data[];
};

static bool has(const field* headers, int n, const char* name) {
  for (int i = 0; i < n; i++) {
    if (headers[i].key.size == strlen(name) && memcmp(headers[i].key.data, name, strlen(name)) == 0) return headers[i].value.size > 0;
  }
  return false;
}

// Envoy's wasm host returns an error at once if it has no such cluster. Here the callout fails
// later.
u32 Z_envZ_proxy_http_call(vm* v, u32 cluster_at, u32 cluster_size, u32 headers_at, u32 headers_size, u32 body_at, u32 body_size,
                           u32 trailers_at, u32 trailers_size, u32 timeout_millis, u32 id_at) {
  const bytes cluster = vm_bytes(v, cluster_at, cluster_size), list = vm_bytes(v, headers_at, headers_size), body = vm_bytes(v, body_at, body_size);
  field headers[most_pairs];
  const int n = pairs(list, headers, most_pairs);
  if (n < 0 || !v->root || v->index < 0 || trailers_size) return BAD_ARGUMENT;
  if (!has(headers, n, ":method") || !has(headers, n, ":path") || !has(headers, n, ":authority")) return BAD_ARGUMENT;
  vm_put32(v, id_at, ++v->next_callout);
  callout* c = malloc(sizeof *c + cluster.size + list.size + body.size);
  *c = (callout){.vm = v, .generation = v->generation, .root = v->root->id, .id = v->next_callout, .timeout_millis = timeout_millis};
  char* to = copy(c->data, cluster, &c->cluster);
  copy(copy(to, list, &c->headers), body, &c->body);
  domain* d = v->domain;
  register_lock();
  callout** last = &d->outbox;
  while (*last) last = &(*last)->next;
  *last = c;
  register_unlock();
  domain_post(d);
  return OK;
}

// answer_to delivers an answer to the VM that asked, and frees the callout.
static void answer_to(callout* c, config* through, answer* a) {
  if (c->generation == c->vm->generation) {
    mail_post(c->vm, through, c->root, c->id, a);
  } else {
    answer_free(a);
  }
  free(c);
}

// The main thread changes the callouts under way, and a worker may wait for their end.
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void add(config* c, callout* new) {
  pthread_mutex_lock(&changing);
  new->next = c->under_way;
  c->under_way = new;
  new->vm->domain->under_way++;
  pthread_mutex_unlock(&changing);
}

// take removes a callout under way, and returns it.
static callout* take(config* c, uint64_t number) {
  pthread_mutex_lock(&changing);
  callout** at = &c->under_way;
  while (*at && (*at)->number != number) at = &(*at)->next;
  callout* found = *at;
  if (found) {
    *at = found->next;
    found->vm->domain->under_way--;
  }
  pthread_mutex_unlock(&changing);
  return found;
}

void callouts_await(config* c) {
  pthread_mutex_lock(&changing);
  uint64_t longest = 0;
  for (callout* u = c->under_way; u; u = u->next) {
    if (u->timeout_millis > longest) longest = u->timeout_millis;
  }
  // Conditions use this clock by default. A busy main thread gets a second more.
  const int64_t end = now_nanos(CLOCK_REALTIME) + (longest + 1000) * 1000000ll;
  const struct timespec until = {end / 1000000000, end % 1000000000};
  while ((c->under_way || c->answering) && pthread_cond_timedwait(&changed, &changing, &until) == 0) continue;
  pthread_mutex_unlock(&changing);
}

// sending is a callout that Envoy has without having returned its number. Its answer may come at
// once.
static callout* sending;

// say_unknown logs an unknown cluster only once, because a node makes several callouts a second.
static void say_unknown(bytes cluster) {
  static bool said;
  if (!said) say(LOG_ERROR, "weir: callouts fail: Envoy has no cluster %.*s", (int)cluster.size, cluster.data);
  said = true;
}

void callouts_send(domain* d, config* through) {
  register_lock();
  callout* next = d->outbox;
  d->outbox = NULL;
  register_unlock();
  while (next) {
    callout* c = sending = next;
    next = c->next;
    field headers[most_pairs];
    const int n = pairs(c->headers, headers, most_pairs);
    uint64_t number = 0;
    const int refused = CB(http_filter_config_http_callout)(through->envoy, &number, c->cluster, headers, n, c->body, c->timeout_millis);
    if (!sending) continue; // it was answered already
    sending = NULL;
    if (refused) {
      if (refused == CLUSTER_NOT_FOUND) say_unknown(c->cluster);
      answer_to(c, through, answer_new(NULL, 0, NULL, 0));
    } else {
      c->number = number;
      add(through, c);
    }
  }
}

static void set_answering(config* c, bool is) {
  pthread_mutex_lock(&changing);
  c->answering = is;
  if (!is) pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&changing);
}

void ON(http_filter_config_http_callout_done)(void* envoy, const void* module, uint64_t number, int failed, field* headers, size_t n,
                                              bytes* chunks, size_t chunk_count) {
  config* through = (config*)module;
  set_answering(through, true);
  callout* c = take(through, number);
  if (!c) {
    c = sending;
    sending = NULL;
  }
  if (c) answer_to(c, through, failed ? answer_new(NULL, 0, NULL, 0) : answer_new(headers, n, chunks, chunk_count));
  set_answering(through, false);
}

void callouts_end(config* c) {
  while (c->under_way) answer_to(take(c, c->under_way->number), c, answer_new(NULL, 0, NULL, 0));
}

void callouts_drop(domain* d) {
  while (d->outbox) {
    callout* c = d->outbox;
    d->outbox = c->next;
    free(c);
  }
}
