#include "vm.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

// The most bytes of its thread's stack that a call into a VM may use. V8 allows the same.
enum { most_stack = 1 << 20 };

static __thread vm* running __attribute__((tls_model("initial-exec")));

int64_t now_nanos(int clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

void say(log_level level, const char* format, ...) {
  char text[512];
  va_list list;
  va_start(list, format);
  int n = vsnprintf(text, sizeof text, format, list);
  va_end(list);
  CB(log)(level, (bytes){text, n < (int)sizeof text ? n : (int)sizeof text - 1});
}

void vm_enter(vm* v) {
  running = v;
  v->listed.of = NULL;
  v->now = 0;
  v->stack_limit = stack_pointer - most_stack;
}

void vm_leave(vm* v) {
  running = NULL;
  v->stream = NULL;
  v->root = NULL;
  v->works = false;
}

void wasm_rt_trap(wasm_rt_trap_t trap) {
  running->trap = trap;
  _longjmp(running->caught, 1);
}

static const char* reason(wasm_rt_trap_t trap) {
  switch (trap) {
    case WASM_RT_TRAP_OOB: return "it reached beyond its memory";
    case WASM_RT_TRAP_INT_OVERFLOW: return "integer overflow";
    case WASM_RT_TRAP_DIV_BY_ZERO: return "division by zero";
    case WASM_RT_TRAP_INVALID_CONVERSION: return "invalid conversion to an integer";
    case WASM_RT_TRAP_UNREACHABLE: return "unreachable code";
    case WASM_RT_TRAP_CALL_INDIRECT: return "an invalid indirect call";
    case WASM_RT_TRAP_EXHAUSTION: return "its stack is exhausted";
    case TRAP_NO_MEMORY: return "there is no memory for it";
    case TRAP_EXIT: return "it has ended itself";
    default: return "unknown";
  }
}

void vm_trapped(vm* v) {
  vm_leave(v);
  if (v->held) pthread_mutex_unlock(v->held);
  v->held = NULL;
  v->answer = NULL;
  v->starting = NULL;
  v->failed = true;
  v->failed_nanos = now_nanos(CLOCK_MONOTONIC);
  say(LOG_CRITICAL, "weir: the VM of worker %d has failed: %s", v->index, reason(v->trap));
  v->on_failure(v);
}

bool vm_start(vm* v) {
  memset(&v->instance, 0, sizeof v->instance);
  v->failed = false;
  v->generation++;
  return RUN(v, (Z_weir_instantiate(&v->instance, v, (void*)v), Z_weirZ__initialize(&v->instance)));
}

void vm_stop(vm* v) {
  while (v->roots) vm_remove(v, v->roots);
  Z_weir_free(&v->instance);
}

root* vm_root(vm* v, uint32_t id) {
  root* r = v->roots;
  while (r && r->id != id) r = r->next;
  return r;
}

void vm_remove(vm* v, root* r) {
  root** at = &v->roots;
  while (*at != r) at = &(*at)->next;
  *at = r->next;
  free(r);
}

bool vm_configure(vm* v, config* c, uint32_t id, size_t size) {
  root* r = calloc(1, sizeof *r);
  *r = (root){.next = v->roots, .id = id};
  v->roots = r;
  v->root = r;
  v->through = c;
  v->starting = c;
  volatile uint32_t accepted = 0; // a trap skips the assignment
  Z_weir_instance_t* w = &v->instance;
  bool ran = RUN(v, (Z_weirZ_proxy_on_context_create(w, r->id, 0), v->root = r,
                     accepted = Z_weirZ_proxy_on_vm_start(w, r->id, 0) && Z_weirZ_proxy_on_configure(w, r->id, size)));
  v->starting = NULL;
  return ran && accepted;
}

bool vm_restart(vm* v) {
  vm_stop(v);
  if (!vm_start(v)) return false;
  say(LOG_WARN, "weir: the VM of worker %d starts again", v->index);
  return true;
}

void vm_done(vm* v, root* r) {
  uint32_t done = 1;
  v->root = r;
  v->works = true;
  if (v->failed || !RUN(v, done = Z_weirZ_proxy_on_done(&v->instance, r->id))) return;
  if (done) {
    vm_remove(v, r);
  } else {
    r->leaving = true;
  }
}

void vm_tick(vm* v, root* r) {
  v->root = r;
  v->works = true;
  RUN(v, Z_weirZ_proxy_on_tick(&v->instance, r->id));
}
