// The host calls of the proxy-wasm ABI that the plugin makes, except those for shared data, metrics
// and callouts.
#include "calls.h"

#include <time.h>

#include "answer.h"
#include "domain.h"
#include "stream.h"

enum { map_request_headers = 0, map_response_headers = 2, map_answer_headers = 6 };
enum { buffer_request_body = 0, buffer_response_body = 1, buffer_answer_body = 4, buffer_configuration = 7 };

void give(vm* v, bytes value, uint32_t at, uint32_t size_at) {
  uint32_t memory = 0;
  if (value.size) {
    memory = Z_weirZ_proxy_on_memory_allocate(&v->instance, value.size);
    vm_put(v, memory, value.data, value.size);
  }
  vm_put32(v, at, memory);
  vm_put32(v, size_at, value.size);
}

static uint32_t number(const char* at) {
  uint32_t n;
  memcpy(&n, at, sizeof n);
  return n;
}

int pairs(bytes data, field* headers, int most) {
  if (data.size < 4) return data.size == 0 ? 0 : -1;
  const uint32_t n = number(data.data);
  if (n > (uint32_t)most || data.size < 4 + 8ull * n) return -1;
  size_t at = 4 + 8 * n;
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t key = number(data.data + 4 + 8 * i), value = number(data.data + 8 + 8 * i);
    if (at + key + value + 2ull > data.size) return -1;
    headers[i] = (field){{data.data + at, key}, {data.data + at + key + 1, value}};
    at += (size_t)key + value + 2;
  }
  return n;
}

// ---- headers

// Envoy shows a stream's headers at any time. This host shows the request's headers only in the
// request phase, as Envoy's wasm host does.
static bool headers_of(vm* v, uint32_t map, header_map* kind) {
  if (!v->stream || !v->stream->filter) return false;
  if (map == map_request_headers && v->stream->phase == REQUEST_PHASE) {
    *kind = REQUEST_HEADERS;
  } else if (map == map_response_headers && v->stream->phase == RESPONSE_PHASE) {
    *kind = RESPONSE_HEADERS;
  } else {
    return false;
  }
  return true;
}

// To find a header, Envoy would first make a hash table of all headers. To list them and search the
// list is cheaper. The list is kept for a call into the VM.
const listed* list_headers(vm* v, header_map kind) {
  listed* l = &v->listed;
  if (kind == RESPONSE_HEADERS) v->stream->read = true;
  if (l->of == v->stream && l->kind == kind) return l;
  const size_t n = CB(http_get_headers_size)(v->stream->filter, kind);
  if (n > l->room) l->headers = realloc(l->headers, (l->room = 2 * n) * sizeof(field));
  const bool there = n == 0 || CB(http_get_headers)(v->stream->filter, kind, l->headers);
  l->of = v->stream;
  l->kind = kind;
  l->n = there ? n : 0;
  return l;
}

u32 Z_envZ_proxy_get_header_map_value(vm* v, u32 map, u32 name_at, u32 name_size, u32 at, u32 size_at) {
  const bytes name = vm_bytes(v, name_at, name_size);
  bytes value;
  header_map kind;
  if (map == map_answer_headers) {
    if (!v->answer) return BAD_ARGUMENT;
    if (!answer_header(v->answer, name, &value)) return NOT_FOUND;
  } else {
    if (!headers_of(v, map, &kind)) return BAD_ARGUMENT;
    const listed* l = list_headers(v, kind);
    const size_t i = find_field(l->headers, l->n, name, 0);
    if (i == l->n) return NOT_FOUND;
    value = l->headers[i].value;
  }
  give(v, value, at, size_at);
  return OK;
}

static char* put_text(char* to, bytes text) {
  memcpy(to, text.data, text.size);
  to[text.size] = 0;
  return to + text.size + 1;
}

