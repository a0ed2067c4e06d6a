#include "answer.h"

struct answer {
  uint32_t n;
  field* headers;
  bytes body;
  char data[];
};

uint32_t answer_headers(const answer* a) { return a->n; }
bytes answer_body(const answer* a) { return a->body; }

bool answer_header(const answer* a, bytes name, bytes* value) {
  for (uint32_t i = 0; i < a->n; i++) {
    if (a->headers[i].key.size == name.size && memcmp(a->headers[i].key.data, name.data, name.size) == 0) {
      *value = a->headers[i].value;
      return true;
    }
  }
  return false;
}

void answer_free(answer* a) { free(a); }

answer* answer_new(const field* headers, size_t n, const bytes* chunks, size_t chunk_count) {
  size_t size = 0, body = 0;
  for (size_t i = 0; i < n; i++) size += headers[i].key.size + headers[i].value.size;
  for (size_t i = 0; i < chunk_count; i++) body += chunks[i].size;
  answer* a = malloc(sizeof *a + n * sizeof(field) + size + body);
  a->n = n;
  a->headers = (field*)a->data;
  char* to = a->data + n * sizeof(field);
  for (size_t i = 0; i < n; i++) {
    to = copy(to, headers[i].key, &a->headers[i].key);
    to = copy(to, headers[i].value, &a->headers[i].value);
  }
  a->body = (bytes){to, body};
  bytes unused;
  for (size_t i = 0; i < chunk_count; i++) to = copy(to, chunks[i], &unused);
  return a;
}
