package wire

import (
	"cmp"
	"math"
	"slices"
)

const (
	// MaxBusyKeys is the most keys of all windows and limits of a sample together.
	MaxBusyKeys = 63
	// MaxBusyWindows is the most windows of a limit.
	MaxBusyWindows = MaxReportWindows / 2

	// wholeWindows is the hash that stands for a window as a whole in a sample.
	wholeWindows = math.MaxUint64
)

// BusyWindows are consecutive windows of the clock: Windows[i] is window Newest-i. Older windows
// have no hits.
type BusyWindows struct {
	Newest  uint64
	Windows []BusyWindow
}

// BusyWindow has the keys with most hits in a window.
type BusyWindow struct {
	// Hits are those of all keys, including the sample. Floor is the most hits of a key that is
	// neither in Keys nor in the sample.
	Hits, Floor uint32
	Keys        []BusyKey
}

// BusyKey is a key that asked for Hits in a window, and for at most More in addition.
type BusyKey struct {
	Hash       uint64
	Hits, More uint32
}

// pack returns a sample's keys as they are sent: busy keys are among them, with two numbers for
// each window. Their hashes are above the threshold, where a backend that does not know of them
// ignores them.
func (s *Sample) pack() []SampledKey {
	if len(s.Busy) == 0 || s.Threshold == wholeWindows {
		return s.Keys
	}
	p := packed{append([]SampledKey(nil), s.Keys...), len(s.Keys), len(s.Busy)}
	for i := range s.Busy {
		b := &s.Busy[i]
		p.of(wholeWindows, i, b.Newest)
		for age := range b.Windows {
			w := &b.Windows[age]
			p.set(wholeWindows, i, b.Newest, age, w.Hits, w.Floor)
			for j := range w.Keys {
				p.set(w.Keys[j].Hash, i, b.Newest, age, w.Keys[j].Hits, w.Keys[j].More)
			}
		}
	}
	return p.keys
}

// packed has a sample's keys and, from an index on, the busy keys in the order of their hashes.
// They are few: a map, or a sort for many, would add more code to the plugin than all of this.
type packed struct {
	keys         []SampledKey
	from, limits int
}

// of returns the windows of a limit in which a key is busy.
//
//go:noinline
func (p *packed) of(hash uint64, limit int, newest uint64) *AskedWindows {
	at := p.from
	for at < len(p.keys) && p.keys[at].Hash < hash {
		at++
	}
	if at == len(p.keys) || p.keys[at].Hash != hash {
		p.keys = append(p.keys, SampledKey{})
		copy(p.keys[at+1:], p.keys[at:])
		p.keys[at] = SampledKey{Hash: hash, Asked: make([]AskedWindows, p.limits)}
	}
	a := &p.keys[at].Asked[limit]
	a.Newest = newest
	return a
}

//go:noinline
func (p *packed) set(hash uint64, limit int, newest uint64, age int, first, second uint32) {
	a := p.of(hash, limit, newest)
	if a.Hits == nil {
		a.Hits = make([]uint32, 0, MaxReportWindows)
	}
	if age < MaxBusyWindows {
		a.Hits = a.Hits[:2*age+2]
		a.Hits[2*age], a.Hits[2*age+1] = first, second
	}
}

// unpack removes from the keys what pack has added.
func (s *Sample) unpack(limits int) {
	whole := slices.IndexFunc(s.Keys, func(k SampledKey) bool { return k.Hash == wholeWindows })
	if whole < 0 || s.Threshold == wholeWindows || limits == 0 {
		return
	}
	s.Busy = make([]BusyWindows, limits)
	for i := range s.Busy {
		b, a := &s.Busy[i], s.Keys[whole].Asked[i]
		b.Newest = a.Newest
		for ; len(a.Hits) > 1; a.Hits = a.Hits[2:] {
			b.Windows = append(b.Windows, BusyWindow{Hits: a.Hits[0], Floor: a.Hits[1]})
		}
	}
	for _, k := range s.Keys {
		for i := range s.Busy {
			if k.Hash > s.Threshold && k.Hash != wholeWindows && k.Asked[i].Newest == s.Busy[i].Newest {
				s.Busy[i].add(k.Hash, k.Asked[i].Hits)
			}
		}
	}
	s.Keys = slices.DeleteFunc(s.Keys, func(k SampledKey) bool { return k.Hash > s.Threshold })
}

// add adds the hits that a key asked for in each window. Call it once for each key, in the order of
// their hashes.
func (b *BusyWindows) add(hash uint64, hits []uint32) {
	for i := range b.Windows {
		if len(hits) < 2 {
			return
		}
		w, k := &b.Windows[i], BusyKey{hash, hits[0], hits[1]}
		hits = hits[2:]
		at, there := slices.BinarySearchFunc(w.Keys, hash, func(k BusyKey, hash uint64) int { return cmp.Compare(k.Hash, hash) })
		if k.Hits|k.More != 0 && !there {
			w.Keys = slices.Insert(w.Keys, at, k)
		}
	}
}
