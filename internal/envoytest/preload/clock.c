// LD_PRELOAD loads this into an Envoy. The Envoy's wall clock is then the time that a test has
// written to the file named by WEIR_TEST_CLOCK. Timers use the monotonic clock, which stays the
// machine's.
//
// No function here may allocate, because the memory allocator may ask for the time itself.
// libfaketime allocates, and an Envoy with it hangs at its start.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Two numbers in nanoseconds: a time at which the clock stands still, if it is not 0; else the
// difference to the machine's time.
static const int64_t *page;

__attribute__((constructor)) static void open_clock(void) {
	const char *name = getenv("WEIR_TEST_CLOCK");
	int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	if (file < 0) return;
	void *mapped = mmap(NULL, 2 * sizeof *page, PROT_READ, MAP_SHARED, file, 0);
	close(file);
	if (mapped != MAP_FAILED) page = mapped;
}

int clock_gettime(clockid_t id, struct timespec *t) {
	int failed = syscall(SYS_clock_gettime, id, t);
	if (failed || id != CLOCK_REALTIME || !page) return failed;
	int64_t now = __atomic_load_n(&page[0], __ATOMIC_SEQ_CST);
	if (now == 0) now = t->tv_sec * 1000000000LL + t->tv_nsec + __atomic_load_n(&page[1], __ATOMIC_SEQ_CST);
	t->tv_sec = now / 1000000000;
	t->tv_nsec = now % 1000000000;
	return 0;
}
