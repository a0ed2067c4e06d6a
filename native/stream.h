// A stream is Envoy's filter for a request, and its context in a VM.
#pragma once
#include "vm.h"

typedef enum { REQUEST_PHASE, RESPONSE_PHASE, ENDED } phase;

// What a call into a VM wants done with a stream. It is done after the call, without the VM's lock:
// Envoy calls the filter again from within.
typedef enum { NOTHING, RESUME, REPLY, FAIL } order;

typedef struct {
  uint32_t status;
  bytes body, details;
  int n;
  field headers[]; // which point behind themselves
} reply;

struct stream {
  stream* next; // in its place of streams
  vm* vm;
  root* root;
  config* config;
  uint32_t id, generation;
  void* filter; // NULL when Envoy has destroyed it
  phase phase;
  bool answered;
  bool read; // the plugin has read a header of the response

  bool paused;
  stream **paused_at, *next_paused;
  void* scheduler; // made with the first pause

  order order;
  reply* reply;
  stream* next_ordered;
};

// stream_add gives a stream its id, by which stream_find finds it until stream_remove.
void stream_add(vm*, stream*);
void stream_remove(stream*);
stream* stream_find(vm*, uint32_t id);
// A paused stream waits until a call into the VM resumes or answers it.
void stream_pause(stream*);
void stream_unpause(stream*);
// stream_take_order returns what is wanted done, which is then no longer wanted.
order stream_take_order(stream*);
void stream_reply(stream*, uint32_t status, const field* headers, int n, bytes body, bytes details, int32_t grpc_status);
void stream_resume(stream*);
// stream_wake has a paused stream's worker look into the VM's mail.
static inline void stream_wake(stream* s) { CB(http_filter_scheduler_commit)(s->scheduler, 0); }
// streams_fail has those end that wait for a VM that has failed.
void streams_fail(vm*);