u32 Z_envZ_proxy_get_header_map_pairs(vm* v, u32 map, u32 at, u32 size_at) {
  header_map kind;
  if (!headers_of(v, map, &kind)) return BAD_ARGUMENT;
  const listed* l = list_headers(v, kind);
  size_t size = 4;
  for (size_t i = 0; i < l->n; i++) size += 8 + l->headers[i].key.size + l->headers[i].value.size + 2;
  const uint32_t memory = Z_weirZ_proxy_on_memory_allocate(&v->instance, size);
  vm_put32(v, at, memory);
  vm_put32(v, size_at, size);
  char *sizes = (char*)vm_bytes(v, memory, size).data, *to = sizes + 4 + 8 * l->n;
  const uint32_t n = l->n;
  sizes = (char*)memcpy(sizes, &n, sizeof n) + sizeof n;
  for (size_t i = 0; i < n; i++, sizes += 8) {
    const uint32_t both[2] = {l->headers[i].key.size, l->headers[i].value.size};
    memcpy(sizes, both, sizeof both);
    to = put_text(put_text(to, l->headers[i].key), l->headers[i].value);
  }
  return OK;
}

u32 Z_envZ_proxy_replace_header_map_value(vm* v, u32 map, u32 name_at, u32 name_size, u32 value_at, u32 value_size) {
  const bytes name = vm_bytes(v, name_at, name_size);
  // A value at a null address would make Envoy remove the header.
  const bytes value = {value_size ? vm_bytes(v, value_at, value_size).data : "", value_size};
  if (!v->stream || !v->stream->filter || v->stream->phase == ENDED) return BAD_ARGUMENT;
  if (map == map_response_headers) {
    stream_keep(v->stream, name, value);
  } else if (map == map_request_headers && v->stream->phase == REQUEST_PHASE) {
    CB(http_set_header)(v->stream->filter, REQUEST_HEADERS, name, value);
    v->listed.of = NULL;
  } else {
    return BAD_ARGUMENT;
  }
  return OK;
}

u32 Z_envZ_proxy_remove_header_map_value(vm* v, u32 map, u32 name_at, u32 name_size) {
  const bytes name = vm_bytes(v, name_at, name_size);
  header_map kind;
  if (!headers_of(v, map, &kind)) return BAD_ARGUMENT;
  CB(http_set_header)(v->stream->filter, kind, name, (bytes){NULL, 0});
  v->listed.of = NULL;
  return OK;
}

u32 Z_envZ_proxy_call_foreign_function(vm* v, u32 name_at, u32 name_size, u32 argument_at, u32 argument_size, u32 at, u32 size_at) {
  static const char clear_route_cache[] = "clear_route_cache"; // the only function that the plugin calls
  const bytes name = vm_bytes(v, name_at, name_size);
  if (name.size != sizeof clear_route_cache - 1 || memcmp(name.data, clear_route_cache, name.size)) return NOT_FOUND;
  if (!v->stream || !v->stream->filter) return BAD_ARGUMENT;
  CB(http_clear_route_cache)(v->stream->filter);
  return OK;
}

// ---- bodies

// give_body gives the module the part of a range that a body's piece has.
static uint32_t give_body(vm* v, body_kind kind, uint32_t start, uint32_t size, uint32_t at, uint32_t size_at) {
  if (!v->stream || !v->stream->filter) return NOT_FOUND;
  void* filter = v->stream->filter;
  const size_t there = CB(http_get_body_size)(filter, kind);
  if (start > there) return BAD_ARGUMENT;
  if (size > there - start) size = there - start;
  const size_t n = CB(http_get_body_chunks_size)(filter, kind);
  bytes chunks[n ? n : 1];
  if (n && !CB(http_get_body_chunks)(filter, kind, chunks)) return NOT_FOUND;
  const uint32_t memory = size ? Z_weirZ_proxy_on_memory_allocate(&v->instance, size) : 0;
  uint32_t copied = 0;
  for (size_t i = 0; i < n && copied < size; i++) {
    if (start >= chunks[i].size) {
      start -= chunks[i].size;
      continue;
    }
    uint32_t take = chunks[i].size - start;
    if (take > size - copied) take = size - copied;
    vm_put(v, memory + copied, chunks[i].data + start, take);
    copied += take;
    start = 0;
  }
  vm_put32(v, at, memory);
  vm_put32(v, size_at, copied);
  return OK;
}

