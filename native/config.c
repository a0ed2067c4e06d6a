#include "config.h"

#include <time.h>

#include "mail.h"
#include "metrics.h"
#include "stream.h"

// glibc 2.34 gave these a version of their own as it moved them into libc. The same functions have the
// older one too, which Envoys on an older glibc find.
#if defined(__x86_64__)
#define OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
#else
#define OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.17")
#endif
OLD(pthread_create);
OLD(pthread_mutex_trylock);
#if defined(__x86_64__)
__asm__(".symver pthread_condattr_setclock,pthread_condattr_setclock@GLIBC_2.3.3");
#else
OLD(pthread_condattr_setclock);
#endif

static pthread_mutex_t registered = PTHREAD_MUTEX_INITIALIZER;
static domain* domains;

void register_lock(void) { pthread_mutex_lock(&registered); }
void register_unlock(void) { pthread_mutex_unlock(&registered); }

config* domain_next(config* c) {
  register_lock();
  config* next = c->next;
  register_unlock();
  return next;
}

config* domain_first(domain* d) {
  register_lock();
  config* first = d->configs;
  register_unlock();
  return first;
}

bool domain_post(domain* d) {
  register_lock();
  const bool posted = d->configs != NULL;
  if (posted) CB(http_filter_config_scheduler_commit)(d->configs->scheduler, 0);
  register_unlock();
  return posted;
}

// ---- ticks

// A thread waits until the next tick of any root is due, and has the main thread do it.
static pthread_mutex_t timer_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t timer_changed;
static bool timer_earlier;

void timer_wake(void) {
  pthread_mutex_lock(&timer_lock);
  timer_earlier = true;
  pthread_cond_signal(&timer_changed);
  pthread_mutex_unlock(&timer_lock);
}

// next_due is the time of the next tick in a domain, 0 if there is none. The roots of a VM change with
// the VM's lock only; a VM that is busy is asked again soon.
static int64_t next_due(domain* d, int64_t now) {
  int64_t next = 0;
  for (int i = 0; i < d->workers; i++) {
    int64_t due = now + 1000000;
    if (pthread_mutex_trylock(&d->vms[i]->lock) == 0) {
      due = 0;
      for (root* r = d->vms[i]->roots; r; r = r->next) {
        const int64_t at = r->due_nanos;
        if (at && (!due || at < due)) due = at;
      }
      pthread_mutex_unlock(&d->vms[i]->lock);
    }
    if (due && (!next || due < next)) next = due;
  }
  return next;
}

static void* timer(void* unused) {
  pthread_mutex_lock(&timer_lock);
  for (;;) {
    timer_earlier = false;
    pthread_mutex_unlock(&timer_lock);
    const int64_t now = now_nanos(CLOCK_MONOTONIC);
    int64_t next = now + 3600ll * 1000000000;
    register_lock();
    for (domain* d = domains; d; d = d->next) {
      if (d->posted || !d->configs) continue;
      const int64_t due = next_due(d, now);
      if (due && due <= now) {
        d->posted = true;
        CB(http_filter_config_scheduler_commit)(d->configs->scheduler, 0);
      } else if (due && due < next) {
        next = due;
      }
    }
    register_unlock();
    const struct timespec until = {next / 1000000000, next % 1000000000};
    pthread_mutex_lock(&timer_lock);
    if (!timer_earlier) pthread_cond_timedwait(&timer_changed, &timer_lock, &until);
  }
  return unused;
}

static void timer_start(void) {
  pthread_condattr_t clock;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&timer_changed, &clock);
  pthread_t thread;
  if (pthread_create(&thread, NULL, timer, NULL) != 0) say(LOG_CRITICAL, "weir: no thread for ticks");
}

static void tick_all(config* c) {
  domain* d = c->domain;
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
    while (n) mail_post(v, c, due[--n], 0, NULL);
  }
  d->posted = false;
  timer_wake();
}

void ON(http_filter_config_scheduled)(void* envoy, const void* module, uint64_t event) {
  config* c = (config*)module;
  tick_all(c);
  callouts_send(c);
}

// ---- domains

static vm* vm_new(domain* d, int index) {
  vm* v = calloc(1, sizeof *v);
  pthread_mutex_init(&v->lock, NULL);
  v->domain = d;
  v->index = index;
  mail_drop(v);
  return v;
}

static void vm_free(vm* v) {
  vm_stop(v);
  free(v->listed.headers);
  pthread_mutex_destroy(&v->lock);
  free(v);
}

