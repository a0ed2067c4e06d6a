// The system calls of Go's runtime.
#include <sys/random.h>
#include <time.h>

#include "vm.h"

typedef struct Z_wasi_snapshot_preview1_instance_t wasi;

// The VM was passed as the instance of this module too.
static vm* of(wasi* w) { return (vm*)w; }

enum { invalid = 28, failed = 29 };

static u32 none(wasi* w, u32 count_at, u32 size_at) {
  vm_put32(of(w), count_at, 0);
  vm_put32(of(w), size_at, 0);
  return 0;
}

u32 Z_wasi_snapshot_preview1Z_args_get(wasi* w, u32 at, u32 data_at) { return 0; }
u32 Z_wasi_snapshot_preview1Z_args_sizes_get(wasi* w, u32 count_at, u32 size_at) { return none(w, count_at, size_at); }
u32 Z_wasi_snapshot_preview1Z_environ_get(wasi* w, u32 at, u32 data_at) { return 0; }
u32 Z_wasi_snapshot_preview1Z_environ_sizes_get(wasi* w, u32 count_at, u32 size_at) { return none(w, count_at, size_at); }

u32 Z_wasi_snapshot_preview1Z_clock_time_get(wasi* w, u32 clock, u64 precision, u32 at) {
  if (clock > 1) return invalid;
  const int64_t now = now_nanos(clock == 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC);
  vm_put(of(w), at, &now, sizeof now);
  return 0;
}

// Go's runtime writes the message of a panic in pieces.
u32 Z_wasi_snapshot_preview1Z_fd_write(wasi* w, u32 fd, u32 vectors_at, u32 n, u32 written_at) {
  vm* v = of(w);
  uint32_t written = 0;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t vector[2];
    memcpy(vector, vm_bytes(v, vectors_at + 8 * i, 8).data, 8);
    const bytes text = vm_bytes(v, vector[0], vector[1]);
    if (text.size) CB(log)(fd == 2 ? LOG_ERROR : LOG_INFO, text);
    written += vector[1];
  }
  vm_put32(v, written_at, written);
  return 0;
}

u32 Z_wasi_snapshot_preview1Z_random_get(wasi* w, u32 at, u32 size) {
  const bytes to = vm_bytes(of(w), at, size);
  for (size_t done = 0; done < size;) {
    const ssize_t n = getrandom((char*)to.data + done, size - done, 0);
    if (n < 0) return failed;
    done += n;
  }
  return 0;
}

// Nothing can happen in a VM while a call into it waits, so this returns at once.
u32 Z_wasi_snapshot_preview1Z_poll_oneoff(wasi* w, u32 in, u32 out, u32 n, u32 count_at) {
  vm_put32(of(w), count_at, 0);
  return 0;
}

u32 Z_wasi_snapshot_preview1Z_sched_yield(wasi* w) { return 0; }

void Z_wasi_snapshot_preview1Z_proc_exit(wasi* w, u32 code) { wasm_rt_trap(TRAP_EXIT); }
