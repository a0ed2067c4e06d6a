package wire

import (
	"math"
	"slices"
)

const (
	// MaxBusyKeys is the most keys of all windows and limits of a sample together, and MaxBusyWindows the
	// most windows of a limit.
	MaxBusyKeys    = 63
	MaxBusyWindows = MaxReportWindows / 2

	// wholeWindows is the hash in whose place a sample tells of windows as a whole.
	wholeWindows = math.MaxUint64
)

// BusyWindows are windows of the clock: Windows[i] is window Newest-i. Later ones have no hits.
type BusyWindows struct {
	Newest  uint64
	Windows []BusyWindow
}

// BusyWindow has the keys with most hits of a window.
type BusyWindow struct {
	// Hits are those of all keys, of the sample too. Floor is the most of a key that is neither in Keys nor
	// in the sample.
	Hits, Floor uint32
	Keys        []BusyKey
}

// BusyKey is a key that asked for Hits in a window, and for up to More besides.
type BusyKey struct {
	Hash       uint64
	Hits, More uint32
}

// pack is a sample's keys as they are sent: those that are busy are among them, with two numbers for
// each window. Their hashes are above the threshold, where a backend that does not know of them passes
// them over.
func (s *Sample) pack() []SampledKey {
	if len(s.Busy) == 0 || s.Threshold == wholeWindows {
		return s.Keys
	}
	keys := slices.Clone(s.Keys)
	places := map[uint64]int{}
	set := func(hash uint64, limit, age int, first, second uint32) {
		i, ok := places[hash]
		if !ok {
			i = len(keys)
			places[hash] = i
			keys = append(keys, SampledKey{Hash: hash, Asked: make([]AskedWindows, len(s.Busy))})
		}
		a := &keys[i].Asked[limit]
		a.Newest = s.Busy[limit].Newest
		for len(a.Hits) < 2*age {
			a.Hits = append(a.Hits, 0)
		}
		a.Hits = append(a.Hits, first, second)
	}
	for i := range s.Busy {
		for age := range s.Busy[i].Windows {
			w := &s.Busy[i].Windows[age]
			set(wholeWindows, i, age, w.Hits, w.Floor)
			for _, k := range w.Keys {
				set(k.Hash, i, age, k.Hits, k.More)
			}
		}
	}
	return keys
}

// unpack takes what pack has added out of the keys.
func (s *Sample) unpack(limits int) {
	whole := slices.IndexFunc(s.Keys, func(k SampledKey) bool { return k.Hash == wholeWindows })
	if whole < 0 || s.Threshold == wholeWindows {
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
	s.Keys = slices.DeleteFunc(s.Keys, func(k SampledKey) bool {
		for i := range s.Busy {
			a := k.Asked[i]
			for age := 0; len(a.Hits) > 1 && age < len(s.Busy[i].Windows) && a.Newest == s.Busy[i].Newest && k.Hash > s.Threshold && k.Hash != wholeWindows; age++ {
				if w := &s.Busy[i].Windows[age]; a.Hits[0]|a.Hits[1] != 0 {
					w.Keys = append(w.Keys, BusyKey{k.Hash, a.Hits[0], a.Hits[1]})
				}
				a.Hits = a.Hits[2:]
			}
		}
		return k.Hash > s.Threshold
	})
}
