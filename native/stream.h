// A stream is Envoy's filter for a request, and its context in a VM.
#pragma once
#include "vm.h"

typedef enum { REQUEST_PHASE, RESPONSE_PHASE, ENDED } phase;

// An action that a call into a VM requests for a stream. It is performed after the call, without
// the VM's lock, because Envoy then calls the filter again.
typedef enum { NOTHING, RESUME, REPLY, FAIL } order;

typedef struct {
  uint32_t status;
  bytes body, details;
  int n;
  field headers[]; // their texts follow the array
} reply;

struct stream {
  stream* next; // in its place of vm.streams
  vm* vm;
  root* root;
  config* config;
  uint32_t id, generation;
  void* filter; // NULL after Envoy has destroyed it
  phase phase;
  bool over; // the VM has no context of it: nothing is left to do
  bool answered;
  bool read; // the plugin has read a header of the response

  // Headers for the response: for each its sizes, name and value. They begin in the memory after
  // the stream.
  char* kept;
  size_t kept_size, kept_room;

  bool paused;
  stream **paused_at, *next_paused;
  void* scheduler; // created at the first pause

  order order;
  reply* reply;
  stream* next_ordered;
};

stream* stream_new(config*, vm*, void* filter);
void stream_free(stream*);
// find_field returns the index of the first header with a name, starting at an index; n if there is
// none.
size_t find_field(const field*, size_t n, bytes name, size_t from);
// stream_keep keeps a header for the response. stream_decorate gives the response the kept headers,
// each in place of those of its name.
void stream_keep(stream*, bytes name, bytes value);
void stream_decorate(stream*);
// stream_add gives a stream its id. stream_find finds it by the id until stream_remove.
void stream_add(vm*, stream*);
void stream_remove(stream*);
stream* stream_find(vm*, uint32_t id);
// A paused stream waits until a call into the VM resumes or answers it.
void stream_pause(stream*);
void stream_unpause(stream*);
// stream_take_order returns the requested action, and clears it.
order stream_take_order(stream*);
void stream_reply(stream*, uint32_t status, const field* headers, int n, bytes body, bytes details, int32_t grpc_status);
void stream_resume(stream*);
// stream_wake makes a paused stream's worker read the VM's mail.
static inline void stream_wake(stream* s) { CB(http_filter_scheduler_commit)(s->scheduler, 0); }
// streams_fail ends the streams that wait for a failed VM.
void streams_fail(vm*);
