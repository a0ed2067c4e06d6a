// Envoy's hooks for a request, as calls into the stream's VM.
#include "domain.h"
#include "mail.h"
#include "stream.h"

static const bytes failed_details = {"weir_failed", 11};

// give_up answers a request whose VM has failed, unless failure_policy is FAIL_OPEN.
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

// follow_all performs the actions that calls into the VM have requested for its streams. Envoy may
// end any of the streams meanwhile.
static void follow_all(vm* v) {
  for (;;) {
    pthread_mutex_lock(&v->lock);
    stream* s = v->ordered;
    if (!s) break;
    const order o = stream_take_order(s);
    reply* r = s->reply;
    s->reply = NULL;
    stream_unpause(s);
    pthread_mutex_unlock(&v->lock);
    follow(s, o, r);
  }
  pthread_mutex_unlock(&v->lock);
}

static bool runs(const stream* s) { return !s->vm->failed && s->generation == s->vm->generation; }

// begin makes a stream the context of the next call. It returns false if the VM has failed.
static bool begin(stream* s) {
  vm* v = s->vm;
  if (v->mail) mail_read(v, s->config);
  v->through = s->config;
  v->stream = s;
  v->root = s->root;
  return runs(s);
}

// enter takes the VM's lock before it begins.
static bool enter(stream* s) {
  pthread_mutex_lock(&s->vm->lock);
  return begin(s);
}

// leave releases the lock and performs the requested actions. It returns whether the stream must
// stop.
static bool leave(stream* s, bool pauses) {
  vm* v = s->vm;
  // The return value performs the action that the call has requested for its own stream.
  const order own = stream_take_order(s);
  reply* r = s->reply;
  s->reply = NULL;
  v->stream = NULL;
  v->root = NULL;
  if (own != NOTHING) {
    pauses = own == REPLY;
    stream_unpause(s);
  } else if (!pauses) {
    stream_unpause(s); // a request that goes on with its body
  } else if (!s->answered) {
    stream_pause(s);
  }
  const bool more = v->ordered != NULL;
  pthread_mutex_unlock(&v->lock);
  if (own == REPLY) follow(s, own, r);
  if (more) follow_all(v);
  return pauses;
}

// fails ends a request whose VM has failed in this call or before, and returns whether it must
// stop. A call that fails loses the reply that it has requested: such a request never goes on.
static bool fails(stream* s) {
  s->vm->stream = NULL;
  s->vm->root = NULL;
  const bool lost = stream_take_order(s) == REPLY;
  free(s->reply);
  s->reply = NULL;
  stream_unpause(s);
  const bool ends = s->phase == REQUEST_PHASE && (lost || (s->config->policy != FAIL_OPEN && !s->answered));
  if (ends) s->answered = true;
  const bool stops = s->answered && s->phase == REQUEST_PHASE;
  pthread_mutex_unlock(&s->vm->lock);
  if (ends) give_up(s);
  return stops;
}

const void* ON(http_filter_new)(const void* module, void* filter) {
  config* c = (config*)module;
  return stream_new(c, c->domain->vms[CB(http_filter_get_worker_index)(filter) % c->domain->workers], filter);
}

// The VM's context of a stream begins with the request's headers, and for most requests ends there.
int ON(http_filter_request_headers)(void* filter, const void* module, bool end) {
  enum { pauses = 1, over = 2 }; // of weir_on_request_headers
  stream* s = (stream*)module;
  vm* v = s->vm;
  s->filter = filter;
  uint32_t action = 0;
  pthread_mutex_lock(&v->lock);
  if (v->mail) mail_read(v, s->config);
  if (v->failed && s->config->policy == FAIL_RELOAD) domain_reload(v);
  s->root = vm_root(v, s->config->id);
  if (v->failed || !s->root) return fails(s) ? HEADERS_STOP : HEADERS_CONTINUE;
  s->generation = v->generation;
  stream_add(v, s);
  v->through = s->config;
  v->stream = s;
  v->root = s->root;
  if (!RUN(v, action = Z_weirZ_weir_on_request_headers(&v->instance, s->id, s->config->id, end))) return fails(s) ? HEADERS_STOP : HEADERS_CONTINUE;
  if (action & over && (s->answered || !(action & pauses))) {
    s->over = true;
    stream_remove(s);
  }
  return leave(s, action & pauses) ? HEADERS_STOP : HEADERS_CONTINUE; // the body still comes, because a rule may read it
}

// declines reports whether the plugin does not need a request's body. It pauses a request at the
// headers if it reads the body. For other requests, nothing after the headers matters to it.
static bool declines(const stream* s) { return !s->scheduler && !s->answered; }

int ON(http_filter_request_body)(void* filter, const void* module, bool end) {
  stream* s = (stream*)module;
  vm* v = s->vm;
  if (declines(s)) return BODY_CONTINUE;
  if (s->over) return BODY_STOP_NO_BUFFER;
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
  if (s->over) return TRAILERS_STOP;
  uint32_t action = 0;
  if (!enter(s) || !RUN(v, action = Z_weirZ_proxy_on_request_trailers(&v->instance, s->id, 0))) return fails(s) ? TRAILERS_STOP : TRAILERS_CONTINUE;
  return leave(s, action) ? TRAILERS_STOP : TRAILERS_CONTINUE;
}

// A response goes on while the VM is failed: its request was decided.
int ON(http_filter_response_headers)(void* filter, const void* module, bool end) {
  stream* s = (stream*)module;
  vm* v = s->vm;
  if (!s->over) {
    pthread_mutex_lock(&v->lock);
    // Envoy may have answered a paused request by itself. If the mail decides it now, that is too late for a reply.
    s->phase = RESPONSE_PHASE;
    stream_unpause(s);
    if (!begin(s) || !RUN(v, Z_weirZ_proxy_on_response_headers(&v->instance, s->id, 0, end))) return fails(s);
    leave(s, false);
  }
  s->phase = RESPONSE_PHASE;
  stream_decorate(s);
  return HEADERS_CONTINUE;
}

// If a rule reads a response's cost, the plugin reads the response's status first. Bodies of other
// responses are skipped.
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

// end_stream ends a stream's context in the VM.
static void end_stream(stream* s) {
  vm* v = s->vm;
  if (s->over) return;
  pthread_mutex_lock(&v->lock);
  s->filter = NULL;
  s->phase = ENDED;
  stream_take_order(s);
  stream_unpause(s);
  if (v->mail) mail_read(v, s->config);
  if (runs(s)) {
    v->through = s->config;
    v->stream = s;
    v->root = s->root;
    RUN(v, Z_weirZ_proxy_on_done(&v->instance, s->id));
  }
  stream_remove(s);
  stream_take_order(s);
  s->over = true;
  const bool more = v->ordered != NULL;
  pthread_mutex_unlock(&v->lock);
  if (more) follow_all(v);
}

// Envoy destroys the filter of a request that it redirects only after the filter of the new request
// has begun, which may need the place in flight that this one holds.
void ON(http_filter_stream_complete)(void* filter, const void* module) { end_stream((stream*)module); }

void ON(http_filter_destroy)(const void* module) {
  stream* s = (stream*)module;
  end_stream(s);
  stream_free(s);
}

// ---- hooks that Envoy requires and the plugin does not need

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
