// Callouts are made on the main thread, through a configuration. The answer goes to the VM that asked.
#pragma once
#include "domain.h"

// callouts_send makes the callouts of a domain's outbox.
void callouts_send(domain*, config* through);
// callouts_end answers the callouts that a configuration's end has ended.
void callouts_end(config*);
// callouts_drop forgets those that nobody can make any more.
void callouts_drop(domain*);
