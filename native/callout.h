// Callouts are made on the main thread, through a configuration. The answer goes to the VM that asked.
#pragma once
#include "domain.h"

// callouts_send makes the callouts of a domain's outbox.
void callouts_send(domain*, config* through);
// callouts_await returns when Envoy has no callout of a configuration any more. Envoy destroys a
// configuration in the thread that uses it last. If that is a worker's, it would end callouts there which
// belong to the main thread, and crash; so it waits, as long as a callout may take.
void callouts_await(config*);
// callouts_end answers the callouts that a configuration's end has ended.
void callouts_end(config*);
// callouts_drop forgets those that nobody can make any more.
void callouts_drop(domain*);
