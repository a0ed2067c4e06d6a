// The beginning and end of Envoy's configurations, and the main thread's work for them.
#include <time.h>

#include "callout.h"
#include "mail.h"
#include "metrics.h"
#include "shared.h"
#include "stream.h"

// ---- work of the main thread

static void tick_all(domain* d, config* through) {
  const int64_t now = now_nanos(CLOCK_MONOTONIC);
  for (int i = 0; i < d->workers; i++) {
    vm* v = d->vms[i];
    uint32_t due[64];
    int n = 0;
    pthread_mutex_lock(&v->lock);
    for (root* r = v->roots; r && n < 64; r = r->next) {
      if (r->due_nanos && r->due_nanos <= now) {
        r->due_nanos = now + r->period_millis * 1000000ll;
        due[n++] = r->id;
      }
    }
    pthread_mutex_unlock(&v->lock);
    while (n) mail_post(v, through, due[--n], 0, NULL);
  }
  d->posted = false;
  timer_wake();
}

static void serve(domain* d, config* through) {
  tick_all(d, through);
  callouts_send(d, through);
}

// ---- domains

static void failed(vm* v) {
  mail_drop(v);
  streams_fail(v);
}

static vm* vm_new(domain* d, int index) {
  vm* v = memory_reserve(sizeof *v);
  if (!v) {
    say(LOG_ERROR, "weir: there is no memory for a VM: each reserves 8 GiB of addresses");
    return NULL;
  }
  pthread_mutex_init(&v->lock, NULL);
  v->domain = d;
  v->index = index;
  v->on_failure = failed;
  mail_drop(v);
  return v;
}

static void vm_free(vm* v) {
  mail_drop(v);
  vm_stop(v);
  free(v->listed.headers);
  pthread_mutex_destroy(&v->lock);
  memory_release(v, sizeof *v);
}

static void domain_free(domain* d) {
  for (int i = 0; i < d->workers && d->vms[i]; i++) vm_free(d->vms[i]);
  callouts_drop(d);
  shared_free(d->shared);
  free(d->id);
  free(d);
}

static domain* domain_new(const char* id, size_t size) {
  const int workers = CB(get_concurrency)();
  domain* d = calloc(1, sizeof *d + workers * sizeof(vm*));
  d->id = strndup(id, size);
  d->shared = shared_new();
  d->workers = workers;
  for (int i = 0; i < workers; i++) {
    if (!(d->vms[i] = vm_new(d, i))) {
      domain_free(d);
      return NULL;
    }
    vm_start(d->vms[i]);
  }
  return d;
}

// is_done reports whether a domain without a configuration has no work left.
static bool is_done(domain* d) {
  bool is = d->under_way == 0;
  for (int i = 0; i < d->workers; i++) {
    vm* v = d->vms[i];
    pthread_mutex_lock(&v->lock);
    is = is && (v->failed || !v->roots);
    pthread_mutex_unlock(&v->lock);
  }
  return is;
}

// serve_orphans lets domains without a configuration push their last hits, through another domain's
// configuration.
static void serve_orphans(config* through) {
  for (domain *d = domain_next(NULL), *next; d; d = next) {
    next = domain_next(d);
    if (!domain_orphaned(d)) continue;
    serve(d, through);
    if (!is_done(d)) continue;
    domain_forget(d);
    domain_free(d);
  }
}

// free_orphans ends these domains when Envoy has no configuration to make callouts with any more.
static void free_orphans(void) {
  for (domain* d; (d = domain_take());) {
    if (!is_done(d)) say(LOG_WARN, "weir: the last filter is gone, and the hits that vm_id %s had not pushed yet are lost", d->id);
    domain_free(d);
  }
}

void ON(http_filter_config_scheduled)(void* envoy, const void* module, uint64_t event) {
  config* c = (config*)module;
  serve(c->domain, c);
  serve_orphans(c);
}

// ---- configurations

// parse_name parses VM_ID or VM_ID?failure_policy=FAIL_OPEN. id_size becomes the size of the id.
static bool parse_name(bytes name, size_t* id_size, enum policy* policy) {
  static const char key[] = "failure_policy=";
  static const char* const policies[] = {"FAIL_CLOSED", "FAIL_OPEN", "FAIL_RELOAD"};
  const char* mark = memchr(name.data, '?', name.size);
  *policy = FAIL_CLOSED;
  *id_size = mark ? (size_t)(mark - name.data) : name.size;
  if (!mark) return true;
  const size_t rest = name.size - *id_size - 1;
  if (rest < sizeof key || memcmp(mark + 1, key, sizeof key - 1) != 0) return false;
  const char* value = mark + sizeof key;
  for (int i = 0; i < 3; i++) {
    if (strlen(policies[i]) == rest - (sizeof key - 1) && memcmp(value, policies[i], strlen(policies[i])) == 0) {
      *policy = i;
      return true;
    }
  }
  return false;
}

static const char* skip(const char* at, const char* end, const char* what) {
  while (at < end && (strchr(" \t\r\n", *at) || strchr(what, *at))) at++;
  return at;
}

// names_metadata reports whether an object has a field such as "metadata.filter_metadata.x".
static bool names_metadata(const char* at, const char* end) {
  static const char name[] = "\"metadata.";
  for (int depth = 0; at < end; at++) {
    if (*at == '"') {
      if (depth == 1 && (size_t)(end - at) >= sizeof name - 1 && memcmp(at, name, sizeof name - 1) == 0) return true;
      for (at++; at < end && *at != '"'; at++) at += *at == '\\';
    } else if (*at == '{') {
      depth++;
    } else if (*at == '}' && --depth == 0) {
      return false;
    }
  }
  return false;
}

