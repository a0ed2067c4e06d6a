#include "shared.h"

#include "calls.h"

// Each shard of keys has its own lock, so VMs that count different keys rarely wait for each other.
enum { shards = 256, least_places = 16 };

typedef struct item item;
struct item {
  item* next;
  uint32_t hash, key_size, size, room, cas;
  char* value;
  char key[];
};

typedef struct {
  pthread_mutex_t lock;
  item** places; // their number is a power of two
  uint32_t used, mask;
} shard;

struct shared {
  shard shards[shards];
};

// Writes are numbered in the whole process, from 1 on. As an argument, 0 means that any value may
// be replaced.
static _Atomic uint32_t writes;

shared* shared_new(void) {
  shared* s = calloc(1, sizeof *s);
  for (int i = 0; i < shards; i++) {
    pthread_mutex_init(&s->shards[i].lock, NULL);
    s->shards[i].places = calloc(least_places, sizeof(item*));
    s->shards[i].mask = least_places - 1;
  }
  return s;
}

void shared_free(shared* s) {
  for (int i = 0; i < shards; i++) {
    for (uint32_t at = 0; at <= s->shards[i].mask; at++) {
      for (item *m = s->shards[i].places[at], *next; m; m = next) {
        next = m->next;
        free(m->value);
        free(m);
      }
    }
    free(s->shards[i].places);
  }
  free(s);
}

// hash is FNV-1a. It needs no secret, because the keys are pages of the plugin's table, and clients
// don't choose them.
static uint32_t hash(bytes key) {
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < key.size; i++) h = (h ^ (uint8_t)key.data[i]) * 16777619u;
  return h ^ h >> 15;
}

static shard* of(shared* s, uint32_t h) { return &s->shards[h % shards]; }

static item** place(shard* s, uint32_t h) { return &s->places[h / shards & s->mask]; }

static item* find(shard* s, uint32_t h, bytes key) {
  for (item* m = *place(s, h); m; m = m->next) {
    if (m->hash == h && m->key_size == key.size && memcmp(m->key, key.data, key.size) == 0) return m;
  }
  return NULL;
}

static void grow(shard* s) {
  shard bigger = {.mask = s->mask * 2 + 1};
  bigger.places = calloc(bigger.mask + 1, sizeof(item*));
  for (uint32_t at = 0; at <= s->mask; at++) {
    for (item *m = s->places[at], *next; m; m = next) {
      next = m->next;
      item** to = place(&bigger, m->hash);
      m->next = *to;
      *to = m;
    }
  }
  free(s->places);
  s->places = bigger.places;
  s->mask = bigger.mask;
}

static item* add(shard* s, uint32_t h, bytes key) {
  if (s->used++ > s->mask) grow(s);
  item* m = calloc(1, sizeof *m + key.size);
  item** at = place(s, h);
  *m = (item){.next = *at, .hash = h, .key_size = key.size};
  memcpy(m->key, key.data, key.size);
  return *at = m;
}

static void write_value(item* m, bytes value) {
  if (m->room < value.size) {
    m->room = value.size + value.size / 4;
    m->value = realloc(m->value, m->room);
  }
  if (value.size) memcpy(m->value, value.data, value.size);
  m->size = value.size;
  m->cas = atomic_fetch_add_explicit(&writes, 1, memory_order_relaxed) + 1;
}

// The module may trap when it is asked for memory. vm_trapped then releases this lock.
static void lock(vm* v, shard* s) { pthread_mutex_lock(v->held = &s->lock); }

static void unlock(vm* v) {
  pthread_mutex_unlock(v->held);
  v->held = NULL;
}

u32 Z_envZ_proxy_get_shared_data(vm* v, u32 key_at, u32 key_size, u32 value_at, u32 size_at, u32 cas_at) {
  const bytes key = vm_bytes(v, key_at, key_size);
  const uint32_t h = hash(key);
  shard* s = of(v->domain->shared, h);
  lock(v, s);
  const item* m = find(s, h, key);
  if (m) {
    give(v, (bytes){m->value, m->size}, value_at, size_at);
    vm_put32(v, cas_at, m->cas);
  }
  unlock(v);
  return m ? OK : NOT_FOUND;
}

u32 Z_envZ_proxy_set_shared_data(vm* v, u32 key_at, u32 key_size, u32 value_at, u32 value_size, u32 cas) {
  const bytes key = vm_bytes(v, key_at, key_size), value = vm_bytes(v, value_at, value_size);
  const uint32_t h = hash(key);
  shard* s = of(v->domain->shared, h);
  lock(v, s);
  item* m = find(s, h, key);
  const bool fits = !m || !cas || cas == m->cas;
  if (fits) write_value(m ? m : add(s, h, key), value);
  unlock(v);
  return fits ? OK : CAS_MISMATCH;
}
