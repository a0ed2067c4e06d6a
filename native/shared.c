#include "shared.h"

#include "calls.h"

// Each shard of keys has its own lock, so VMs that count different keys rarely wait for each other.
enum { shards = 256, least_places = 16 };

typedef struct item item;
struct item {
  item* next;
  uint32_t hash, key_size, size, room, cas;
  char data[]; // the key, and the value in so much room
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

// find returns what points to the item of a key, or would.
static item** find(shard* s, uint32_t h, bytes key) {
  item** at = place(s, h);
  while (*at && ((*at)->hash != h || (*at)->key_size != key.size || memcmp((*at)->data, key.data, key.size) != 0)) at = &(*at)->next;
  return at;
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

// write_value gives the key of an item its value. The item is yet to be added if at points to none.
static void write_value(shard* s, item** at, uint32_t h, bytes key, bytes value) {
  if (!*at && s->used++ > s->mask) {
    grow(s);
    at = find(s, h, key);
  }
  item* m = *at;
  if (!m || m->room < value.size) {
    const uint32_t room = value.size + value.size / 4;
    item* larger = realloc(m, sizeof *m + key.size + room);
    if (!m) {
      *larger = (item){.hash = h, .key_size = key.size};
      memcpy(larger->data, key.data, key.size);
    }
    m = *at = larger;
    m->room = room;
  }
  if (value.size) memcpy(m->data + key.size, value.data, value.size);
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
  const item* m = *find(s, h, key);
  if (m) {
    give(v, (bytes){m->data + key.size, m->size}, value_at, size_at);
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
  item** at = find(s, h, key);
  const bool fits = !*at || !cas || cas == (*at)->cas;
  if (fits) write_value(s, at, h, key, value);
  unlock(v);
  return fits ? OK : CAS_MISMATCH;
}
