// An answer to a callout, copied from Envoy's memory. An answer without headers means that the
// callout has failed.
#pragma once
#include "vm.h"

answer* answer_new(const field* headers, size_t n, const bytes* chunks, size_t chunk_count);
uint32_t answer_headers(const answer*);
bool answer_header(const answer*, bytes name, bytes* value);
bytes answer_body(const answer*);
void answer_free(answer*);
