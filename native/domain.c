#include "domain.h"

#include <time.h>

// glibc 2.34 moved these functions into libc with a new version. The same functions still have the
// older version, which an older glibc has too.
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

domain* domain_find(const char* id, size_t size) {
  register_lock();
  domain* d = domains;
  while (d && (strlen(d->id) != size || memcmp(d->id, id, size) != 0)) d = d->next;
  if (d) d->awaited = true;
  register_unlock();
  return d;
}

domain* domain_next(domain* d) {
  register_lock();
  domain* next = d ? d->next : domains;
  register_unlock();
  return next;
}

void domain_enter(domain* d, config* c) {
  register_lock();
  domain* in = domains;
  while (in && in != d) in = in->next;
  if (!in) {
    d->next = domains;
    domains = d;
  }
  c->next = d->configs;
  d->configs = c;
  d->awaited = false;
  register_unlock();
}

void domain_leave(config* c) {
  register_lock();
  config** at = &c->domain->configs;
  while (*at && *at != c) at = &(*at)->next;
  if (*at) *at = c->next;
  c->domain->leaving++;
  register_unlock();
}

void domain_forget(domain* d) {
  register_lock();
  domain** at = &domains;
  while (*at && *at != d) at = &(*at)->next;
  if (*at) *at = d->next;
  register_unlock();
}

domain* domain_take(void) {
  register_lock();
  domain** at = &domains;
  while (*at && ((*at)->configs || (*at)->awaited || (*at)->leaving)) at = &(*at)->next;
  domain* taken = *at;
  if (taken) *at = taken->next;
  register_unlock();
  return taken;
}

// A configuration that ends leaves the list first, and then takes the locks of all VMs.
config* domain_config(domain* d, uint32_t id) {
  register_lock();
  config* c = d->configs;
  while (c && c->id != id) c = c->next;
  register_unlock();
  return c;
}

bool domain_orphaned(domain* d) {
  register_lock();
  const bool is = !d->configs && !d->leaving;
  register_unlock();
  return is;
}

// helper returns a configuration through which Envoy can serve a domain. The caller holds the
// register's lock.
static config* helper(domain* d) {
  for (domain* other = domains; other && !d->configs; other = other->next) {
    if (other->configs) d = other;
  }
  return d->configs;
}

// post is domain_post for a caller that holds the register's lock.
static bool post(domain* d) {
  const config* c = helper(d);
  if (c) CB(http_filter_config_scheduler_commit)(c->scheduler, 0);
  return c;
}

bool domain_post(domain* d) {
  register_lock();
  const bool posted = post(d);
  register_unlock();
  return posted;
}

bool domain_left(domain* d) {
  register_lock();
  d->leaving--;
  const bool posted = post(d);
  register_unlock();
  return posted;
}

bool domain_restart(vm* v) {
  v->failed_nanos = now_nanos(CLOCK_MONOTONIC);
  if (!vm_restart(v)) return false;
  // While this thread holds the VM's lock, no configuration of the list is freed, because leave
  // takes that lock before.
  register_lock();
  config* c = v->domain->configs;
  register_unlock();
  while (c && !v->failed) {
    if (c->policy == FAIL_RELOAD) vm_configure(v, c, c->id, c->text.size);
    register_lock();
    c = c->next;
    register_unlock();
  }
  return !v->failed;
}

static const int64_t reload_nanos = 1000000000;

bool domain_reload(vm* v) {
  return !v->failed || (now_nanos(CLOCK_MONOTONIC) - v->failed_nanos >= reload_nanos && domain_restart(v));
}

// ---- ticks

// A thread waits until the next tick of any root is due, and then posts it to the main thread.
static pthread_mutex_t timer_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t timer_changed;
static bool timer_earlier;

void timer_wake(void) {
  pthread_mutex_lock(&timer_lock);
  timer_earlier = true;
  pthread_cond_signal(&timer_changed);
  pthread_mutex_unlock(&timer_lock);
}

// next_due returns the time of the next tick in a domain; 0 if there is none. The roots of a VM
// change only under the VM's lock. A busy VM is asked again soon.
static int64_t next_due(domain* d, int64_t now) {
  int64_t next = 0;
  for (int i = 0; i < d->workers; i++) {
    int64_t due = now + 1000000;
    if (pthread_mutex_trylock(&d->vms[i]->lock) == 0) {
      due = 0;
      for (root* r = d->vms[i]->failed ? NULL : d->vms[i]->roots; r; r = r->next) {
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
      const config* c = helper(d);
      if (d->posted || !c) continue;
      const int64_t due = next_due(d, now);
      if (due && due <= now) {
        d->posted = true;
        CB(http_filter_config_scheduler_commit)(c->scheduler, 0);
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

void timer_start(void) {
  pthread_condattr_t clock;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&timer_changed, &clock);
  pthread_t thread;
  if (pthread_create(&thread, NULL, timer, NULL) != 0) say(LOG_CRITICAL, "weir: can't start the thread for ticks");
}
