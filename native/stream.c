#include "stream.h"

#include <stdio.h>

#include "config.h"
#include "mail.h"

// Ids of streams are above those of configurations.
enum { first_stream = 1 << 24 };

// ---- the VM's side

static stream** place(vm* v, uint32_t id) { return &v->streams[id % 256]; }

stream* stream_find(vm* v, uint32_t id) {
  stream* s = *place(v, id);
  while (s && s->id != id) s = s->next;
  return s;
}

static void set_order(stream* s, order o) {
  if (s->order == NOTHING) {
    s->next_ordered = s->vm->ordered;
    s->vm->ordered = s;
  }
  s->order = o;
}

// is_grpc reports whether the request is gRPC's, to which Envoy answers with the status in a header.
static bool is_grpc(void* filter) {
  static const char grpc[] = "application/grpc";
  bytes type = {0};
  if (!CB(http_get_header)(filter, REQUEST_HEADERS, (bytes){"content-type", 12}, &type, 0, NULL)) return false;
  const size_t size = sizeof grpc - 1;
  return type.size >= size && memcmp(type.data, grpc, size) == 0 && (type.size == size || type.data[size] == '+');
}

static char* keep(char* to, bytes from, bytes* kept) {
  if (from.size) memcpy(to, from.data, from.size);
  *kept = (bytes){to, from.size};
  return to + from.size;
}

// The ABI's reply has no gRPC status, but Envoy keeps a header that says it.
void stream_reply(stream* s, uint32_t status, const field* headers, int n, bytes body, bytes details, int32_t grpc_status) {
  if (s->answered || !s->filter || s->phase != REQUEST_PHASE) return;
  s->answered = true;
  const bool grpc = grpc_status >= 0 && is_grpc(s->filter);
  char number[12];
  const field grpc_header = {{"grpc-status", 11}, {number, snprintf(number, sizeof number, "%d", grpc_status)}};
  size_t size = body.size + details.size + (grpc ? 11 + sizeof number : 0);
  for (int i = 0; i < n; i++) size += headers[i].key.size + headers[i].value.size;
  reply* r = malloc(sizeof *r + (n + 1) * sizeof(field) + size);
  *r = (reply){.status = status, .n = n + grpc};
  char* to = (char*)&r->headers[n + 1];
  for (int i = 0; i < r->n; i++) {
    const field* h = i < n ? &headers[i] : &grpc_header;
    to = keep(to, h->key, &r->headers[i].key);
    to = keep(to, h->value, &r->headers[i].value);
  }
  keep(keep(to, body, &r->body), details, &r->details);
  s->reply = r;
  set_order(s, REPLY);
}

void stream_resume(stream* s) {
  if (s->paused) set_order(s, RESUME);
}

void stream_wake(stream* s) { CB(http_filter_scheduler_commit)(s->scheduler, 0); }

void streams_fail(vm* v) {
  for (stream* s = v->paused; s; s = s->next_paused) {
    if (s->order == NOTHING || s->order == RESUME) set_order(s, FAIL);
    stream_wake(s);
  }
}

static void pause(stream* s) {
  if (s->paused) return;
  vm* v = s->vm;
  s->paused = true;
  s->next_paused = v->paused;
  s->paused_at = &v->paused;
  if (v->paused) v->paused->paused_at = &s->next_paused;
  v->paused = s;
  if (!s->scheduler) s->scheduler = CB(http_filter_scheduler_new)(s->filter);
}

static void unpause(stream* s) {
  if (!s->paused) return;
  s->paused = false;
  *s->paused_at = s->next_paused;
  if (s->next_paused) s->next_paused->paused_at = s->paused_at;
}

static order take_order(stream* s) {
  const order o = s->order;
  if (o == NOTHING) return o;
  stream** at = &s->vm->ordered;
  while (*at != s) at = &(*at)->next_ordered;
  *at = s->next_ordered;
  s->order = NOTHING;
  return o;
}

// ---- Envoy's side

static const bytes failed_details = {"weir_failed", 11};

// give_up ends a request as failure_policy says, after its VM has failed.
static void give_up(stream* s) { CB(http_send_response)(s->filter, 503, NULL, 0, (bytes){"", 0}, failed_details); }

static void follow(stream* s, order o, reply* r) {
  switch (o) {
    case REPLY:
      CB(http_send_response)(s->filter, r->status, r->headers, r->n, r->body, r->details);
      break;
    case RESUME: CB(http_filter_continue_decoding)(s->filter); break;
    case FAIL:
      if (s->config->policy == FAIL_OPEN) {
        CB(http_filter_continue_decoding)(s->filter);
      } else {
        give_up(s);
      }
      break;
    case NOTHING: break;
  }
  free(r);
}

