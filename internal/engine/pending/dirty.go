package pending

import (
	"weir/internal/counter"
	"weir/internal/engine/rule"
	"weir/sharedata"
)

// Dirty are a node's keys with hits to push or leases to review, in the order of their
// addition.
//
// There may be very many of them, in memory that never shrinks, on the thread that serves requests.
// So they are kept in reusable blocks without pointers, and a block knows until when none of its
// keys is due.
type Dirty struct {
	blocks []dirtyBlock
	idle   []*[dirtyBlockKeys]DirtyKey
	Rules  []*rule.Rule // rules of the keys
	// full is the number of rules at which those without keys are dropped. A rule has a variant for
	// each set of other limits.
	full  int
	Count int

	// A visit of all keys continues at index at of blocks[block], and ends before blocks[end]. Keys
	// that come meanwhile are for the next visit; otherwise a flood of new keys would keep kept
	// keys from ever being visited. Kept keys of this visit are before index kept in blocks[block],
	// and in the blocks before keptBlocks.
	block, keptBlocks, end int
	at, kept               int
}

// dirtyBlockKeys fills one of the runtime's size classes.
const dirtyBlockKeys = 256

// maxDirty bounds the keys in the list. A key beyond is adopted again by a later hit.
const maxDirty = 1 << 17

// leastRules is above the number of rules in a configuration.
const leastRules = 1 << 10

// DirtyKey is a key with hits to push or a lease to review.
type DirtyKey struct {
	Address sharedata.Address
	// notBefore is when to try again, if the key was due but could not be claimed.
	notBefore int64
	// Due is the due time in the entry. If the entry has another, another worker has adopted the
	// key.
	Due  counter.Due
	rule uint32 // in Dirty.Rules
}

type dirtyBlock struct {
	keys   *[dirtyBlockKeys]DirtyKey
	length int
	// From calmFrom until before calmUntil, no key of the block is due.
	calmFrom, calmUntil int64
}

// dueSlack is above the rounding of due times, in nanoseconds.
const dueSlack = int64(1) << 21

// Add adds a key, unless the list is full.
func (k *Dirty) Add(address sharedata.Address, r *rule.Rule, due counter.Due) {
	if k.Count >= maxDirty {
		return
	}
	k.append(DirtyKey{Address: address, rule: k.number(r), Due: due})
}

func (k *Dirty) append(d DirtyKey) {
	last := len(k.blocks) - 1
	if last < 0 || k.blocks[last].length == dirtyBlockKeys {
		var keys *[dirtyBlockKeys]DirtyKey
		if n := len(k.idle); n > 0 {
			keys, k.idle = k.idle[n-1], k.idle[:n-1]
		} else {
			keys = new([dirtyBlockKeys]DirtyKey)
		}
		k.blocks = append(k.blocks, dirtyBlock{keys: keys})
		last++
	}
	b := &k.blocks[last]
	b.keys[b.length] = d
	b.length++
	b.calmUntil = 0
	k.Count++
}

// number returns the index of a rule in the list of rules.
//
//go:noinline
func (k *Dirty) number(r *rule.Rule) uint32 {
	if int(r.Hint) >= len(k.Rules) || k.Rules[r.Hint] != r {
		r.Hint = uint32(len(k.Rules))
		k.Rules = append(k.Rules, r)
	}
	return r.Hint
}

// Fate says what becomes of a key that was visited.
type Fate uint8

const (
	// Drop drops the key.
	Drop Fate = iota
	// Stay keeps the key until it is due again, by the due time that the visit has given it.
	Stay
	// Retry keeps the key for another try an interval later.
	Retry
	// Stop ends the visit before the key.
	Stop
)

// Visit calls visit with each key that is due, or with all. It returns false if visit has stopped it, or
// there is more after a block of keys and it is late. Then the next visit goes on there.
func (k *Dirty) Visit(now int64, all bool, late func() bool, visit func(key *DirtyKey, r *rule.Rule) Fate) (done bool) {
	for k.more() {
		if !all && k.Calm(now) {
			k.skip()
			continue
		}
		for key, ok := k.next(); ok; key, ok = k.next() {
			r := k.Rules[key.rule]
			if wake, waits := key.wakes(r, now); waits && !all {
				k.keep(*key, now, wake)
				continue
			}
			switch visit(key, r) {
			case Drop:
				k.forget()
			case Stay:
				k.keep(*key, now, 0)
			case Retry:
				key.notBefore = now + r.Interval
				k.keep(*key, now, 0)
			case Stop:
				return false
			}
		}
		if k.skip(); k.block < len(k.blocks) && late() {
			return false
		}
	}
	k.rewind()
	return true
}

