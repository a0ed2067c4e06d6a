// Mail is ticks and answers to callouts. They arrive on the main thread. If no request of the VM is
// paused, they run there. Otherwise they may resume or answer requests, and read their data, which
// only the requests' worker may do. Then they stay in the VM's mail until the worker, which is
// woken, reads it.
#pragma once
#include "vm.h"

struct mail {
  mail* next;
  uint32_t root;     // id of the root
  uint32_t callout;  // 0 for a tick
  answer* answer;
};

// mail_post delivers or keeps a tick or an answer. Only the main thread calls it, without the VM's
// lock.
void mail_post(vm*, config* through, uint32_t root, uint32_t callout, answer*);
// mail_read delivers all mail of a VM. The caller holds the VM's lock.
void mail_read(vm*, config* through);
void mail_drop(vm*);
