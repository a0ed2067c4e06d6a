// A domain is what filters with the same vm_id share: shared data, and a VM for each worker. A
// configuration is Envoy's filter configuration, and a root in each VM of its domain.
#pragma once
#include "vm.h"

typedef struct callout callout;
typedef struct metric_ids metric_ids;
typedef struct shared shared;

enum policy { FAIL_CLOSED, FAIL_OPEN, FAIL_RELOAD };

// A domain stays without a configuration while its VMs have something left to push, and there is a
// configuration of another domain to make their callouts with.
struct domain {
  domain* next;
  char* id;
  shared* shared;
  config* configs;     // guarded by the register's lock
  bool awaited;        // a configuration is being made for it; guarded by it too
  int leaving;         // how many threads end a configuration of it; guarded by it too
  callout* outbox;     // to be made on the main thread; guarded by it too
  int under_way;       // callouts that Envoy has; the main thread's
  _Atomic bool posted; // a tick is on its way to the main thread
  int workers;
  vm* vms[];
};

struct config {
  config* next;
  domain* domain;
  void* envoy;
  void* scheduler; // to the main thread
  bytes text;
  uint32_t id;
  enum policy policy;
  callout* under_way;
  bool answering; // the main thread has the answer of one of them
  metric_ids* metrics;
};

// The register's lock guards the lists of domains and configurations. Who has it takes no VM's lock.
void register_lock(void);
void register_unlock(void);

// domain_find finds a domain for a configuration that is being made, and keeps it until domain_enter.
domain* domain_find(const char* id, size_t size);
// domain_next is the domain after another, the first after NULL. Domains come and go on the main thread.
domain* domain_next(domain*);
void domain_enter(domain*, config*);
// domain_leave takes a configuration out of its domain's list. The domain stays until domain_left.
void domain_leave(config*);
// domain_forget takes a domain out of the list, domain_take any that has no configuration and gets none.
void domain_forget(domain*);
domain* domain_take(void);
// domain_orphaned reports whether a domain has no configuration, and no thread ends one.
bool domain_orphaned(domain*);

// domain_post has the main thread look after a domain's ticks and callouts. It reports false if there is
// no configuration, the domain's or another's, to do it with.
bool domain_post(domain*);
// domain_left is domain_post for a thread that has ended a configuration. Others may free the domain then.
bool domain_left(domain*);

// domain_restart replaces a VM's failed instance, and reports whether the VM runs. Configurations that
// fail for good, closed or open, have no root in the new one. domain_reload does so if the VM has failed,
// at most once in a second.
bool domain_restart(vm*);
bool domain_reload(vm*);

// timer_start starts the thread for ticks. timer_wake says that a tick may be due earlier than was known.
void timer_start(void);
void timer_wake(void);
