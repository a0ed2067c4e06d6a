// A dynamic module that does nothing, so that Envoy's own part remains. Or it is the floor of the native
// form: it makes the host calls of a decision, with values as long as Weir's, and decides nothing. The
// configuration "floor" makes all of them, and "bare" those without response headers.
#include <string.h>
#include <time.h>

#include "abi.h"

static bool calls, decorates;
static volatile long long seen;

#define TEXT(s) ((bytes){s, sizeof(s) - 1})

// list asks for all headers, as to list them costs Envoy less than to look for one.
static void list(void* filter, header_map map) {
  field headers[64];
  const size_t n = CB(http_get_headers_size)(filter, map);
  if (n > sizeof headers / sizeof headers[0] || !CB(http_get_headers)(filter, map, headers)) return;
  for (size_t i = 0; i < n; i++) seen += headers[i].key.size == 6 && memcmp(headers[i].key.data, "x-user", 6) == 0;
}

const char* ON(program_init)(void) { return ABI_VERSION; }
const void* ON(http_filter_config_new)(void* config, bytes name, bytes text) {
  calls = text.size != 0;
  decorates = text.size == 5; // "floor"
  return config;
}
void ON(http_filter_config_destroy)(const void* module) {}
void ON(http_filter_config_scheduled)(void* config, const void* module, uint64_t event) {}
void ON(http_filter_config_http_callout_done)(void* config, const void* module, uint64_t id, int failed, field* headers, size_t n,
                                              bytes* chunks, size_t chunk_count) {}
const void* ON(http_filter_new)(const void* module, void* filter) {
  if (calls) seen += CB(http_filter_get_worker_index)(filter);
  return filter;
}
int ON(http_filter_request_headers)(void* filter, const void* module, bool end) {
  if (!calls) return HEADERS_CONTINUE;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  seen += now.tv_nsec;
  list(filter, REQUEST_HEADERS);
  return HEADERS_CONTINUE;
}
int ON(http_filter_request_body)(void* filter, const void* module, bool end) { return BODY_CONTINUE; }
int ON(http_filter_request_trailers)(void* filter, const void* module) { return TRAILERS_CONTINUE; }
int ON(http_filter_response_headers)(void* filter, const void* module, bool end) {
  if (!decorates) return HEADERS_CONTINUE;
  list(filter, RESPONSE_HEADERS);
  CB(http_add_header)(filter, RESPONSE_HEADERS, TEXT("ratelimit-policy"), TEXT("\"per-user\";q=1000000;w=60"));
  CB(http_add_header)(filter, RESPONSE_HEADERS, TEXT("ratelimit"), TEXT("\"per-user\";r=999399;t=1"));
  CB(http_add_header)(filter, RESPONSE_HEADERS, TEXT("x-ratelimit-limit"), TEXT("1000000"));
  CB(http_add_header)(filter, RESPONSE_HEADERS, TEXT("x-ratelimit-remaining"), TEXT("999399"));
  CB(http_add_header)(filter, RESPONSE_HEADERS, TEXT("x-ratelimit-reset"), TEXT("40"));
  return HEADERS_CONTINUE;
}
int ON(http_filter_response_body)(void* filter, const void* module, bool end) { return BODY_CONTINUE; }
int ON(http_filter_response_trailers)(void* filter, const void* module) { return TRAILERS_CONTINUE; }
void ON(http_filter_scheduled)(void* filter, const void* module, uint64_t event) {}
void ON(http_filter_stream_complete)(void* filter, const void* module) {}
void ON(http_filter_destroy)(const void* module) {}
const void* ON(http_filter_per_route_config_new)(bytes name, bytes text) { return 0; }
void ON(http_filter_per_route_config_destroy)(const void* module) {}
void ON(http_filter_http_callout_done)(void* f, const void* m, uint64_t id, int failed, field* h, size_t n, bytes* b, size_t bn) {}
void ON(http_filter_http_stream_headers)(void* f, const void* m, uint64_t id, field* h, size_t n, bool end) {}
void ON(http_filter_http_stream_data)(void* f, const void* m, uint64_t id, const bytes* b, size_t n, bool end) {}
void ON(http_filter_http_stream_trailers)(void* f, const void* m, uint64_t id, field* h, size_t n) {}
void ON(http_filter_http_stream_complete)(void* f, const void* m, uint64_t id) {}
void ON(http_filter_http_stream_reset)(void* f, const void* m, uint64_t id, int reason) {}
void ON(http_filter_downstream_above_write_buffer_high_watermark)(void* f, const void* m) {}
void ON(http_filter_downstream_below_write_buffer_low_watermark)(void* f, const void* m) {}
