// Shared data of many keys, beside the same in an array: what a key has is what was set last.
//
//	shared SEED CALLS
#define main unused
#include "envoy.c"
#undef main
#include "calls.h"
#include "domain.h"

enum { keys = 20000, key_at = 4096, value_at = 8192, most_value = 600, results_at = 64, allocated_at = 1024 };

static struct {
  uint32_t size, cas;
  bool there;
  char value[most_value];
} want[keys];

static uint64_t state;
static uint32_t random_number(void) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return state >> 33;
}

// set_key writes the name of a page, or of another length, and returns its size.
static uint32_t set_key(char* to, uint32_t key) {
  if (key < 500) return key ? snprintf(to, 32, "%u", key) : 0;
  if (key % 5 == 0) return snprintf(to, 32, "weir:and a record %u", key);
  memcpy(to, "weir2::", 7);
  to[7] = 0, to[8] = key >> 8, to[9] = key;
  return 10;
}

int main(int n, char** args) {
  if (n != 3) return fprintf(stderr, "want a seed and the number of calls\n"), 2;
  state = strtoull(args[1], NULL, 10);
  int config_of_envoy, refused = 0;
  ON(program_init)();
  config* c = (config*)ON(http_filter_config_new)(&config_of_envoy, TEXT("shared"), TEXT("accepted"));
  vm* v = c->domain->vms[0];
  char* memory = (char*)vm_memory(v);
  uint32_t writes = 0; // their numbers begin with the first
  for (int i = atoi(args[2]); i > 0; i--) {
    const uint32_t key = random_number() % (random_number() % 2 ? keys : 500), key_size = set_key(memory + key_at, key);
    volatile uint32_t result = 99;
    if (random_number() % 2) {
      const uint32_t size = random_number() % most_value, number[] = {0, 0x7fffffff, want[key].cas}, cas = number[random_number() % 3];
      const bool fits = !want[key].there || !cas || cas == want[key].cas;
      for (uint32_t j = 0; j < size; j++) memory[value_at + j] = random_number();
      if (!RUN(v, result = Z_envZ_proxy_set_shared_data(v, key_at, key_size, value_at, size, cas)) || result != (fits ? OK : CAS_MISMATCH)) {
        return fprintf(stderr, "set of key %u: %u\n", key, result), 1;
      }
      refused += !fits;
      if (!fits) continue;
      want[key].there = true;
      want[key].size = size;
      want[key].cas = ++writes;
      memcpy(want[key].value, memory + value_at, size);
      continue;
    }
    uint32_t got[3]; // the address, the size and the number
    const bool ran = RUN(v, result = Z_envZ_proxy_get_shared_data(v, key_at, key_size, results_at, results_at + 4, results_at + 8));
    memcpy(got, memory + results_at, sizeof got);
    const bool same = result == OK ? want[key].there && got[1] == want[key].size && got[2] == want[key].cas &&
                                         memcmp(memory + allocated_at, want[key].value, got[1]) == 0
                                   : result == NOT_FOUND && !want[key].there;
    if (!ran || !same) return fprintf(stderr, "get of key %u: %u, %u bytes, number %u\n", key, result, got[1], got[2]), 1;
  }
  ON(http_filter_config_destroy)(c);
  printf("%u writes, %d refused\n", writes, refused);
}
