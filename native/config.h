// A configuration is Envoy's filter configuration, and a root in each VM of its domain. A domain is what
// filters with the same vm_id share: shared data, and a VM for each worker.
#pragma once
#include "shared.h"
#include "vm.h"

typedef struct callout callout;
typedef struct metric_ids metric_ids;

enum policy { FAIL_CLOSED, FAIL_OPEN, FAIL_RELOAD };

struct domain {
  domain* next;
  char* id;
  shared* shared;
  config* configs;     // guarded by the register's lock
  callout* outbox;     // to be made on the main thread; guarded by it too
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
  metric_ids* metrics;
};

config* domain_first(domain*);
config* domain_next(config*);

// domain_post has the main thread look after a domain's ticks and callouts. It reports false if no
// configuration is left to do it with.
bool domain_post(domain*);

// timer_wake says that a tick may be due earlier than was known.
void timer_wake(void);

// The register's lock guards the lists of domains and configurations. Who has it takes no VM's lock.
void register_lock(void);
void register_unlock(void);

// callouts_send makes the callouts of a domain's outbox, through a configuration.
void callouts_send(config*);
// callouts_end answers the callouts that a configuration's end has ended.
void callouts_end(config*);
// callouts_drop forgets those that nobody can make any more.
void callouts_drop(domain*);

uint32_t answer_headers(const answer*);
bool answer_header(const answer*, bytes name, bytes* value);
bytes answer_body(const answer*);
void answer_free(answer*);