// wakes reports whether a key is not due yet, and from when on it may be.
func (d *DirtyKey) wakes(r *rule.Rule, now int64) (wake int64, waits bool) {
	if !d.Due.Passed(now, r.Interval) {
		return now + d.Due.In(now) - dueSlack, true
	}
	return d.notBefore, d.notBefore > now && d.notBefore-now <= r.Interval
}

// more reports whether this visit has another block. If not, it prepares the next visit.
func (k *Dirty) more() bool {
	if k.block >= k.end && k.block < len(k.blocks) {
		k.rewind()
	}
	return k.block < len(k.blocks)
}

// next returns the next key to visit, until the end of its block. Call keep or forget with each.
func (k *Dirty) next() (d *DirtyKey, ok bool) {
	if k.block == len(k.blocks) || k.at == k.blocks[k.block].length {
		return nil, false
	}
	return &k.blocks[k.block].keys[k.at], true
}

// keep keeps a key, and moves on. There is no reason to visit it again before wake.
//
//go:noinline
func (k *Dirty) keep(d DirtyKey, now, wake int64) {
	b := &k.blocks[k.block]
	if k.kept == 0 {
		b.calmFrom, b.calmUntil = now, wake
	} else {
		b.calmFrom, b.calmUntil = max(b.calmFrom, now), min(b.calmUntil, wake)
	}
	b.keys[k.kept] = d
	k.kept++
	k.at++
}

// forget drops a key, and moves on.
func (k *Dirty) forget() {
	k.at++
	k.Count--
}

// Calm reports whether the visit is at the start of a block without due keys.
func (k *Dirty) Calm(now int64) bool {
	b := &k.blocks[k.block]
	return k.at == 0 && b.calmFrom <= now && now < b.calmUntil
}

// skip keeps the rest of a block, and moves on.
func (k *Dirty) skip() {
	b := &k.blocks[k.block]
	if k.at != k.kept {
		copy(b.keys[k.kept:], b.keys[k.at:b.length])
	}
	b.length -= k.at - k.kept
	k.at, k.kept = 0, 0
	k.block++
	if before := k.keptBlocks - 1; b.length == 0 || before >= 0 && k.blocks[before].length+b.length <= dirtyBlockKeys {
		if b.length > 0 {
			into := &k.blocks[before]
			copy(into.keys[into.length:], b.keys[:b.length])
			into.length += b.length
			into.calmFrom, into.calmUntil = max(into.calmFrom, b.calmFrom), min(into.calmUntil, b.calmUntil)
		}
		k.idle = append(k.idle, b.keys)
		return
	}
	k.blocks[k.keptBlocks] = *b
	k.keptBlocks++
}

// rewind ends a visit. Keys that it has not reached stay for the next.
func (k *Dirty) rewind() {
	for k.block < len(k.blocks) {
		if k.at > 0 {
			k.blocks[k.block].calmUntil = 0 // the visit did not see all of the block
		}
		k.skip()
	}
	clear(k.blocks[k.keptBlocks:])
	k.blocks = k.blocks[:k.keptBlocks]
	k.block, k.keptBlocks, k.end = 0, 0, len(k.blocks)
	if k.Count == 0 {
		clear(k.Rules)
		k.Rules = k.Rules[:0]
	} else if len(k.Rules) > max(k.full, leastRules) {
		k.dropRules()
	}
}

// dropRules drops rules without keys. No visit may be under way.
func (k *Dirty) dropRules() {
	before := k.Rules
	k.Rules = make([]*rule.Rule, 0, len(before))
	for i := range k.blocks {
		b := &k.blocks[i]
		for j := range b.keys[:b.length] {
			b.keys[j].rule = k.number(before[b.keys[j].rule])
		}
	}
	k.full = 2 * len(k.Rules)
}

// inherit moves all keys of another list to the end of this list, even beyond maxDirty: no other
// worker knows of them.
func (k *Dirty) inherit(from *Dirty) {
	k.rewind()
	from.rewind()
	for i := range from.blocks {
		b := &from.blocks[i]
		for j := range b.keys[:b.length] {
			b.keys[j].rule = k.number(from.Rules[b.keys[j].rule])
		}
		b.calmUntil = 0 // its time is by another clock
	}
	k.blocks = append(k.blocks, from.blocks...)
	k.Count += from.Count
	k.end = len(k.blocks)
	*from = Dirty{}
}
