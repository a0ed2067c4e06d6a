#include "stream.h"

#include <stdio.h>

static stream** place(vm* v, uint32_t id) { return &v->streams[id % 256]; }

stream* stream_find(vm* v, uint32_t id) {
  stream* s = *place(v, id);
  while (s && s->id != id) s = s->next;
  return s;
}

void stream_add(vm* v, stream* s) {
  // The ids of streams are above the ids of configurations.
  enum { first_stream = 1 << 24 };
  if (v->next_stream < first_stream) v->next_stream = first_stream;
  s->id = v->next_stream++;
  stream** at = place(v, s->id);
  s->next = *at;
  *at = s;
}

void stream_remove(stream* s) {
  stream** at = place(s->vm, s->id);
  while (*at && *at != s) at = &(*at)->next;
  if (*at) *at = s->next;
}

static void set_order(stream* s, order o) {
  if (s->order == NOTHING) {
    s->next_ordered = s->vm->ordered;
    s->vm->ordered = s;
  }
  s->order = o;
}

// is_grpc reports whether a request is gRPC. Envoy then answers with the status in a header.
static bool is_grpc(void* filter) {
  static const char grpc[] = "application/grpc";
  bytes type = {0};
  if (!CB(http_get_header)(filter, REQUEST_HEADERS, (bytes){"content-type", 12}, &type, 0, NULL)) return false;
  const size_t size = sizeof grpc - 1;
  return type.size >= size && memcmp(type.data, grpc, size) == 0 && (type.size == size || type.data[size] == '+');
}

// The ABI's reply has no gRPC status, but Envoy keeps a header with it.
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
    to = copy(to, h->key, &r->headers[i].key);
    to = copy(to, h->value, &r->headers[i].value);
  }
  copy(copy(to, body, &r->body), details, &r->details);
  s->reply = r;
  set_order(s, REPLY);
}

void stream_resume(stream* s) {
  if (s->paused) set_order(s, RESUME);
}

void streams_fail(vm* v) {
  for (stream* s = v->paused; s; s = s->next_paused) {
    if (s->order == NOTHING || s->order == RESUME) set_order(s, FAIL);
    stream_wake(s);
  }
}

void stream_pause(stream* s) {
  if (s->paused) return;
  vm* v = s->vm;
  s->paused = true;
  s->next_paused = v->paused;
  s->paused_at = &v->paused;
  if (v->paused) v->paused->paused_at = &s->next_paused;
  v->paused = s;
  if (!s->scheduler) s->scheduler = CB(http_filter_scheduler_new)(s->filter);
}

void stream_unpause(stream* s) {
  if (!s->paused) return;
  s->paused = false;
  *s->paused_at = s->next_paused;
  if (s->next_paused) s->next_paused->paused_at = s->paused_at;
}

order stream_take_order(stream* s) {
  const order o = s->order;
  if (o == NOTHING) return o;
  stream** at = &s->vm->ordered;
  while (*at != s) at = &(*at)->next_ordered;
  *at = s->next_ordered;
  s->order = NOTHING;
  return o;
}
