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

#define TIMED(hook, calls)                        \
  do {                                            \
    if (displaces) displace();                    \
    const uint64_t begun = ticks();               \
    calls;                                        \
    took[hook][asked_for % most] = ticks() - begun; \
  } while (0)

static void ask_cold(const void* module, uint32_t users) {
  static uint32_t random = 1;
  random = random * 1664525u + 1013904223u;
  char user[16];
  filter f = {.maps = {[REQUEST_HEADERS] = request, [RESPONSE_HEADERS] = response}, .piece = TEXT("{\"items\": []}")};
  f.maps[REQUEST_HEADERS].headers[request.n - 1].value = (bytes){user, snprintf(user, sizeof user, "user-%06d", (random >> 8) % users)};
  const void* m;
  int action;
  TIMED(0, m = ON(http_filter_new)(module, &f); action = ON(http_filter_request_headers)(&f, m, true));
  if (action == HEADERS_CONTINUE) {
    TIMED(1, ON(http_filter_response_headers)(&f, m, false));
    TIMED(2, ON(http_filter_response_body)(&f, m, true));
  }
  TIMED(3, ON(http_filter_stream_complete)(&f, m); ON(http_filter_destroy)(m));
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
