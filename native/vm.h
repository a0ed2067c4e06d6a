// A VM is an instance of the plugin: one for each worker and vm_id, and a short-lived instance to
// try a configuration. A VM belongs to no thread. Its lock decides who runs in it: its worker, or
// the main thread for ticks and answers to callouts. docs/architecture.md gives the reasons.
#pragma once
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>

#include "abi.h"
#include "weir.h"

typedef struct Z_env_instance_t vm; // the host, as the translated module calls it
typedef struct domain domain;
typedef struct config config;
typedef struct root root;
typedef struct stream stream;
typedef struct answer answer;
typedef struct mail mail;

// A root is a configuration's context in a VM.
struct root {
  root* next;
  uint32_t id;
  uint32_t period_millis;    // of ticks; 0 for none
  _Atomic int64_t due_nanos; // time of the next tick; 0 for never
  bool leaving;              // proxy_on_done was called, and it still has work
};

// A list of a stream's headers.
typedef struct {
  stream* of; // NULL if there is none
  header_map kind;
  size_t n, room;
  field* headers;
} listed;

struct Z_env_instance_t {
  pthread_mutex_t lock;
  domain* domain;
  int index; // of the worker; -1 tries a configuration
  void (*on_failure)(vm*); // handles a trap's effect on streams and mail

  // The context of the running call.
  root* root;
  stream* stream;  // NULL in a root context
  config* through; // a configuration that is alive in Envoy now
  config* starting;
  answer* answer;
  listed listed;
  int64_t now; // 0 until the call asks for the time
  bool works; // it is a tick, an answer or an end, whose work the plugin bounds by the clock

  root* roots;
  stream* streams[256]; // by id
  stream *paused, *ordered;
  mail *mail, **last_mail;
  uint32_t next_stream, next_callout;

  // A VM that has trapped stays failed until FAIL_RELOAD or a new configuration makes a new
  // instance.
  bool failed;
  int64_t failed_nanos;
  uint32_t generation;
  wasm_rt_trap_t trap;
  pthread_mutex_t* held; // lock of a host call that may trap

  jmp_buf caught;
  char* stack_limit; // STACK_CHECK reads it right before the instance
  Z_weir_instance_t instance;
};
_Static_assert(offsetof(vm, instance) == offsetof(vm, stack_limit) + sizeof(char*), "STACK_CHECK");
_Static_assert(sizeof(vm) == offsetof(vm, instance) + sizeof(Z_weir_instance_t), "the memory follows the instance");

// vm_memory returns the module's memory.
static inline uint8_t* vm_memory(vm* v) { return (uint8_t*)(v + 1); }

// RUN evaluates an expression inside the VM, whose lock the caller holds. It returns false if that
// trapped.
#define RUN(v, expression)                                                                                                  \
  ({                                                                                                                        \
    uint8_t* const outer = wasm_memory;                                                                                     \
    wasm_memory = vm_memory(v);                                                                                             \
    vm_enter(v);                                                                                                            \
    const bool ran = _setjmp((v)->caught) == 0 ? ((void)(expression), vm_leave(v), true) : (vm_trapped(v), false);         \
    wasm_memory = outer;                                                                                                    \
    ran;                                                                                                                    \
  })

void vm_enter(vm*);
void vm_leave(vm*);
void vm_trapped(vm*);

bool vm_start(vm*);
void vm_stop(vm*);
// vm_restart replaces a failed instance.
bool vm_restart(vm*);
// vm_configure makes a root with an id for a configuration of a size, and reports whether the
// plugin accepts it.
bool vm_configure(vm*, config*, uint32_t id, size_t size);
// vm_done tells a root that its configuration has ended.
void vm_done(vm*, root*);
void vm_tick(vm*, root*);
root* vm_root(vm*, uint32_t id);
void vm_remove(vm*, root*);

// vm_bytes returns bytes of the module's memory. It traps if they reach beyond it.
static inline bytes vm_bytes(vm* v, uint32_t at, uint32_t size) {
  if ((uint64_t)at + size > v->instance.w2c_memory.size) wasm_rt_trap(WASM_RT_TRAP_OOB);
  return (bytes){(char*)vm_memory(v) + at, size};
}
static inline void vm_put(vm* v, uint32_t at, const void* data, uint32_t size) {
  memcpy((char*)vm_bytes(v, at, size).data, data, size);
}
static inline void vm_put32(vm* v, uint32_t at, uint32_t value) { vm_put(v, at, &value, sizeof value); }

// copy copies bytes to an address, sets copied to the copy, and returns the address after it.
static inline char* copy(char* to, bytes from, bytes* copied) {
  if (from.size) memcpy(to, from.data, from.size);
  *copied = (bytes){to, from.size};
  return to + from.size;
}

int64_t now_nanos(int clock);
void say(log_level level, const char* format, ...) __attribute__((format(printf, 2, 3)));
