package node

import (
	"weir/internal/counter"
	"weir/sharedata"
)

// dirtyKeys are the keys of which a node has hits to push, or leases to review, in the order in
// which they were added.
//
// There may be very many, in memory that never shrinks, on the thread that serves requests. So they
// are in blocks without pointers, which are used again. A block knows until when nobody needs to
// look at it.
type dirtyKeys struct {
	blocks []dirtyBlock
	idle   []*[dirtyBlockKeys]dirtyKey
	rules  []*Rule // of the keys
	// full is how many rules there may be before those are looked for that no key has any more. A
	// rule has a variant for each set of other limits that somebody asks for.
	full  int
	count int

	// A visit of all keys goes on from at in blocks[block], and ends before blocks[end]. Keys that
	// come meanwhile are for the next visit: otherwise kept keys would never be visited again while
	// others come as fast as they are pushed. Keys that were visited and kept are before kept in
	// blocks[block], and before keptBlocks in the list of blocks.
	block, keptBlocks, end int
	at, kept               int
}

// dirtyBlockKeys fill one of the runtime's size classes.
const dirtyBlockKeys = 256

// maxDirty bounds the keys that a list remembers. A key that finds no place is adopted by a later
// hit.
const maxDirty = 1 << 17

// leastRules are more than a configuration has.
const leastRules = 1 << 10

// dirtyKey is a key with hits to push, or to ask for.
type dirtyKey struct {
	address sharedata.Address
	// notBefore is when to try again, if the key could not be claimed when it was due.
	notBefore int64
	// due is the entry's: if the entry has another time, another worker has taken the key over.
	due  counter.Due
	rule uint32 // in dirtyKeys.rules
}

// hastyKey is a key of a rule that the backend decides, with hits that it should know of before the next
// request.
type hastyKey struct {
	address sharedata.Address
	rule    *Rule
}

type dirtyBlock struct {
	keys   *[dirtyBlockKeys]dirtyKey
	length int
	// From calmFrom on, and before calmUntil, no key of the block is due.
	calmFrom, calmUntil int64
}

// dueSlack is more than what a due time is rounded by.
const dueSlack = int64(1) << 21

// add adds a key, unless there are too many.
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

// number is a rule's place in the list of rules.
//
//go:noinline
func (k *dirtyKeys) number(r *Rule) uint32 {
	if int(r.number) >= len(k.rules) || k.rules[r.number] != r {
		r.number = uint32(len(k.rules))
		k.rules = append(k.rules, r)
	}
	return r.number
}

// more reports whether there is a block to visit. It begins the next visit if only that has one.
func (k *dirtyKeys) more() bool {
	if k.block >= k.end && k.block < len(k.blocks) {
		k.rewind()
	}
	return k.block < len(k.blocks)
}

// next is the key to visit next, if the visit has not come to the end of its block. Call keep with
// it, or forget.
func (k *dirtyKeys) next() (d *dirtyKey, ok bool) {
	if k.block == len(k.blocks) || k.at == k.blocks[k.block].length {
		return nil, false
	}
	return &k.blocks[k.block].keys[k.at], true
}

// keep keeps a key, and has the visit go on behind it. The reason to keep it holds until the time
// wake, seen from now.
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

// forget has the visit go on behind a key, which is dropped.
func (k *dirtyKeys) forget() {
	k.at++
	k.count--
}

// calm reports whether the visit is at the start of a block that has no key that is due.
func (k *dirtyKeys) calm(now int64) bool {
	b := &k.blocks[k.block]
	return k.at == 0 && b.calmFrom <= now && now < b.calmUntil
}

// skip has all the rest of a block stay, and the visit go on behind it.
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

// rewind ends a visit, and keeps the keys that it has not come to. They are all for the next visit.
func (k *dirtyKeys) rewind() {
	for k.block < len(k.blocks) {
		if k.at > 0 {
			k.blocks[k.block].calmUntil = 0 // not all of it was looked at
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

// dropRules forgets the rules that no key has any more. No visit is under way.
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

// inherit moves all keys of another list behind those of this list. It does so even if that makes
// more than maxDirty: nobody else has them.
func (k *dirtyKeys) inherit(from *dirtyKeys) {
	k.rewind()
	from.rewind()
	for i := range from.blocks {
		b := &from.blocks[i]
		for j := range b.keys[:b.length] {
			b.keys[j].rule = k.number(from.rules[b.keys[j].rule])
		}
		b.calmUntil = 0 // by another clock
	}
	k.blocks = append(k.blocks, from.blocks...)
	k.count += from.count
	k.end = len(k.blocks)
	*from = dirtyKeys{}
}
