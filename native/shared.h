// Shared data: keys and values that all VMs with a vm_id have in common, each value with the number of
// the write that set it.
#pragma once
#include "domain.h"

shared* shared_new(void);
void shared_free(shared*);
