// Shared data: keys and values that all VMs with a vm_id share. Each value has the number of the
// write that set it.
#pragma once
#include "domain.h"

shared* shared_new(void);
void shared_free(shared*);
