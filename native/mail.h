// Mail: ticks and answers to callouts. They come on the main thread. If no request of the VM is paused
// they run there. Otherwise they may resume or answer requests, and read what belongs to these, which
// only their worker may do: then they lie in the VM's mail until it comes by, and it is woken.
#pragma once
#include "vm.h"

struct mail {
  mail* next;
  uint32_t root;     // its id
  uint32_t callout;  // 0 is a tick
  answer* answer;
};

// mail_post delivers or keeps a tick or an answer, on the main thread and without the VM's lock.
void mail_post(vm*, config* through, uint32_t root, uint32_t callout, answer*);
// mail_read delivers all that lies there, with the lock.
void mail_read(vm*, config* through);
void mail_drop(vm*);
