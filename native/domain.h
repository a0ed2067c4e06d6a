// A domain is the state that filters with the same vm_id share: shared data, and a VM for each
// worker. A configuration is Envoy's filter configuration, and a root in each VM of its domain.
#pragma once
#include "vm.h"

typedef struct callout callout;
typedef struct metric_ids metric_ids;
typedef struct shared shared;

enum policy { FAIL_CLOSED, FAIL_OPEN, FAIL_RELOAD };

// A domain lives on without a configuration while its VMs have hits to push, and another domain has
// a configuration to make their callouts with.
struct domain {
  domain* next;
  char* id;
  shared* shared;
  config* configs;     // guarded by the register's lock
  bool awaited;        // a configuration is being made for it; guarded likewise
  int leaving;         // threads that are ending a configuration of it; guarded likewise
  callout* outbox;     // callouts for the main thread; guarded likewise
  int under_way;       // callouts that Envoy has; only for the main thread
  _Atomic bool posted; // a tick is on its way to the main thread
  int workers;
  vm* vms[];
};

struct config {
  config* next;
  domain* domain;
  void* envoy;
  void* scheduler; // of the main thread
  bytes text;
  uint32_t id;
  enum policy policy;
  callout* under_way;
  bool answering; // the main thread is delivering an answer to a callout
  metric_ids* metrics;
};

// The register's lock guards the lists of domains and configurations. Its holder must not take a
// VM's lock.
void register_lock(void);
void register_unlock(void);

// domain_find returns the domain for a configuration that is being made, and keeps it until
// domain_enter.
domain* domain_find(const char* id, size_t size);
// domain_next returns the domain after another; the first after NULL. Only the main thread adds and
// removes domains.
domain* domain_next(domain*);
void domain_enter(domain*, config*);
// domain_leave removes a configuration from its domain's list. The domain lives until domain_left.
void domain_leave(config*);
// domain_forget removes a domain from the list. domain_take removes any domain that has no
// configuration and is not about to get one.
void domain_forget(domain*);
domain* domain_take(void);
// domain_config returns a domain's configuration by its id, or NULL. It lives for as long as the caller
// holds the lock of one of the domain's VMs.
config* domain_config(domain*, uint32_t id);
// domain_orphaned reports whether a domain has no configuration, and no thread is ending one.
bool domain_orphaned(domain*);

// domain_post makes the main thread run a domain's ticks and callouts. It returns false if no
// domain has a configuration for that.
bool domain_post(domain*);
// domain_left is domain_post for a thread that has ended a configuration. Afterwards other threads
// may free the domain.
bool domain_left(domain*);

// domain_restart replaces a VM's failed instance, and reports whether the VM runs. Configurations
// with FAIL_CLOSED or FAIL_OPEN get no root in the new instance. domain_reload restarts a VM only
// if it has failed, and at most once a second.
bool domain_restart(vm*);
bool domain_reload(vm*);

// timer_start starts the thread for ticks. timer_wake tells it that a tick may be due earlier than
// it knew.
void timer_start(void);
void timer_wake(void);
