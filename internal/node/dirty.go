package node

import (
	"weir/internal/counter"
	"weir/sharedata"
)

// dirtyKeys are a node's keys with hits to push or leases to review, in the order of their
// addition.
//
// There may be very many of them, in memory that never shrinks, on the thread that serves requests.
// So they are kept in reusable blocks without pointers, and a block knows until when none of its
// keys is due.
type dirtyKeys struct {
	blocks []dirtyBlock
	idle   []*[dirtyBlockKeys]dirtyKey
	rules  []*Rule // rules of the keys
	// full is the number of rules at which those without keys are dropped. A rule has a variant for
	// each set of other limits.
	full  int
	count int

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

// dirtyKey is a key with hits to push or a lease to review.
type dirtyKey struct {
	address sharedata.Address
	// notBefore is when to try again, if the key was due but could not be claimed.
	notBefore int64
	// due is the due time in the entry. If the entry has another, another worker has adopted the
	// key.
	due  counter.Due
	rule uint32 // in dirtyKeys.rules
}

// hastyKeys are keys with hits that the backend should hear of before the next request.
type hastyKeys []hastyKey

type hastyKey struct {
	address sharedata.Address
	rule    *Rule
}

// maxHasty bounds the keys that are pushed at once. Further keys wait until they are due.
const maxHasty = 1 << 10

func (k *hastyKeys) add(r *Rule, a sharedata.Address) {
	if len(*k) < maxHasty {
		*k = append(*k, hastyKey{a, r})
	}
}

func (k *hastyKeys) count() int { return len(*k) }

// take takes the last key out of the list.
func (k *hastyKeys) take() (*Rule, sharedata.Address) {
	last := len(*k) - 1
	key := (*k)[last]
	*k = (*k)[:last]
	return key.rule, key.address
}

func (k *hastyKeys) clear() { *k = (*k)[:0] }

type dirtyBlock struct {
	keys   *[dirtyBlockKeys]dirtyKey
	length int
	// From calmFrom until before calmUntil, no key of the block is due.
	calmFrom, calmUntil int64
}

// dueSlack is above the rounding of due times, in nanoseconds.
const dueSlack = int64(1) << 21

// add adds a key, unless the list is full.
func (k *dirtyKeys) add(address sharedata.Address, r *Rule, due counter.Due) {
	if k.count >= maxDirty {
		return
	}
	k.append(dirtyKey{address: address, rule: k.number(r), due: due})
}

func (k *dirtyKeys) append(d dirtyKey) {
	last := len(k.blocks) - 1
	if last < 0 || k.blocks[last].length == dirtyBlockKeys {
		var keys *[dirtyBlockKeys]dirtyKey
		if n := len(k.idle); n > 0 {
			keys, k.idle = k.idle[n-1], k.idle[:n-1]
		} else {
			keys = new([dirtyBlockKeys]dirtyKey)
		}
		k.blocks = append(k.blocks, dirtyBlock{keys: keys})
		last++
	}
	b := &k.blocks[last]
	b.keys[b.length] = d
	b.length++
	b.calmUntil = 0
	k.count++
}

// number returns the index of a rule in the list of rules.
//
//go:noinline
func (k *dirtyKeys) number(r *Rule) uint32 {
	if int(r.number) >= len(k.rules) || k.rules[r.number] != r {
		r.number = uint32(len(k.rules))
		k.rules = append(k.rules, r)
	}
	return r.number
}

// more reports whether this visit has another block. If not, it prepares the next visit.
func (k *dirtyKeys) more() bool {
	if k.block >= k.end && k.block < len(k.blocks) {
		k.rewind()
	}
	return k.block < len(k.blocks)
}

// next returns the next key to visit, until the end of its block. Call keep or forget with each.
func (k *dirtyKeys) next() (d *dirtyKey, ok bool) {
	if k.block == len(k.blocks) || k.at == k.blocks[k.block].length {
		return nil, false
	}
	return &k.blocks[k.block].keys[k.at], true
}

// keep keeps a key, and moves on. There is no reason to visit it again before wake.
func (k *dirtyKeys) keep(d dirtyKey, now, wake int64) {
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
func (k *dirtyKeys) forget() {
	k.at++
	k.count--
}

// calm reports whether the visit is at the start of a block without due keys.
func (k *dirtyKeys) calm(now int64) bool {
	b := &k.blocks[k.block]
	return k.at == 0 && b.calmFrom <= now && now < b.calmUntil
}

// skip keeps the rest of a block, and moves on.
func (k *dirtyKeys) skip() {
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

// unvisited reports whether this visit has blocks left.
func (k *dirtyKeys) unvisited() bool { return k.block < len(k.blocks) }

// ruleOf returns the rule of a key in the list.
func (k *dirtyKeys) ruleOf(key *dirtyKey) *Rule { return k.rules[key.rule] }

// rewind ends a visit. Keys that it has not reached stay for the next.
func (k *dirtyKeys) rewind() {
	for k.block < len(k.blocks) {
		if k.at > 0 {
			k.blocks[k.block].calmUntil = 0 // the visit did not see all of the block
		}
		k.skip()
	}
	clear(k.blocks[k.keptBlocks:])
	k.blocks = k.blocks[:k.keptBlocks]
	k.block, k.keptBlocks, k.end = 0, 0, len(k.blocks)
	if k.count == 0 {
		clear(k.rules)
		k.rules = k.rules[:0]
	} else if len(k.rules) > max(k.full, leastRules) {
		k.dropRules()
	}
}

// dropRules drops rules without keys. No visit may be under way.
func (k *dirtyKeys) dropRules() {
	before := k.rules
	k.rules = make([]*Rule, 0, len(before))
	for i := range k.blocks {
		b := &k.blocks[i]
		for j := range b.keys[:b.length] {
			b.keys[j].rule = k.number(before[b.keys[j].rule])
		}
	}
	k.full = 2 * len(k.rules)
}

// inherit moves all keys of another list to the end of this list, even beyond maxDirty: no other
// worker knows of them.
func (k *dirtyKeys) inherit(from *dirtyKeys) {
	k.rewind()
	from.rewind()
	for i := range from.blocks {
		b := &from.blocks[i]
		for j := range b.keys[:b.length] {
			b.keys[j].rule = k.number(from.rules[b.keys[j].rule])
		}
		b.calmUntil = 0 // its time is by another clock
	}
	k.blocks = append(k.blocks, from.blocks...)
	k.count += from.count
	k.end = len(k.blocks)
	*from = dirtyKeys{}
}