// follow_all does what calls into the VM have wanted of its streams. Envoy may end any of them meanwhile.
static void follow_all(vm* v) {
  for (;;) {
    pthread_mutex_lock(&v->lock);
    stream* s = v->ordered;
    if (!s) break;
    const order o = take_order(s);
    reply* r = s->reply;
    s->reply = NULL;
    unpause(s);
    pthread_mutex_unlock(&v->lock);
    follow(s, o, r);
  }
  pthread_mutex_unlock(&v->lock);
}

static bool runs(const stream* s) { return !s->vm->failed && s->generation == s->vm->generation; }

// enter takes the VM's lock, and makes a stream the context of the call that follows. It reports false
// if the VM has failed.
static bool enter(stream* s) {
  vm* v = s->vm;
  pthread_mutex_lock(&v->lock);
  if (v->mail) mail_read(v, s->config);
  v->through = s->config;
  v->stream = s;
  v->root = s->root;
  return runs(s);
}

// leave lets the lock go and does what the call has wanted. It returns whether the stream shall stop.
static bool leave(stream* s, bool pauses) {
  vm* v = s->vm;
  // What a call wants of its own stream is its answer.
  const order own = take_order(s);
  reply* r = s->reply;
  s->reply = NULL;
  v->stream = NULL;
  v->root = NULL;
  if (own != NOTHING) {
    pauses = own == REPLY;
    unpause(s);
  } else if (pauses && !s->answered) {
    pause(s);
  }
  const bool more = v->ordered != NULL;
  pthread_mutex_unlock(&v->lock);
  if (own == REPLY) follow(s, own, r);
  if (more) follow_all(v);
  return pauses;
}

// fails ends a request whose VM has failed in the call or before, and returns whether it shall stop.
static bool fails(stream* s) {
  s->vm->stream = NULL;
  s->vm->root = NULL;
  take_order(s);
  free(s->reply);
  s->reply = NULL;
  unpause(s);
  const bool ends = s->config->policy != FAIL_OPEN && s->phase == REQUEST_PHASE && !s->answered;
  if (ends) s->answered = true;
  const bool stops = s->answered && s->phase == REQUEST_PHASE;
  pthread_mutex_unlock(&s->vm->lock);
  if (ends) give_up(s);
  return stops;
}

const void* ON(http_filter_new)(const void* module, void* filter) {
  config* c = (config*)module;
  domain* d = c->domain;
  vm* v = d->vms[CB(http_filter_get_worker_index)(filter) % d->workers];
  stream* s = calloc(1, sizeof *s);
  *s = (stream){.vm = v, .config = c, .filter = filter};
  pthread_mutex_lock(&v->lock);
  if (v->mail) mail_read(v, c);
  if (v->failed && c->policy == FAIL_RELOAD) vm_reload(v);
  s->root = vm_root(v, c->id);
  s->generation = v->generation;
  if (v->next_stream < first_stream) v->next_stream = first_stream;
  s->id = v->next_stream++;
  if (!v->failed && s->root) {
    stream** at = place(v, s->id);
    s->next = *at;
    *at = s;
    v->through = c;
    v->stream = s;
    v->root = s->root;
    RUN(v, Z_weirZ_proxy_on_context_create(&v->instance, s->id, c->id));
  } else {
    s->generation--; // it has no context
  }
  pthread_mutex_unlock(&v->lock);
  return s;
}

int ON(http_filter_request_headers)(void* filter, const void* module, bool end) {
  stream* s = (stream*)module;
  vm* v = s->vm;
  s->filter = filter;
  uint32_t action = 0;
  if (!enter(s) || !RUN(v, action = Z_weirZ_proxy_on_request_headers(&v->instance, s->id, 0, end))) {
    return fails(s) ? HEADERS_STOP : HEADERS_CONTINUE;
  }
  return leave(s, action) ? HEADERS_STOP : HEADERS_CONTINUE; // the body comes: a rule may read it
}

// declines reports whether a request's body is none of the plugin's business. The plugin says so at the
// headers: it pauses a request whose body it reads, and has no other say in what follows the headers of
// one that it lets go on.
static bool declines(const stream* s) { return !s->scheduler && !s->answered; }

int ON(http_filter_request_body)(void* filter, const void* module, bool end) {
  stream* s = (stream*)module;
  vm* v = s->vm;
  if (declines(s)) return BODY_CONTINUE;
  uint32_t action = 0;
  if (!enter(s) || !RUN(v, action = Z_weirZ_proxy_on_request_body(&v->instance, s->id, CB(http_get_body_size)(filter, REQUEST_PIECE), end))) {
    return fails(s) ? BODY_STOP_NO_BUFFER : BODY_CONTINUE;
  }
  return leave(s, action) ? s->answered ? BODY_STOP_NO_BUFFER : BODY_STOP_AND_WATERMARK : BODY_CONTINUE;
}

