#include "metrics.h"

#include "calls.h"

enum { counter, gauge };
enum { most_labels = 8, missing = -1 };

// A metric has a number in the process. Metrics are never freed, because their names come from
// configurations and are few.
typedef struct {
  int kind;
  bytes full;                  // the plugin's name
  bytes name;                  // without labels
  bytes label[most_labels], value[most_labels];
  int labels;
} metric;

static pthread_mutex_t defining = PTHREAD_MUTEX_INITIALIZER;
static metric* _Atomic known[1 << 14]; // by number
static uint32_t count;

// metric_ids are Envoy's ids of metrics in a configuration. They can be defined only while the
// configuration is made.
struct metric_ids {
  uint32_t size;
  struct {
    bool defined;
    size_t id;
  } of[];
};

void metrics_free(config* c) { free(c->metrics); }

static bytes copied(bytes b) {
  char* data = malloc(b.size + 1);
  memcpy(data, b.data, b.size);
  return (bytes){data, b.size};
}

// parse separates the labels from a metric's name.
static metric* parse(int kind, bytes from) {
  static const char is[] = "=.=", end[] = ";.;";
  metric* m = calloc(1, sizeof *m);
  *m = (metric){.kind = kind, .full = copied(from)};
  const char *at = m->full.data, *last = at + m->full.size;
  char* name = malloc(from.size + 1);
  const char* dot = memchr(at, '.', from.size);
  size_t size = 0;
  if (dot) {
    size = dot + 1 - at;
    memcpy(name, at, size);
    at = dot + 1;
  }
  while (m->labels < most_labels) {
    const char* mid = memmem(at, last - at, is, 3);
    const char* stop = mid ? memmem(mid + 3, last - mid - 3, end, 3) : NULL;
    if (!stop) break;
    m->label[m->labels] = (bytes){at, mid - at};
    m->value[m->labels++] = (bytes){mid + 3, stop - mid - 3};
    at = stop + 3;
  }
  memcpy(name + size, at, last - at);
  m->name = (bytes){name, size + (last - at)};
  return m;
}

static int find(int kind, bytes full) {
  for (uint32_t i = 0; i < count; i++) {
    const metric* m = known[i];
    if (m->kind == kind && m->full.size == full.size && memcmp(m->full.data, full.data, full.size) == 0) return i;
  }
  return missing;
}

static bool same(bytes a, bytes b) { return a.size == b.size && memcmp(a.data, b.data, a.size) == 0; }

// alike reports whether two metrics differ only in the values of their labels. Envoy has one id for
// both.
static bool alike(const metric* a, const metric* b) {
  bool is = a->kind == b->kind && same(a->name, b->name) && a->labels == b->labels;
  for (int i = 0; is && i < a->labels; i++) is = same(a->label[i], b->label[i]);
  return is;
}

static void define_in(config* c, uint32_t number) {
  const uint32_t had = c->metrics ? c->metrics->size : 0;
  if (number >= had) {
    const uint32_t size = count + count / 2 + 64;
    c->metrics = realloc(c->metrics, sizeof *c->metrics + size * sizeof c->metrics->of[0]);
    memset(&c->metrics->of[had], 0, (size - had) * sizeof c->metrics->of[0]);
    c->metrics->size = size;
  }
  if (c->metrics->of[number].defined) return;
  metric* m = known[number];
  for (uint32_t i = 0; i < count && i < c->metrics->size; i++) {
    if (c->metrics->of[i].defined && alike(known[i], m)) {
      c->metrics->of[number] = c->metrics->of[i];
      return;
    }
  }
  size_t id;
  const int refused = m->kind == counter ? CB(http_filter_config_define_counter)(c->envoy, m->name, m->label, m->labels, &id)
                                         : CB(http_filter_config_define_gauge)(c->envoy, m->name, m->label, m->labels, &id);
  c->metrics->of[number].defined = !refused;
  c->metrics->of[number].id = id;
}

u32 Z_envZ_proxy_define_metric(vm* v, u32 kind, u32 name_at, u32 name_size, u32 number_at) {
  if (kind > gauge) return BAD_ARGUMENT;
  const bytes name = vm_bytes(v, name_at, name_size);
  vm_bytes(v, number_at, 4); // trap here, and not with the lock
  pthread_mutex_lock(&defining);
  int number = find(kind, name);
  if (number == missing && count < sizeof known / sizeof known[0]) {
    known[count] = parse(kind, name);
    number = count++;
  }
  // A restarted VM defines metrics that its configurations already have.
  if (number != missing && v->starting && v->index < 0) define_in(v->starting, number);
  pthread_mutex_unlock(&defining);
  if (number == missing) {
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&told)) say(LOG_ERROR, "weir: the process has too many metrics: rules that are new have none until it starts again");
    return BAD_ARGUMENT;
  }
  vm_put32(v, number_at, number + 1); // 0 is no metric
  return OK;
}

static bool defines(const config* c, uint32_t number) {
  return c && c->metrics && number - 1 < c->metrics->size && c->metrics->of[number - 1].defined;
}

// definer returns the configuration by which Envoy knows a metric, or NULL. Ticks go through any
// configuration of the domain, and others may have other metrics than the root's own.
static const config* definer(vm* v, uint32_t number) {
  if (defines(v->through, number)) return v->through;
  const config* own = v->root ? domain_config(v->domain, v->root->id) : NULL;
  return defines(own, number) ? own : NULL;
}

u32 Z_envZ_proxy_increment_metric(vm* v, u32 number, u64 by) {
  const config* c = definer(v, number);
  if (!c) return NOT_FOUND;
  metric* m = known[number - 1];
  CB(http_filter_config_increment_counter)(c->envoy, c->metrics->of[number - 1].id, m->value, m->labels, by);
  return OK;
}

u32 Z_envZ_proxy_record_metric(vm* v, u32 number, u64 value) {
  const config* c = definer(v, number);
  if (!c) return NOT_FOUND;
  metric* m = known[number - 1];
  CB(http_filter_config_set_gauge)(c->envoy, c->metrics->of[number - 1].id, m->value, m->labels, value);
  return OK;
}
