// The memory and the tables of instances.
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include "wasm-rt.h"

enum { page = 65536, most_types = 64, most_values = 16 };

// The most memory of a VM. Envoy's wasm host allows 4 GiB, but the plugin needs megabytes, so more
// than 1 GiB is a defect.
static const size_t most_memory = 1ull << 30;

// An address and an offset have 32 bits each, so an access reaches no further than this. The VM may
// read and write all of it, so no access is compared with the memory's size, and none faults. An
// access beyond that size finds zeros, and can't reach other memory. Pages that are never written
// take no memory.
static const size_t reserved = (1ull << 33) + page;

// Types are equal if they have the same number of parameters, and the same kinds of parameters and
// results.
static struct {
  uint32_t params, size;
  wasm_rt_type_t values[most_values];
} types[most_types];
static uint32_t type_count;

uint32_t wasm_rt_register_func_type(uint32_t params, uint32_t results, ...) {
  if (params + results > most_values || type_count == most_types) abort(); // possible only when the module is loaded
  types[type_count].params = params;
  types[type_count].size = params + results;
  va_list list;
  va_start(list, results);
  for (uint32_t i = 0; i < params + results; i++) types[type_count].values[i] = va_arg(list, wasm_rt_type_t);
  va_end(list);
  uint32_t i = 0;
  while (memcmp(&types[i], &types[type_count], sizeof types[i]) != 0) i++;
  if (i == type_count) type_count++;
  return i + 1;
}

// A memory lies at a multiple of this, which is the largest page of any kernel. No object has more bytes.
enum { lead = 65536 };

void* memory_reserve(size_t size) {
  if (size > lead) abort(); // possible only with the first VM
  char* start = mmap(NULL, lead + reserved, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE | MAP_NORESERVE, -1, 0);
  return start == MAP_FAILED ? NULL : start + lead - size;
}

void memory_release(void* object, size_t size) { munmap((char*)object + size - lead, lead + reserved); }

void wasm_rt_allocate_memory(wasm_rt_memory_t* m, uint32_t initial_pages, uint32_t max_pages) {
  const uint32_t most = most_memory / page;
  *m = (wasm_rt_memory_t){.data = wasm_memory, .max_pages = max_pages < most ? max_pages : most};
  if (wasm_rt_grow_memory(m, initial_pages) == (uint32_t)-1) wasm_rt_trap(TRAP_NO_MEMORY);
}

uint32_t wasm_rt_grow_memory(wasm_rt_memory_t* m, uint32_t delta) {
  const uint32_t before = m->pages;
  if (delta > m->max_pages - before) return -1;
  m->pages += delta;
  m->size = m->pages * page;
  return before;
}

void wasm_rt_free_memory(wasm_rt_memory_t* m) {
  // The next instance must find zeros. Where the process has its memory locked, the kernel makes none.
  if (m->data && madvise(m->data, reserved, MADV_DONTNEED) != 0) memset(m->data, 0, m->size);
}

void wasm_rt_allocate_funcref_table(wasm_rt_funcref_table_t* t, uint32_t elements, uint32_t max_elements) {
  *t = (wasm_rt_funcref_table_t){.data = calloc(elements, sizeof *t->data), .size = elements, .max_size = max_elements};
  if (t->data == NULL) wasm_rt_trap(TRAP_NO_MEMORY);
}

void wasm_rt_free_funcref_table(wasm_rt_funcref_table_t* t) { free(t->data); }
