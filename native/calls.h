// What the host calls have in common.
#pragma once
#include "vm.h"

// Answers of the proxy-wasm ABI.
enum { OK = 0, NOT_FOUND = 1, BAD_ARGUMENT = 2, CAS_MISMATCH = 8, UNIMPLEMENTED = 12 };

// give copies a value into memory that it asks the module for, and writes where that is.
void give(vm*, bytes value, uint32_t at, uint32_t size_at);

// pairs reads a list of headers as the ABI has it: how many, the sizes of their names and values, and
// then these, each with a zero byte behind it. It returns how many there are, -1 if that is no list.
// What it finds points into data.
int pairs(bytes data, field* headers, int most);
enum { most_pairs = 128 };

// list_headers lists a stream's headers. What it finds points into Envoy's memory, until the call into
// the VM ends.
const listed* list_headers(vm*, header_map);
// find_header is the place of the first header with a name from a place on, and n if there is none.
size_t find_header(const listed*, bytes name, size_t from);