static domain* domain_find(const char* id, size_t size) {
  domain* d = domains;
  while (d && (strlen(d->id) != size || memcmp(d->id, id, size) != 0)) d = d->next;
  return d;
}

static domain* domain_new(const char* id, size_t size) {
  const int workers = CB(get_concurrency)();
  domain* d = calloc(1, sizeof *d + workers * sizeof(vm*));
  d->id = strndup(id, size);
  d->shared = shared_new();
  d->workers = workers;
  for (int i = 0; i < workers; i++) {
    d->vms[i] = vm_new(d, i);
    vm_start(d->vms[i]);
  }
  return d;
}

static void domain_free(domain* d) {
  for (int i = 0; i < d->workers; i++) vm_free(d->vms[i]);
  callouts_drop(d);
  shared_free(d->shared);
  free(d->id);
  free(d);
}

// ---- configurations

// parse_name reads VM_ID or VM_ID?failure_policy=FAIL_OPEN, and returns the size of the id.
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

// reads_metadata reports whether a selector takes a verified claim or another part of Envoy's dynamic
// metadata: {"jwt_claim": "sub", "metadata": "payload"} or {"property": ["metadata", …]}. The ABI shows
// none but strings at the first level. A rule that finds nothing would not count, so that such a
// configuration is refused.
static bool reads_metadata(bytes text) {
  static const char metadata[] = "\"metadata\"", property[] = "\"property\"";
  const char* end = text.data + text.size;
  for (const char* at = text.data; (at = memmem(at, end - at, metadata, sizeof metadata - 1));) {
    at += sizeof metadata - 1;
    const char* next = skip(at, end, "");
    if (next < end && *next == ':') return true;
  }
  for (const char* at = text.data; (at = memmem(at, end - at, property, sizeof property - 1));) {
    at = skip(at + sizeof property - 1, end, ":[");
    if ((size_t)(end - at) >= sizeof metadata - 1 && memcmp(at, metadata, sizeof metadata - 1) == 0) return true;
  }
  return false;
}

// try configures a VM that nobody uses. A configuration that ends it leaves the others alone.
static bool try(config* c) {
  vm* v = vm_new(c->domain, -1);
  pthread_mutex_lock(&v->lock);
  const bool accepted = vm_start(v) && vm_configure(v, c);
  pthread_mutex_unlock(&v->lock);
  vm_free(v);
  return accepted;
}

static bool configure_all(config* c) {
  bool accepted = true;
  for (int i = 0; i < c->domain->workers; i++) {
    vm* v = c->domain->vms[i];
    pthread_mutex_lock(&v->lock);
    if (!v->failed || c->policy == FAIL_RELOAD) accepted = vm_reload(v) && vm_configure(v, c) && accepted;
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

static void leave(config* c) {
  domain* d = c->domain;
  for (int i = 0; i < d->workers; i++) {
    vm* v = d->vms[i];
    pthread_mutex_lock(&v->lock);
    v->through = c;
    root* r = vm_root(v, c->id);
    if (r) vm_done(v, r);
    pthread_mutex_unlock(&v->lock);
  }
  callouts_end(c);
  register_lock();
  config** at = &d->configs;
  while (*at && *at != c) at = &(*at)->next;
  if (*at) *at = c->next;
  const bool last = !d->configs;
  if (last) {
    domain** in = &domains;
    while (*in && *in != d) in = &(*in)->next;
    if (*in) *in = d->next;
  }
  register_unlock();
  if (last) {
    domain_free(d);
  } else {
    domain_post(d); // what this one has left to do
  }
  config_free(c);
}

const char* ON(program_init)(void) {
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
    say(LOG_ERROR, "weir: configuration refused: it reads dynamic metadata, as verified claims are, which a dynamic module can't; the wasm form can");
    return NULL;
  }
  config* c = calloc(1, sizeof *c);
  *c = (config){.envoy = envoy, .id = ++ids, .policy = policy, .text = {memcpy(malloc(text.size + 1), text.data, text.size), text.size}};
  c->scheduler = CB(http_filter_config_scheduler_new)(envoy);
  register_lock();
  domain* d = domain_find(name.data, id_size);
  register_unlock();
  if (!d) d = domain_new(name.data, id_size);
  c->domain = d;
  const bool accepted = try(c);
  // From here on there is a configuration in the domain, so that leave ends it.
  register_lock();
  if (!d->configs) {
    d->next = domains;
    domains = d;
  }
  c->next = d->configs;
  d->configs = c;
  register_unlock();
  if (accepted && configure_all(c)) return c;
  leave(c);
  return NULL;
}

void ON(http_filter_config_destroy)(const void* module) { leave((config*)module); }
