// Four workers send requests while configurations replace each other and VMs trap and restart. As in
// Envoy, a configuration ends in the thread that uses it last. Run it with sanitizers.
//
//	soak REQUESTS
#define main unused
#include "envoy.c"
#undef main

// A configuration as Envoy has it. It ends when neither the main thread nor a stream uses it.
typedef struct {
  _Atomic int users;
  const void* module;
} used;

static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static used* newest; // the main thread uses it
static _Atomic int requests, answered, running;

static used* take(void) {
  pthread_mutex_lock(&changing);
  used* u = newest;
  u->users++;
  pthread_mutex_unlock(&changing);
  return u;
}

static void let_go(used* u) {
  if (--u->users > 0) return;
  ON(http_filter_config_destroy)(u->module);
  free(u);
}

static used* configure(int number) {
  static const char* const names[] = {"soak?failure_policy=FAIL_RELOAD", "other?failure_policy=FAIL_OPEN", "soak"};
  const char* name = names[number % 3];
  char text[32];
  used* u = calloc(1, sizeof *u);
  u->users = 1;
  u->module = ON(http_filter_config_new)(u, (bytes){name, strlen(name)}, (bytes){text, snprintf(text, sizeof text, "accepted %d", number)});
  return u;
}

static void request_of(int number) {
  static const char* const does[] = {"answer", "pass", "wait", "keep", "answer", "keep", "stop", "host told to read out of bounds"};
  const char* what = does[number % 2503 == 0 ? 7 : number % 7];
  used* u = take();
  filter f = {.maps = {[REQUEST_HEADERS] = request}};
  map* headers = &f.maps[REQUEST_HEADERS];
  headers->headers[headers->n++] = (field){TEXT("x-do"), {what, strlen(what)}};
  const void* m = ON(http_filter_new)(u->module, &f);
  bool stopped = ON(http_filter_request_headers)(&f, m, true) != HEADERS_CONTINUE;
  // A client goes away after waiting for a while.
  for (int patience = 200; stopped && !f.status && !f.resumed && patience; patience--) {
    if (f.woken) {
      f.woken = false;
      if (what[0] == 's') { // Envoy answers it by itself, before it has read the mail
        f.maps[RESPONSE_HEADERS] = response;
        f.encoding = true;
        ON(http_filter_response_headers)(&f, m, true);
        break;
      }
      ON(http_filter_scheduled)(&f, m, 0);
    }
    sched_yield();
  }
  if (!stopped || f.resumed) {
    f.maps[RESPONSE_HEADERS] = response;
    ON(http_filter_response_headers)(&f, m, false);
  }
  ON(http_filter_stream_complete)(&f, m);
  ON(http_filter_destroy)(m);
  answered += f.status != 0;
  let_go(u);
}

static void* work(void* index) {
  worker = (uintptr_t)index;
  for (int left; (left = --requests) >= 0;) request_of(left);
  running--;
  return NULL;
}

int main(int n, char** args) {
  if (n != 2) return fprintf(stderr, "want the number of requests\n"), 2;
  requests = atoi(args[1]);
  quiet = true;
  workers = running = 4;
  ON(program_init)();
  newest = configure(0);
  pthread_t threads[4];
  for (uintptr_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, (void*)i);
  int configurations = 0;
  while (running) {
    nanos += 2000000000; // more than the period of ticks, and the pause before a VM restarts
    for (int i = 0; i < 5; i++) {
      ON(http_filter_config_scheduled)(newest, newest->module, 0);
      sched_yield();
    }
    used *next = configure(++configurations), *last = newest;
    if (!next->module) return fprintf(stderr, "a configuration was refused\n"), 1;
    pthread_mutex_lock(&changing);
    newest = next;
    pthread_mutex_unlock(&changing);
    let_go(last);
  }
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  let_go(newest);
  printf("%d configurations, %d answers\n", configurations, answered);
}