// reads_metadata reports whether a selector or a condition reads a verified claim or another part of Envoy's
// dynamic metadata: {"jwt_claim": "sub", "metadata": "payload"}, {"property": ["metadata", …]} or
// {"property": {"metadata.…": …}}.
// The ABI shows only strings at the first level. A rule that finds no value would count nothing, so
// such a configuration is refused.
static bool reads_metadata(bytes text) {
  static const char metadata[] = "\"metadata\"", property[] = "\"property\"";
  const char* end = text.data + text.size;
  for (const char* at = text.data; (at = memmem(at, end - at, metadata, sizeof metadata - 1));) {
    at += sizeof metadata - 1;
    const char* next = skip(at, end, "");
    if (next < end && *next == ':') return true;
  }
  for (const char* at = text.data; (at = memmem(at, end - at, property, sizeof property - 1));) {
    at = skip(at + sizeof property - 1, end, ":");
    if (at < end && *at == '{' && names_metadata(at, end)) return true;
    at = skip(at, end, "[");
    if ((size_t)(end - at) >= sizeof metadata - 1 && memcmp(at, metadata, sizeof metadata - 1) == 0) return true;
  }
  return false;
}

// try configures a VM that serves no requests. If the configuration makes it fail, no other VM
// does.
static bool try(config* c) {
  vm* v = vm_new(c->domain, -1);
  if (!v) return false;
  pthread_mutex_lock(&v->lock);
  const bool accepted = vm_start(v) && vm_configure(v, c, c->id, c->text.size);
  pthread_mutex_unlock(&v->lock);
  vm_free(v);
  return accepted;
}

// configure configures a VM. It first restarts a failed VM, because a new configuration may not
// have the old failure.
static bool configure(vm* v, config* c) {
  if (v->failed) domain_restart(v);
  if (v->failed) return false;
  // A restart may have configured it already.
  return vm_root(v, c->id) || vm_configure(v, c, c->id, c->text.size);
}

static bool configure_all(config* c) {
  bool accepted = true;
  for (int i = 0; i < c->domain->workers; i++) {
    vm* v = c->domain->vms[i];
    pthread_mutex_lock(&v->lock);
    accepted = configure(v, c) && accepted;
    pthread_mutex_unlock(&v->lock);
  }
  return accepted;
}

static void config_free(config* c) {
  if (c->scheduler) CB(http_filter_config_scheduler_delete)(c->scheduler);
  metrics_free(c);
  free((char*)c->text.data);
  free(c);
}

// leave ends a configuration. Its last hits are pushed through the next configuration of its
// domain, or else through that of another domain.
static void leave(config* c) {
  domain* d = c->domain;
  domain_leave(c);
  for (int i = 0; i < d->workers; i++) {
    vm* v = d->vms[i];
    pthread_mutex_lock(&v->lock);
    v->through = c;
    root* r = vm_root(v, c->id);
    if (r) vm_done(v, r);
    pthread_mutex_unlock(&v->lock);
  }
  callouts_end(c);
  // Envoy drops events that were scheduled by a configuration that ends.
  if (!domain_left(d)) free_orphans();
  config_free(c);
}

static pthread_t main_thread;

const char* ON(program_init)(void) {
  // Envoy 1.36 and 1.37 lack these functions; 1.39 has them.
  if (!CB(http_filter_config_http_callout) || !CB(http_filter_config_increment_counter) || !CB(http_filter_get_worker_index) || !CB(get_concurrency)) {
    say(LOG_CRITICAL, "weir: the native form needs Envoy 1.39 or 1.40, and this Envoy lacks calls that it makes; the wasm form runs here");
    return NULL;
  }
  main_thread = pthread_self();
  Z_weir_init_module();
  timer_start();
  return ABI_VERSION;
}

const void* ON(http_filter_config_new)(void* envoy, bytes name, bytes text) {
  static uint32_t ids;
  size_t id_size;
  enum policy policy;
  if (!parse_name(name, &id_size, &policy)) {
    say(LOG_ERROR, "weir: filter_name: want VM_ID or VM_ID?failure_policy=FAIL_CLOSED, FAIL_OPEN or FAIL_RELOAD, got %.*s",
        (int)name.size, name.data);
    return NULL;
  }
  if (reads_metadata(text)) {
    say(LOG_ERROR, "weir: configuration refused: it reads dynamic metadata, such as verified claims, which a dynamic module can't read; the wasm form can");
    return NULL;
  }
  domain* d = domain_find(name.data, id_size);
  if (!d && !(d = domain_new(name.data, id_size))) return NULL;
  config* c = calloc(1, sizeof *c);
  *c = (config){.domain = d, .envoy = envoy, .id = ++ids, .policy = policy, .text = {memcpy(malloc(text.size + 1), text.data, text.size), text.size}};
  c->scheduler = CB(http_filter_config_scheduler_new)(envoy);
  const bool accepted = try(c);
  // From here on the domain has this configuration, so leave must end it.
  domain_enter(d, c);
  if (accepted && configure_all(c)) return c;
  leave(c);
  return NULL;
}

void ON(http_filter_config_destroy)(const void* module) {
  if (!pthread_equal(pthread_self(), main_thread)) callouts_await((config*)module);
  leave((config*)module);
}
