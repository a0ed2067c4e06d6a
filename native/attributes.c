// Attributes of a stream. A wasm plugin asks for them by paths, and a module by numbers.
#include "calls.h"
#include "stream.h"

static const struct {
  const char* path; // with dots instead of zero bytes
  int attribute;
  bool is_number;
} attributes[] = {
    {"source.address", ATTRIBUTE_SOURCE_ADDRESS, false},
    {"request.total_size", 14, true},
    {"request.path", 0, false},
    {"request.url_path", 1, false},
    {"request.host", 2, false},
    {"request.scheme", 3, false},
    {"request.method", 4, false},
    {"request.referer", 6, false},
    {"request.useragent", 7, false},
    {"request.id", 9, false},
    {"request.protocol", 10, false},
    {"request.query", 11, false},
    {"response.code_details", 16, false},
    {"source.port", 25, true},
    {"destination.address", 26, false},
    {"destination.port", 27, true},
    {"connection.id", 28, true},
    {"connection.requested_server_name", 30, false},
    {"connection.tls_version", 31, false},
    {"connection.subject_local_certificate", 32, false},
    {"connection.subject_peer_certificate", 33, false},
    {"connection.dns_san_local_certificate", 34, false},
    {"connection.dns_san_peer_certificate", 35, false},
    {"connection.uri_san_local_certificate", 36, false},
    {"connection.uri_san_peer_certificate", 37, false},
    {"connection.sha256_peer_certificate_digest", 38, false},
    {"upstream.local_address", 51, false},
    {"upstream.request_attempt_count", 53, true},
    {"route_name", ATTRIBUTE_ROUTE_NAME, false},
    {"xds.route_name", ATTRIBUTE_ROUTE_NAME, false},
};
enum { known = sizeof attributes / sizeof attributes[0] };

static bool is(bytes path, const char* dotted) {
  if (path.size && path.data[path.size - 1] == 0) path.size--;
  if (strlen(dotted) != path.size) return false;
  for (size_t i = 0; i < path.size; i++) {
    if (dotted[i] != (path.data[i] ? path.data[i] : '.')) return false;
  }
  return true;
}

// A module can read only the first level of dynamic metadata, and verified claims lie deeper.
static void say_unread(bytes path) {
  static atomic_flag told = ATOMIC_FLAG_INIT;
  if (atomic_flag_test_and_set(&told)) return;
  char text[128];
  size_t size = path.size < sizeof text ? path.size : sizeof text;
  for (size_t i = 0; i < size; i++) text[i] = path.data[i] ? path.data[i] : '.';
  say(LOG_ERROR, "weir: a dynamic module can't read the property %.*s, which a rule asks for; the wasm form can", (int)size, text);
}

// give_header gives the module all values of a header, joined by commas.
static uint32_t give_header(vm* v, header_map map, bytes name, uint32_t at, uint32_t size_at) {
  const listed* l = list_headers(v, map);
  const size_t first = find_field(l->headers, l->n, name, 0);
  if (first == l->n) return NOT_FOUND;
  if (find_field(l->headers, l->n, name, first + 1) == l->n) {
    give(v, l->headers[first].value, at, size_at);
    return OK;
  }
  uint32_t size = 0;
  for (size_t i = first; i < l->n; i = find_field(l->headers, l->n, name, i + 1)) size += l->headers[i].value.size + 1;
  const uint32_t memory = Z_weirZ_proxy_on_memory_allocate(&v->instance, --size);
  vm_put32(v, at, memory);
  vm_put32(v, size_at, size);
  char* to = (char*)vm_bytes(v, memory, size).data;
  for (size_t i = first; i < l->n; i = find_field(l->headers, l->n, name, i + 1)) {
    if (i != first) *to++ = ',';
    to = (char*)memcpy(to, l->headers[i].value.data, l->headers[i].value.size) + l->headers[i].value.size;
  }
  return OK;
}

static bool cut_prefix(bytes* path, const char* prefix, size_t size) {
  if (path->size <= size || memcmp(path->data, prefix, size) != 0) return false;
  *path = (bytes){path->data + size, path->size - size};
  return true;
}

// own_space has the property that the plugin itself reads again, in the stream's dynamic metadata.
static const bytes own_space = {"weir", 4};
static const char over[] = "weir_over";

u32 Z_envZ_proxy_set_property(vm* v, u32 name_at, u32 name_size, u32 value_at, u32 value_size) {
  if (!v->stream || !v->stream->filter) return NOT_FOUND;
  const bytes name = vm_bytes(v, name_at, name_size), value = vm_bytes(v, value_at, value_size);
  if (is(name, over)) {
    CB(http_set_dynamic_metadata_string)(v->stream->filter, own_space, name, value);
    return OK;
  }
  // Access logs read the others where a wasm plugin's are.
  char key[64] = "wasm.";
  if (name.size > sizeof key - 5) return NOT_FOUND;
  memcpy(key + 5, name.data, name.size);
  CB(http_set_filter_state_bytes)(v->stream->filter, (bytes){key, name.size + 5}, value);
  return OK;
}

u32 Z_envZ_proxy_get_property(vm* v, u32 path_at, u32 path_size, u32 at, u32 size_at) {
  bytes path = vm_bytes(v, path_at, path_size);
  if (!v->stream || !v->stream->filter) return NOT_FOUND;
  if (cut_prefix(&path, "request\0headers\0", 16)) return give_header(v, REQUEST_HEADERS, path, at, size_at);
  if (cut_prefix(&path, "response\0headers\0", 17)) return give_header(v, RESPONSE_HEADERS, path, at, size_at);
  bytes value = {0};
  if (is(path, over)) {
    if (!CB(http_get_metadata_string)(v->stream->filter, METADATA_DYNAMIC, own_space, path, &value)) return NOT_FOUND;
    give(v, value, at, size_at);
    return OK;
  }
  int i = 0;
  while (i < known && !is(path, attributes[i].path)) i++;
  if (i == known) {
    say_unread(path);
    return NOT_FOUND;
  }
  uint64_t number;
  if (attributes[i].is_number) {
    if (!CB(http_filter_get_attribute_int)(v->stream->filter, attributes[i].attribute, &number)) return NOT_FOUND;
    value = (bytes){(char*)&number, sizeof number};
  } else if (!CB(http_filter_get_attribute_string)(v->stream->filter, attributes[i].attribute, &value)) {
    return NOT_FOUND;
  }
  give(v, value, at, size_at);
  return OK;
}
