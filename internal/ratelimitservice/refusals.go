package ratelimitservice

import (
	"hash/maphash"
	"sync"
)

// mostRefusals bounds half of the refusals that a service remembers.
const mostRefusals = 1 << 16

// refusals remember for which keys a limit has refused hits, until its window ends. The answer to a
// descriptor without hits depends on that: the rate limit service lets it pass while a limit is
// used up but has refused nothing. Each instance remembers only its own refusals, so it is asked
// only where there is no other instance.
type refusals struct {
	seed           maphash.Seed
	mu             sync.Mutex
	younger, older map[uint64]int64 // the end, in nanoseconds, by the hash of a rule and a key
}

func newRefusals() *refusals {
	return &refusals{seed: maphash.MakeSeed(), younger: map[uint64]int64{}}
}

// hash returns the hash of a descriptor's rule and key.
func (r *refusals) hash(a *asked) uint64 { return maphash.Bytes(r.seed, a.appendCounter(nil)) }

// add records that hits of a descriptor were refused.
func (r *refusals) add(a *asked) {
	key, until := r.hash(a), a.decision.At.UnixNano()+int64(a.decision.ResetAfter)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.younger[key]; !known && len(r.younger) >= mostRefusals {
		r.older, r.younger = r.younger, map[uint64]int64{}
	}
	r.younger[key] = until
}

// forget drops the refusals of a descriptor's hits, because some were given back.
func (r *refusals) forget(a *asked) {
	key := r.hash(a)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.younger, key)
	delete(r.older, key)
}

// remembers reports whether hits of a descriptor were refused in the current window.
func (r *refusals) remembers(a *asked) bool {
	key := r.hash(a)
	r.mu.Lock()
	defer r.mu.Unlock()
	until, known := r.younger[key]
	if !known {
		until = r.older[key]
	}
	return a.decision.At.UnixNano() < until
}