u32 Z_envZ_proxy_get_buffer_bytes(vm* v, u32 buffer, u32 start, u32 size, u32 at, u32 size_at) {
  bytes whole;
  switch (buffer) {
    case buffer_request_body: return give_body(v, REQUEST_PIECE, start, size, at, size_at);
    case buffer_response_body: return give_body(v, RESPONSE_PIECE, start, size, at, size_at);
    case buffer_answer_body:
      if (!v->answer) return NOT_FOUND;
      whole = answer_body(v->answer);
      break;
    case buffer_configuration:
      if (!v->starting) return NOT_FOUND;
      whole = v->starting->text;
      break;
    default: return NOT_FOUND;
  }
  if (start > whole.size) return BAD_ARGUMENT;
  if (size > whole.size - start) size = whole.size - start;
  give(v, (bytes){whole.data + start, size}, at, size_at);
  return OK;
}

// The plugin only replaces whole pieces of a body.
u32 Z_envZ_proxy_set_buffer_bytes(vm* v, u32 buffer, u32 start, u32 size, u32 data_at, u32 data_size) {
  const bytes data = vm_bytes(v, data_at, data_size);
  if (buffer > buffer_response_body || start != 0 || !v->stream || !v->stream->filter) return BAD_ARGUMENT;
  const body_kind kind = buffer == buffer_request_body ? REQUEST_PIECE : RESPONSE_PIECE;
  void* filter = v->stream->filter;
  const size_t there = CB(http_get_body_size)(filter, kind);
  if (size < there) return BAD_ARGUMENT;
  CB(http_drain_body)(filter, kind, there);
  if (data.size) CB(http_append_body)(filter, kind, data);
  return OK;
}

// ---- replies, pauses and contexts

u32 Z_envZ_proxy_send_local_response(vm* v, u32 status, u32 details_at, u32 details_size, u32 body_at, u32 body_size,
                                     u32 headers_at, u32 headers_size, u32 grpc_status) {
  const bytes details = vm_bytes(v, details_at, details_size), body = vm_bytes(v, body_at, body_size);
  field headers[most_pairs];
  const int n = pairs(vm_bytes(v, headers_at, headers_size), headers, most_pairs);
  if (n < 0) return BAD_ARGUMENT;
  if (v->stream) stream_reply(v->stream, status, headers, n, body, details, (int32_t)grpc_status);
  return OK;
}

u32 Z_envZ_proxy_continue_stream(vm* v, u32 direction) {
  if (direction != 0) return UNIMPLEMENTED; // the plugin never pauses a response
  if (v->stream) stream_resume(v->stream);
  return OK;
}

u32 Z_envZ_proxy_set_effective_context(vm* v, u32 id) {
  stream* s = stream_find(v, id);
  root* r = s ? s->root : vm_root(v, id);
  if (!r) return BAD_ARGUMENT;
  v->stream = s;
  v->root = r;
  return OK;
}

u32 Z_envZ_proxy_done(vm* v) {
  if (!v->root || !v->root->leaving) return NOT_FOUND;
  vm_remove(v, v->root);
  v->root = NULL;
  return OK;
}

// ---- the rest

u32 Z_envZ_proxy_get_current_time_nanoseconds(vm* v, u32 at) {
  // The clock is read once for a call into the VM, which counts as a moment for the plugin. Work that it bounds sees time pass.
  if (!v->now || v->works) v->now = now_nanos(CLOCK_REALTIME);
  vm_put(v, at, &v->now, sizeof v->now);
  return OK;
}

u32 Z_envZ_proxy_log(vm* v, u32 level, u32 at, u32 size) {
  CB(log)(level <= LOG_CRITICAL ? (log_level)level : LOG_CRITICAL, vm_bytes(v, at, size));
  return OK;
}

u32 Z_envZ_proxy_set_tick_period_milliseconds(vm* v, u32 millis) {
  if (!v->root) return BAD_ARGUMENT;
  v->root->period_millis = millis;
  v->root->due_nanos = millis ? now_nanos(CLOCK_MONOTONIC) + millis * 1000000ll : 0;
  if (v->index >= 0) timer_wake();
  return OK;
}
