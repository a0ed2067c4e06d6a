// The runtime for C that wasm2c generates. It replaces wabt's own header, whose runtime has a
// single trap target and signal handler for the process, while Envoy has threads and handlers of
// its own. Here a trap belongs to a VM, and nothing handles signals.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define wasm_rt_memcpy __builtin_memcpy

// No access is compared with the memory's size, because runtime.c reserves every address that an
// access can reach. (The name is wabt's, which finds accesses out of bounds with a signal handler.)
#define WASM_RT_MEMCHECK_SIGNAL_HANDLER 1
// wabt's own check counts calls. STACK_CHECK below compares the stack pointer.
#define WASM_RT_USE_STACK_DEPTH_COUNT 0

typedef enum {
  WASM_RT_TRAP_NONE,
  WASM_RT_TRAP_OOB,
  WASM_RT_TRAP_INT_OVERFLOW,
  WASM_RT_TRAP_DIV_BY_ZERO,
  WASM_RT_TRAP_INVALID_CONVERSION,
  WASM_RT_TRAP_UNREACHABLE,
  WASM_RT_TRAP_CALL_INDIRECT,
  WASM_RT_TRAP_UNCAUGHT_EXCEPTION,
  WASM_RT_TRAP_EXHAUSTION,
  TRAP_NO_MEMORY,
  TRAP_EXIT, // the module has called proc_exit, as Go's runtime does after a panic
} wasm_rt_trap_t;

// wasm_rt_trap ends the call into the VM that runs in this thread.
__attribute__((noreturn, cold)) void wasm_rt_trap(wasm_rt_trap_t);

// During a call into a VM, a register has the address of its memory: see RUN. So no access to memory has to read the address, or
// to have a distance of four bytes in its instruction. Functions that Envoy calls leave the register as it was.
#if defined(__x86_64__)
register char* stack_pointer __asm__("rsp");
register uint8_t* wasm_memory __asm__("r15");
#elif defined(__aarch64__)
register char* stack_pointer __asm__("sp");
register uint8_t* wasm_memory __asm__("x28");
#else
#error "the native form is for amd64 and arm64"
#endif

// The stack pointer is in a register, so the check is a single comparison. The limit lies right
// before the instance: see vm.h.
#define STACK_CHECK(instance) \
  if (UNLIKELY(stack_pointer < ((char**)(instance))[-1])) wasm_rt_trap(WASM_RT_TRAP_EXHAUSTION);

typedef enum { WASM_RT_I32, WASM_RT_I64, WASM_RT_F32, WASM_RT_F64, WASM_RT_FUNCREF, WASM_RT_EXTERNREF } wasm_rt_type_t;

typedef void (*wasm_rt_function_ptr_t)(void);
typedef struct {
  uint32_t func_type;
  wasm_rt_function_ptr_t func;
  void* module_instance;
} wasm_rt_funcref_t;
static const wasm_rt_funcref_t wasm_rt_funcref_null_value = {0, NULL, NULL};

typedef void* wasm_rt_externref_t;
static const wasm_rt_externref_t wasm_rt_externref_null_value = NULL;

typedef struct {
  uint8_t* data;
  uint32_t pages, max_pages;
  uint32_t size;
} wasm_rt_memory_t;

typedef struct {
  wasm_rt_funcref_t* data;
  uint32_t max_size, size;
} wasm_rt_funcref_table_t;

typedef struct {
  wasm_rt_externref_t* data;
  uint32_t max_size, size;
} wasm_rt_externref_table_t;

static inline bool wasm_rt_is_initialized(void) { return true; }

// wasm_rt_register_func_type returns the same number for equal types. It is called before there are
// threads.
uint32_t wasm_rt_register_func_type(uint32_t params, uint32_t results, ...);

// memory_reserve allocates an object of size zero bytes, and reserves addresses for a memory right
// behind it. It returns NULL if it can't.
void* memory_reserve(size_t size);
void memory_release(void* object, size_t size);

void wasm_rt_allocate_memory(wasm_rt_memory_t*, uint32_t initial_pages, uint32_t max_pages);
uint32_t wasm_rt_grow_memory(wasm_rt_memory_t*, uint32_t pages);
void wasm_rt_free_memory(wasm_rt_memory_t*);
void wasm_rt_allocate_funcref_table(wasm_rt_funcref_table_t*, uint32_t elements, uint32_t max_elements);
void wasm_rt_free_funcref_table(wasm_rt_funcref_table_t*);
