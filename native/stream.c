#include "stream.h"

#include <stdio.h>
#include <strings.h>

enum { first_room = 320 }; // for the headers of two limits

stream* stream_new(config* c, vm* v, void* filter) {
  stream* s = malloc(sizeof *s + first_room);
  *s = (stream){.vm = v, .config = c, .filter = filter, .kept = (char*)(s + 1), .kept_room = first_room};
  return s;
}

void stream_free(stream* s) {
  if (s->scheduler) CB(http_filter_scheduler_delete)(s->scheduler);
  if (s->kept != (char*)(s + 1)) free(s->kept);
  free(s->reply);
  free(s);
}

// ---- headers of the response

typedef struct {
  uint32_t name, value;
} sizes;

// same reports whether two names are the same but for their case. Nearly all that are have the same case too.
static bool same(bytes a, bytes b) {
  if (a.size != b.size) return false;
  return memcmp(a.data, b.data, a.size) == 0 || (((a.data[0] ^ b.data[0]) & 0xdf) == 0 && strncasecmp(a.data, b.data, a.size) == 0);
}

size_t find_field(const field* fields, size_t n, bytes name, size_t from) {
  while (from < n && !same(fields[from].key, name)) from++;
  return from;
}

void stream_keep(stream* s, bytes name, bytes value) {
  const sizes n = {name.size, value.size};
  const size_t size = s->kept_size + sizeof n + name.size + value.size;
  if (size > s->kept_room) {
    char* first = s->kept == (char*)(s + 1) ? s->kept : NULL;
    s->kept = realloc(first ? NULL : s->kept, s->kept_room = 2 * size);
    if (first) memcpy(s->kept, first, s->kept_size);
  }
  bytes unused;
  copy(copy(copy(s->kept + s->kept_size, (bytes){(char*)&n, sizeof n}, &unused), name, &unused), value, &unused);
  s->kept_size = size;
}

// To find a header, Envoy would first make a hash table of all headers. It is cheaper to list them, and
// to add those that are new.
void stream_decorate(stream* s) {
  enum { most = 64 };
  field there[most];
  if (s->kept_size == 0) return;
  size_t n = CB(http_get_headers_size)(s->filter, RESPONSE_HEADERS);
  bool listed = n < most && (n == 0 || CB(http_get_headers)(s->filter, RESPONSE_HEADERS, there));
  for (char *at = s->kept, *end = at + s->kept_size; at < end;) {
    sizes of;
    memcpy(&of, at, sizeof of);
    at += sizeof of;
    const field header = {{at, of.name}, {at + of.name, of.value}};
    at += of.name + of.value;
    listed = listed && n < most && find_field(there, n, header.key, 0) == n;
    if (listed) {
      CB(http_add_header)(s->filter, RESPONSE_HEADERS, header.key, header.value);
      there[n++] = header;
    } else {
      // Envoy frees headers that it replaces, so the list is of no more use.
      CB(http_set_header)(s->filter, RESPONSE_HEADERS, header.key, header.value);
    }
  }
  s->kept_size = 0;
}

// ---- streams of a VM

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
