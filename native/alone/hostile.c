// A hostile plugin. It makes host calls with invalid arguments, and with lists, paths and names that are
// nearly valid. A sanitizer reports if the host reads or writes memory outside of the plugin's.
//
//	hostile SEED CALLS
#define main unused
#include "envoy.c"
#undef main
#include "calls.h"
#include "domain.h"
#include "stream.h"

static uint64_t state;

static uint32_t random_number(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state >> 16;
}

enum { memory_size = 2 << 16, list_at = 4096, path_at = 16384, body_at = 32768 };
static const char list[] = "\2\0\0\0\7\0\0\0\3\0\0\0\5\0\0\0\1\0\0\0:method\0GET\0:path\0/\0";
static const char paths[][48] = {"source\0address", "request\0headers\0x-user", "response\0headers\0date", "request\0total_size", "route_name",
                                    "weir.weir_rule=.=per-user;.;requests_total", "weir.=.=;.;=.=;.;", ":authority", "x-user", ""};

static void fill(char* memory) {
  memcpy(memory + list_at, list, sizeof list);
  memcpy(memory + path_at, paths[random_number() % (sizeof paths / sizeof *paths)], sizeof *paths);
  for (int i = random_number() % 4; i; i--) memory[list_at + random_number() % sizeof list] = random_number() % 3 ? random_number() % 40 : 255;
  if (random_number() % 4 == 0) memory[path_at + random_number() % sizeof *paths] = random_number();
}

static uint32_t address(void) {
  switch (random_number() % 12) {
    case 0: return random_number();
    case 1: return memory_size - random_number() % 16;
    case 2: return -(random_number() % 16);
    case 3: case 4: case 5: return list_at;
    case 6: return body_at;
    default: return path_at;
  }
}

static uint32_t size(void) {
  switch (random_number() % 10) {
    case 0: return random_number();
    case 1: return memory_size - random_number() % 32;
    case 2: case 3: case 4: return sizeof list - 1;
    case 5: return 0;
    default: return random_number() % 32;
  }
}

// to returns an address where a result may go.
static uint32_t to(void) { return random_number() % 32 ? 64 + 8 * (random_number() % 8) : address(); }

// parse parses a list in a block of exactly its size. All addresses after a VM's memory are
// reserved, so no sanitizer notices a read there.
static void parse(const char* at, size_t size) {
  char* block = malloc(size);
  memcpy(block, at, size);
  field headers[most_pairs];
  volatile char read = 0;
  for (int n = pairs((bytes){block, size}, headers, most_pairs); n > 0; n--) {
    const field h = headers[n - 1];
    for (size_t i = 0; i < h.key.size; i++) read += h.key.data[i];
    for (size_t i = 0; i < h.value.size; i++) read += h.value.data[i];
  }
  free(block);
}

static void call(vm* v) {
  const uint32_t a = address(), n = size(), b = address(), m = size(), kind = random_number() % 9;
  switch (random_number() % 21) {
    case 0: RUN(v, Z_envZ_proxy_get_header_map_value(v, kind, a, n, to(), to())); break;
    case 1: RUN(v, Z_envZ_proxy_get_header_map_pairs(v, kind, to(), to())); break;
    case 2: RUN(v, Z_envZ_proxy_replace_header_map_value(v, kind, a, n, b, m)); break;
    case 3: RUN(v, Z_envZ_proxy_get_property(v, a, n, to(), to())); break;
    case 4: RUN(v, Z_envZ_proxy_get_buffer_bytes(v, kind, n, m, to(), to())); break;
    case 5: RUN(v, Z_envZ_proxy_set_buffer_bytes(v, kind, random_number() % 2, n, b, m)); break;
    case 6: RUN(v, Z_envZ_proxy_send_local_response(v, 429, a, n, b, m, address(), size(), random_number() % 20 - 1)); break;
    case 7: RUN(v, Z_envZ_proxy_get_shared_data(v, a, n, to(), to(), to())); break;
    case 8: RUN(v, Z_envZ_proxy_set_shared_data(v, a, n, b, m, random_number() % 4)); break;
    case 9: RUN(v, Z_envZ_proxy_define_metric(v, kind, a, n, to())); break;
    case 10: RUN(v, Z_envZ_proxy_increment_metric(v, n, a)); break;
    case 11: RUN(v, Z_envZ_proxy_record_metric(v, n, a)); break;
    case 12: RUN(v, Z_envZ_proxy_http_call(v, path_at, random_number() % 32, a, n, b, m, 0, random_number() % 8 == 0, 1000, to())); break;
    case 13: RUN(v, Z_envZ_proxy_set_effective_context(v, n)); break;
    case 14: RUN(v, Z_envZ_proxy_continue_stream(v, kind)); break;
    case 15: RUN(v, Z_envZ_proxy_log(v, kind, a, n)); break;
    case 16: RUN(v, Z_wasi_snapshot_preview1Z_fd_write((void*)v, kind, a, n % 64, to())); break;
    case 18: RUN(v, Z_envZ_proxy_remove_header_map_value(v, kind, a, n)); break;
    case 19: RUN(v, Z_envZ_proxy_call_foreign_function(v, a, n, b, m, to(), to())); break;
    case 20: RUN(v, Z_envZ_proxy_set_property(v, a, n, b, m)); break;
    case 17: RUN(v, Z_wasi_snapshot_preview1Z_random_get((void*)v, a, n)); break;
  }
}

int main(int n, char** args) {
  if (n != 3) return fprintf(stderr, "want a seed and the number of calls\n"), 2;
  state = strtoull(args[1], NULL, 10) + 0x9e3779b97f4a7c15;
  quiet = true;
  int config_of_envoy, traps = 0;
  ON(program_init)();
  config* c = (config*)ON(http_filter_config_new)(&config_of_envoy, TEXT("hostile"), TEXT("accepted"));
  vm* v = c->domain->vms[0];
  const int calls = atoi(args[2]);
  for (int i = 0; i < calls; i++) {
    filter f = {.maps = {[REQUEST_HEADERS] = request, [RESPONSE_HEADERS] = response}, .piece = TEXT("{\"items\": []}")};
    stream* s = (stream*)ON(http_filter_new)(c, &f);
    ON(http_filter_request_headers)(&f, s, true);
    if (random_number() % 2) s->phase = RESPONSE_PHASE;
    for (int j = random_number() % 8; j >= 0; j--, i++) {
      fill((char*)vm_memory(v));
      pthread_mutex_lock(&v->lock);
      v->stream = random_number() % 8 ? s : NULL;
      v->root = s->root;
      v->through = c;
      v->starting = random_number() % 8 ? NULL : c;
      parse((char*)vm_memory(v) + list_at, random_number() % (sizeof list + 1));
      uint8_t* const mark = (uint8_t*)(uintptr_t)(4096 + i); // what the register is to Envoy
      wasm_memory = mark;
      call(v);
      if (wasm_memory != mark) return fprintf(stderr, "a call has changed the register\n"), 1;
      traps += v->failed;
      v->failed = false;
      v->starting = NULL;
      pthread_mutex_unlock(&v->lock);
    }
    ON(http_filter_destroy)(s);
    if (scheduled) {
      scheduled = false;
      ON(http_filter_config_scheduled)(&config_of_envoy, c, 0);
    }
  }
  ON(http_filter_config_destroy)(c);
  printf("%d calls, %d traps\n", calls, traps);
}
