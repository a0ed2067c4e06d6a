// The main thread makes callouts, through a configuration. The answer goes to the VM that asked.
#pragma once
#include "domain.h"

// callouts_send makes the callouts in a domain's outbox.
void callouts_send(domain*, config* through);
// callouts_await returns when Envoy has no callout of a configuration any more. Envoy destroys a
// configuration in the thread that uses it last. If that is a worker, Envoy would end the
// configuration's callouts there, although they belong to the main thread, and crash. So the worker
// waits, as long as a callout may take.
void callouts_await(config*);
// callouts_end answers the callouts that end with a configuration.
void callouts_end(config*);
// callouts_drop frees the callouts that no configuration can make any more.
void callouts_drop(domain*);
