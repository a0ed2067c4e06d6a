// Requests of the native form, with other code and data between Envoy's hooks as in Envoy. It prints the
// median time of each hook in nanoseconds.
//
//	cold CONFIGURATION REQUESTS USERS
//
// Requests are of a random user each. Every user has asked twice before, on average.
#define main unused
#include "envoy.c"
#undef main
#include <sys/syscall.h>
#include <unistd.h>

void displace(void); // bench/cold makes it

#if defined(__x86_64__)
static uint64_t ticks(void) { return __builtin_ia32_rdtsc(); }
#else
static uint64_t ticks(void) {
  uint64_t t;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
  return t;
}
#endif

// The host's clock stands still here, so the time comes from the kernel.
static uint64_t system_nanos(void) {
  struct timespec t;
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

enum { most = 1 << 16 };
static const char* const names[] = {"request headers", "response headers", "response body", "end"};
static uint32_t took[4][most];
static int asked_for;
static bool displaces;

// A request as ask_cold makes it.
typedef struct {
  filter filter;
  const void *module, *stream;
  bool goes_on;
} asked;

static inline void run(asked* a, int hook) {
  filter* f = &a->filter;
  switch (hook) {
    case 0:
      a->stream = ON(http_filter_new)(a->module, f);
      a->goes_on = ON(http_filter_request_headers)(f, a->stream, true) == HEADERS_CONTINUE;
      break;
    case 1: ON(http_filter_response_headers)(f, a->stream, false); break;
    case 2: ON(http_filter_response_body)(f, a->stream, true); break;
    case 3:
      ON(http_filter_stream_complete)(f, a->stream);
      ON(http_filter_destroy)(a->stream);
  }
}

// bench/cold -lines counts in run_cold.
__attribute__((noinline)) void run_cold(asked* a, int hook) { run(a, hook); }

static void ask_cold(const void* module, uint32_t users) {
  static uint32_t random = 1;
  random = random * 1664525u + 1013904223u;
  char user[16];
  asked a = {.filter = {.maps = {[REQUEST_HEADERS] = request, [RESPONSE_HEADERS] = response}, .piece = TEXT("{\"items\": []}")}, .module = module};
  a.filter.maps[REQUEST_HEADERS].headers[request.n - 1].value = (bytes){user, snprintf(user, sizeof user, "user-%06d", (random >> 8) % users)};
  for (int hook = 0; hook < 4; hook++) {
    if ((hook == 1 || hook == 2) && !a.goes_on) continue;
    if (!displaces) {
      run(&a, hook);
      continue;
    }
    displace();
    const uint64_t begun = ticks();
    run_cold(&a, hook);
    took[hook][asked_for % most] = ticks() - begun;
  }
  asked_for++;
}

static int compare(const void* a, const void* b) { return (*(uint32_t*)a > *(uint32_t*)b) - (*(uint32_t*)a < *(uint32_t*)b); }

int main(int n, char** args) {
  if (n != 4 || atoi(args[2]) < 1 || atoi(args[3]) < 1) return fprintf(stderr, "want a configuration and the numbers of requests and users\n"), 2;
  int config;
  ON(program_init)();
  const void* module = ON(http_filter_config_new)(&config, TEXT("cold"), (bytes){args[1], strlen(args[1])});
  if (!module) return 1;
  const int users = atoi(args[3]), before = 2 * users;
  uint64_t nanos_before, ticks_before;
  for (int i = 0; i < before + atoi(args[2]); i++) {
    if (i == before) {
      displaces = true;
      asked_for = 0;
      nanos_before = system_nanos();
      ticks_before = ticks();
    }
    nanos += displaces ? 200000 : 20000;
    ask_cold(module, users);
    if (scheduled || i % 500 == 0) {
      scheduled = false;
      ON(http_filter_config_scheduled)(&config, module, 0);
    }
  }
  const double tick = (double)(system_nanos() - nanos_before) / (ticks() - ticks_before);
  const int count = asked_for < most ? asked_for : most;
  for (int i = 0; i < 4; i++) {
    qsort(took[i], count, sizeof took[i][0], compare);
    printf("%s\t%.0f\n", names[i], took[i][count / 2] * tick);
  }
  ON(http_filter_config_destroy)(module);
}