int ON(http_filter_request_trailers)(void* filter, const void* module) {
  stream* s = (stream*)module;
  vm* v = s->vm;
  if (declines(s)) return TRAILERS_CONTINUE;
  uint32_t action = 0;
  if (!enter(s) || !RUN(v, action = Z_weirZ_proxy_on_request_trailers(&v->instance, s->id, 0))) return fails(s) ? TRAILERS_STOP : TRAILERS_CONTINUE;
  return leave(s, action) ? TRAILERS_STOP : TRAILERS_CONTINUE;
}

// A response that comes while the VM is failed goes on: it was decided about its request.
int ON(http_filter_response_headers)(void* filter, const void* module, bool end) {
  stream* s = (stream*)module;
  vm* v = s->vm;
  const bool runs = enter(s);
  s->phase = RESPONSE_PHASE;
  unpause(s);
  if (!runs || !RUN(v, Z_weirZ_proxy_on_response_headers(&v->instance, s->id, 0, end))) return fails(s);
  leave(s, false);
  return HEADERS_CONTINUE;
}

// A response whose cost a rule reads has its status read first. The body of any other goes by.
int ON(http_filter_response_body)(void* filter, const void* module, bool end) {
  stream* s = (stream*)module;
  vm* v = s->vm;
  if (!s->read) return BODY_CONTINUE;
  if (!enter(s) || !RUN(v, Z_weirZ_proxy_on_response_body(&v->instance, s->id, CB(http_get_body_size)(filter, RESPONSE_PIECE), end))) {
    return fails(s);
  }
  leave(s, false);
  return BODY_CONTINUE;
}

int ON(http_filter_response_trailers)(void* filter, const void* module) {
  stream* s = (stream*)module;
  vm* v = s->vm;
  if (!s->read) return TRAILERS_CONTINUE;
  if (!enter(s) || !RUN(v, Z_weirZ_proxy_on_response_trailers(&v->instance, s->id, 0))) return fails(s);
  leave(s, false);
  return 0;
}

void ON(http_filter_scheduled)(void* filter, const void* module, uint64_t event) {
  stream* s = (stream*)module;
  vm* v = s->vm;
  pthread_mutex_lock(&v->lock);
  if (v->mail) mail_read(v, s->config);
  pthread_mutex_unlock(&v->lock);
  follow_all(v);
}

void ON(http_filter_stream_complete)(void* filter, const void* module) {}

void ON(http_filter_destroy)(const void* module) {
  stream* s = (stream*)module;
  vm* v = s->vm;
  pthread_mutex_lock(&v->lock);
  s->filter = NULL;
  s->phase = ENDED;
  take_order(s);
  unpause(s);
  if (v->mail) mail_read(v, s->config);
  if (runs(s)) {
    v->through = s->config;
    v->stream = s;
    v->root = s->root;
    RUN(v, Z_weirZ_proxy_on_done(&v->instance, s->id));
  }
  stream** at = place(v, s->id);
  while (*at && *at != s) at = &(*at)->next;
  if (*at) *at = s->next;
  take_order(s);
  const bool more = v->ordered != NULL;
  pthread_mutex_unlock(&v->lock);
  if (s->scheduler) CB(http_filter_scheduler_delete)(s->scheduler);
  free(s->reply);
  free(s);
  if (more) follow_all(v);
}

// ---- hooks that Envoy wants and the plugin has no use for

const void* ON(http_filter_per_route_config_new)(bytes name, bytes config) {
  say(LOG_ERROR, "weir: a route can't have a configuration of its own");
  return NULL;
}
void ON(http_filter_per_route_config_destroy)(const void* module) {}
void ON(http_filter_http_callout_done)(void* f, const void* m, uint64_t id, int failed, field* h, size_t n, bytes* b, size_t bn) {}
void ON(http_filter_http_stream_headers)(void* f, const void* m, uint64_t id, field* h, size_t n, bool end) {}
void ON(http_filter_http_stream_data)(void* f, const void* m, uint64_t id, const bytes* b, size_t n, bool end) {}
void ON(http_filter_http_stream_trailers)(void* f, const void* m, uint64_t id, field* h, size_t n) {}
void ON(http_filter_http_stream_complete)(void* f, const void* m, uint64_t id) {}
void ON(http_filter_http_stream_reset)(void* f, const void* m, uint64_t id, int reason) {}
void ON(http_filter_downstream_above_write_buffer_high_watermark)(void* f, const void* m) {}
void ON(http_filter_downstream_below_write_buffer_low_watermark)(void* f, const void* m) {}
