// Common parts of the host calls.
#pragma once
#include "vm.h"

// Results of the proxy-wasm ABI.
enum { OK = 0, NOT_FOUND = 1, BAD_ARGUMENT = 2, CAS_MISMATCH = 8, UNIMPLEMENTED = 12 };

// give copies a value into memory that it requests from the module, and writes its address and
// size.
void give(vm*, bytes value, uint32_t at, uint32_t size_at);

// pairs parses a list of headers in the ABI's form: their number, the sizes of their names and
// values, and then these, each followed by a zero byte. It returns their number; -1 if the list is
// invalid. The headers point into data.
int pairs(bytes data, field* headers, int most);
enum { most_pairs = 128 };

// list_headers returns a stream's headers. They point into Envoy's memory, and are valid until the
// call into the VM ends.
const listed* list_headers(vm*, header_map);
