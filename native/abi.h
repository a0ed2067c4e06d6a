// The part of the ABI of Envoy 1.40's dynamic modules that native/ uses. Names and numbers are
// those of source/extensions/dynamic_modules/abi/abi.h in Envoy's repository; the shorthands are
// ours.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ABI_VERSION "v0.2.0" // of Envoy 1.40

typedef struct {
  const char* data;
  size_t size;
} bytes; // envoy_buffer and module_buffer

typedef struct {
  bytes key, value;
} field; // envoy_http_header and module_http_header

typedef enum { REQUEST_HEADERS, REQUEST_TRAILERS, RESPONSE_HEADERS, RESPONSE_TRAILERS } header_map;
typedef enum { REQUEST_PIECE, REQUEST_BUFFERED, RESPONSE_PIECE, RESPONSE_BUFFERED } body_kind;
typedef enum { LOG_TRACE, LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_CRITICAL } log_level;
enum { HEADERS_CONTINUE = 0, HEADERS_STOP = 1 };
enum { BODY_CONTINUE = 0, BODY_STOP_AND_WATERMARK = 2, BODY_STOP_NO_BUFFER = 3 };
enum { TRAILERS_CONTINUE = 0, TRAILERS_STOP = 1 };
enum { CLUSTER_NOT_FOUND = 2 }; // result of a callout
enum { METADATA_DYNAMIC = 0 };  // of a stream
enum { ATTRIBUTE_SOURCE_ADDRESS = 24, ATTRIBUTE_ROUTE_NAME = 61 }; // attributes.c has more

#define CB(name) envoy_dynamic_module_callback_##name
#define ON(name) envoy_dynamic_module_on_##name

// Functions of Envoy. filter is a stream's object in Envoy, and config that of a configuration. An
// Envoy that lacks some functions still loads the library, which then reports that (config.c).
#define WEAK __attribute__((weak))
WEAK void CB(log)(log_level level, bytes message);
WEAK uint32_t CB(get_concurrency)(void);
WEAK int CB(http_filter_config_define_counter)(void* config, bytes name, bytes* labels, size_t n, size_t* id);
WEAK int CB(http_filter_config_define_gauge)(void* config, bytes name, bytes* labels, size_t n, size_t* id);
WEAK int CB(http_filter_config_increment_counter)(void* config, size_t id, bytes* values, size_t n, uint64_t by);
WEAK int CB(http_filter_config_set_gauge)(void* config, size_t id, bytes* values, size_t n, uint64_t value);
WEAK bool CB(http_get_header)(void* filter, header_map map, bytes name, bytes* value, size_t index, size_t* count);
WEAK size_t CB(http_get_headers_size)(void* filter, header_map map);
WEAK bool CB(http_get_headers)(void* filter, header_map map, field* headers);
WEAK bool CB(http_add_header)(void* filter, header_map map, bytes name, bytes value);
WEAK bool CB(http_set_header)(void* filter, header_map map, bytes name, bytes value);
WEAK void CB(http_clear_route_cache)(void* filter);
WEAK void CB(http_send_response)(void* filter, uint32_t status, field* headers, size_t n, bytes body, bytes details);
WEAK size_t CB(http_get_body_size)(void* filter, body_kind body);
WEAK size_t CB(http_get_body_chunks_size)(void* filter, body_kind body);
WEAK bool CB(http_get_body_chunks)(void* filter, body_kind body, bytes* chunks);
WEAK bool CB(http_append_body)(void* filter, body_kind body, bytes data);
WEAK bool CB(http_drain_body)(void* filter, body_kind body, size_t n);
WEAK bool CB(http_filter_get_attribute_string)(void* filter, int attribute, bytes* value);
WEAK bool CB(http_filter_get_attribute_int)(void* filter, int attribute, uint64_t* value);
WEAK void CB(http_set_dynamic_metadata_string)(void* filter, bytes space, bytes key, bytes value);
WEAK bool CB(http_set_filter_state_bytes)(void* filter, bytes key, bytes value);
WEAK bool CB(http_get_metadata_string)(void* filter, int source, bytes space, bytes key, bytes* value);
WEAK uint32_t CB(http_filter_get_worker_index)(void* filter);
WEAK void CB(http_filter_continue_decoding)(void* filter);
WEAK void* CB(http_filter_scheduler_new)(void* filter);
WEAK void CB(http_filter_scheduler_commit)(void* scheduler, uint64_t event);
WEAK void CB(http_filter_scheduler_delete)(void* scheduler);
WEAK void* CB(http_filter_config_scheduler_new)(void* config);
WEAK void CB(http_filter_config_scheduler_commit)(void* scheduler, uint64_t event);
WEAK void CB(http_filter_config_scheduler_delete)(void* scheduler);
WEAK int CB(http_filter_config_http_callout)(void* config, uint64_t* id, bytes cluster, field* headers, size_t n, bytes body,
                                        uint64_t timeout_millis);

// Hooks that Envoy calls. module is the pointer that the module returned when the object was
// created.
#pragma GCC visibility push(default)
const char* ON(program_init)(void);
const void* ON(http_filter_config_new)(void* config, bytes name, bytes text);
void ON(http_filter_config_destroy)(const void* module);
void ON(http_filter_config_scheduled)(void* config, const void* module, uint64_t event);
void ON(http_filter_config_http_callout_done)(void* config, const void* module, uint64_t id, int failed, field* headers, size_t n,
                                              bytes* chunks, size_t chunk_count);
const void* ON(http_filter_new)(const void* module, void* filter);
int ON(http_filter_request_headers)(void* filter, const void* module, bool end);
int ON(http_filter_request_body)(void* filter, const void* module, bool end);
int ON(http_filter_request_trailers)(void* filter, const void* module);
int ON(http_filter_response_headers)(void* filter, const void* module, bool end);
int ON(http_filter_response_body)(void* filter, const void* module, bool end);
int ON(http_filter_response_trailers)(void* filter, const void* module);
void ON(http_filter_scheduled)(void* filter, const void* module, uint64_t event);
void ON(http_filter_stream_complete)(void* filter, const void* module);
void ON(http_filter_destroy)(const void* module);

// Hooks that Envoy requires.
const void* ON(http_filter_per_route_config_new)(bytes name, bytes text);
void ON(http_filter_per_route_config_destroy)(const void* module);
void ON(http_filter_http_callout_done)(void* filter, const void* module, uint64_t id, int failed, field* headers, size_t n,
                                       bytes* chunks, size_t chunk_count);
void ON(http_filter_http_stream_headers)(void* filter, const void* module, uint64_t id, field* headers, size_t n, bool end);
void ON(http_filter_http_stream_data)(void* filter, const void* module, uint64_t id, const bytes* chunks, size_t n, bool end);
void ON(http_filter_http_stream_trailers)(void* filter, const void* module, uint64_t id, field* trailers, size_t n);
void ON(http_filter_http_stream_complete)(void* filter, const void* module, uint64_t id);
void ON(http_filter_http_stream_reset)(void* filter, const void* module, uint64_t id, int reason);
void ON(http_filter_downstream_above_write_buffer_high_watermark)(void* filter, const void* module);
void ON(http_filter_downstream_below_write_buffer_low_watermark)(void* filter, const void* module);
#pragma GCC visibility pop
