// A dynamic module that does nothing: what is left is what Envoy's own part of it costs.
#include "abi.h"

const char* ON(program_init)(void) { return ABI_VERSION; }
const void* ON(http_filter_config_new)(void* config, bytes name, bytes text) { return config; }
void ON(http_filter_config_destroy)(const void* module) {}
void ON(http_filter_config_scheduled)(void* config, const void* module, uint64_t event) {}
void ON(http_filter_config_http_callout_done)(void* config, const void* module, uint64_t id, int failed, field* headers, size_t n,
                                              bytes* chunks, size_t chunk_count) {}
const void* ON(http_filter_new)(const void* module, void* filter) { return filter; }
int ON(http_filter_request_headers)(void* filter, const void* module, bool end) { return HEADERS_CONTINUE; }
int ON(http_filter_request_body)(void* filter, const void* module, bool end) { return BODY_CONTINUE; }
int ON(http_filter_request_trailers)(void* filter, const void* module) { return TRAILERS_CONTINUE; }
int ON(http_filter_response_headers)(void* filter, const void* module, bool end) { return HEADERS_CONTINUE; }
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
