// Shared data: keys and values that all VMs with a vm_id have in common, each value with the number of
// the write that set it.
#pragma once
#include "vm.h"

typedef struct shared shared;
shared* shared_new(void);
void shared_free(shared*);

// Answers of the proxy-wasm ABI.
enum { OK = 0, NOT_FOUND = 1, BAD_ARGUMENT = 2, CAS_MISMATCH = 8, UNIMPLEMENTED = 12 };
