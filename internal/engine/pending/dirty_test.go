package pending

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/engine/rule"
	"weir/internal/must"
	"weir/internal/nightly"
	"weir/sharedata"
)

const (
	start = int64(1_700_000_000e9)
	sec   = int64(1e9)
)

// Whatever is added, dropped, put off, left half visited or inherited: keys come in the order in
// which they were added, and none that is due is passed over because of a block that is thought to
// be calm.
func TestDirtyKeysAreVisitedInOrder(t *testing.T) {
	t.Parallel()
	type key struct {
		number int64 // in place of notBefore
		due    int64
		rule   *rule.Rule
	}
	for seed := range nightly.Or[uint64](20, 4) {
		random := rand.New(rand.NewPCG(seed, 7))
		rules := make([]rule.Rule, 5)
		list := &Dirty{}
		var model []key
		now, number := start, int64(0)
		add := func(to *Dirty, n int) (added []key) {
			for range n {
				due := now + random.Int64N(8*sec)
				r := &rules[random.IntN(len(rules))]
				number++
				to.Add(sharedata.Address{}, r, counter.DueAt(due))
				last := &to.blocks[len(to.blocks)-1]
				last.keys[last.length-1].notBefore = number
				added = append(added, key{number, due >> 20 << 20, r})
			}
			return added
		}
		for range 300 {
			now += random.Int64N(sec / 2)
			model = append(model, add(list, random.IntN(400))...)
			if random.IntN(20) == 0 {
				other := &Dirty{}
				inherited := add(other, random.IntN(1000))
				list.inherit(other)
				model = append(model, inherited...)
			}
			whole := list.block == 0 && list.at == 0
			left := random.IntN(3000) // keys, after which the visit is left
			var visited []int64
			for ; left > 0 && list.more(); list.skip() {
				if list.block == 0 && list.at == 0 {
					visited = visited[:0] // another visit
				}
				if list.Calm(now) {
					continue
				}
				for {
					d, ok := list.next()
					if !ok {
						break
					}
					if in := d.Due.In(now); in > 0 {
						list.keep(*d, now, now+in-dueSlack)
						continue
					}
					if left--; left < 0 {
						break
					}
					visited = append(visited, d.notBefore)
					if i := slices.IndexFunc(model, func(k key) bool { return k.number == d.notBefore }); i < 0 || model[i].rule != list.Rules[d.rule] {
						t.Fatalf("seed %d: key %d is not there, or of another rule", seed, d.notBefore)
					} else {
						model = slices.Delete(model, i, i+1)
					}
					list.forget()
				}
				if left < 0 {
					break
				}
			}
			must.EqualOrEnd(t, list.Count, len(model), "seed %d: keys", seed)
			must.EqualOrEnd(t, slices.IsSorted(visited), true, "seed %d: in order: %v", seed, visited)
			if list.block == len(list.blocks) {
				list.rewind()
				for _, k := range model {
					if whole && k.due <= now {
						t.Fatalf("seed %d: key %d was due %v ago and not visited", seed, k.number, time.Duration(now-k.due))
					}
				}
			}
		}
	}
}

// Keys that come as fast as others are pushed have no key wait for ever, nor the list grow.
func TestVisitsEndWhileKeysCome(t *testing.T) {
	t.Parallel()
	list, r := &Dirty{}, &rule.Rule{}
	const kept = counter.Due(7)
	list.Add(sharedata.Address{}, r, kept)
	for range 20 * dirtyBlockKeys {
		list.Add(sharedata.Address{}, r, counter.DueAt(start))
	}
	seen, most := 0, 0
	for range 2000 {
		for pushed := 0; pushed < dirtyBlockKeys; {
			if list.block == len(list.blocks) {
				list.rewind()
			}
			list.more()
			d, ok := list.next()
			switch {
			case !ok:
				list.skip()
			case d.Due == kept:
				seen++
				list.keep(*d, start, 0)
			default:
				pushed++
				list.forget()
				list.Add(sharedata.Address{}, r, counter.DueAt(start))
			}
		}
		most = max(most, len(list.blocks))
	}
	if seen < 50 || most > 60 || list.Count != 20*dirtyBlockKeys+1 {
		t.Errorf("a key that stayed was visited %d times; there were %d blocks, and %d keys are left", seen, most, list.Count)
	}
}

// More keys than maxDirty are remembered only if another list had them, whose blocks are not
// copied. When all are gone, so are their rules, which may be those of a configuration that was
// replaced.
func TestDirtyKeysAreBounded(t *testing.T) {
	list, other, r := &Dirty{}, &Dirty{}, &rule.Rule{}
	for range maxDirty + 1000 {
		list.Add(sharedata.Address{}, r, 0)
		other.Add(sharedata.Address{}, r, 0)
	}
	must.Equal(t, [2]int{list.Count, len(list.blocks)}, [2]int{maxDirty, maxDirty / dirtyBlockKeys}, "keys, and blocks")
	inheriting, _ := must.Allocated(func() { list.inherit(other) })
	if list.Add(sharedata.Address{}, r, 0); list.Count != 2*maxDirty || other.Count != 0 || inheriting > 10 {
		t.Errorf("%d keys, and %d that were left, after %d allocations; want %d", list.Count, other.Count, inheriting, 2*maxDirty)
	}
	for visited := 0; list.block < len(list.blocks); visited++ {
		if _, ok := list.next(); ok {
			list.forget()
		} else {
			list.skip()
		}
	}
	if list.rewind(); list.Count != 0 || len(list.Rules) != 0 || len(list.blocks) != 0 || list.Rules[:1][0] != nil {
		t.Errorf("%d keys in %d blocks, and %d rules are left", list.Count, len(list.blocks), len(list.Rules))
	}
}

// A block is calm neither for a time before it was looked at, when the clock has jumped back, nor
// later than its first key is due.
func TestCalmIsBounded(t *testing.T) {
	t.Parallel()
	list, r := &Dirty{}, &rule.Rule{}
	list.Add(sharedata.Address{}, r, counter.DueAt(start+sec))
	list.Add(sharedata.Address{}, r, counter.DueAt(start+2*sec))
	for _, in := range []int64{sec, 2 * sec} {
		d, _ := list.next()
		list.keep(*d, start, start+in-dueSlack)
	}
	list.skip()
	list.rewind()
	for at, calm := range map[int64]bool{-1: false, 0: true, sec - dueSlack - 1: true, sec - dueSlack: false} {
		must.Equal(t, list.Calm(start+at), calm, "%v after it was looked at: calm is %v", time.Duration(at), !calm)
	}
	heir := &Dirty{}
	heir.inherit(list)
	must.Equal(t, heir.Calm(start), false, "calm by another's clock")
}

// However many variants there have been, the list of keys keeps those that keys have.
func TestVariantsAreForgotten(t *testing.T) {
	t.Parallel()
	rules := make([]rule.Rule, 40*leastRules)
	list := &Dirty{}
	for i := range rules {
		list.Add(sharedata.Address{}, &rules[i], 0)
		if i%16 == 15 {
			for n := 0; list.more(); list.skip() {
				for {
					key, ok := list.next()
					if !ok {
						break
					}
					if n++; n%16 == 1 && list.Count > 100 {
						list.keep(*key, 0, 0)
						continue
					}
					list.forget()
				}
			}
		}
	}
	list.rewind()
	must.AtMost(t, len(list.Rules), 3*leastRules, "rules of the list, for %d keys", list.Count)
}
