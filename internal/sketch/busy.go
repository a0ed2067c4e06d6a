package sketch

import "math"

const (
	// BusyWindows is how many windows a Sample keeps the keys with most hits of.
	BusyWindows = 8
	// BusyKeys is how many such keys it keeps per window.
	BusyKeys = 16
)

// Busy has the keys with most hits in a window.
type Busy struct {
	// Hits are those of all keys, and Floor is the most hits of a key that is not in Keys.
	Hits, Floor uint32
	Keys        []BusyKey
}

// BusyKey is a key that had Hits hits in a window, and possibly up to More in addition.
type BusyKey struct {
	Hash       uint64
	Hits, More uint32
}

// Most returns the most hits that the key may have had.
func (k *BusyKey) Most() uint32 { return sum32(k.Hits, uint64(k.More)) }

func sum32(a uint32, b uint64) uint32 {
	return uint32(min(uint64(a)+min(b, math.MaxUint32), math.MaxUint32))
}

// busy has the keys with most hits in the newest windows of a width. The keys of the newest window
// are a Space-Saving sketch, as in a [Heavy]. past has the windows before, the latest first.
type busy struct {
	newest uint64
	hits   uint32
	keys   []BusyKey
	past   [BusyWindows - 1]Busy
}

func newBusy() (b busy) {
	b.keys = make([]BusyKey, 0, Keys)
	for i := range b.past {
		b.past[i].Keys = make([]BusyKey, 0, BusyKeys)
	}
	return b
}

func (b *busy) add(number, hash, hits uint64) {
	if number > b.newest {
		b.turn(number)
	}
	if age := b.newest - number; age > 0 {
		if age < BusyWindows {
			b.past[age-1].late(hits)
		}
		return
	}
	b.hits = sum32(b.hits, hits)
	least := 0
	for i := range b.keys {
		k := &b.keys[i]
		if k.Hash == hash {
			k.Hits = sum32(k.Hits, hits)
			return
		}
		if k.Most() < b.keys[least].Most() {
			least = i
		}
	}
	k := BusyKey{Hash: hash, Hits: sum32(0, hits)}
	if len(b.keys) < Keys {
		b.keys = append(b.keys, k)
		return
	}
	k.More = b.keys[least].Most()
	b.keys[least] = k
}

// late adds hits to a window that has ended, because the clock has gone back. Their keys are
// unknown.
func (b *Busy) late(hits uint64) {
	b.Hits, b.Floor = sum32(b.Hits, hits), sum32(b.Floor, hits)
	for i := range b.Keys {
		b.Keys[i].More = sum32(b.Keys[i].More, hits)
	}
}

// turn begins a window.
func (b *busy) turn(number uint64) {
	for by := min(number-b.newest, BusyWindows); by > 0; by-- {
		last := b.past[BusyWindows-2]
		copy(b.past[1:], b.past[:])
		b.past[0] = b.running(last.Keys[:0])
		b.hits, b.keys = 0, b.keys[:0]
	}
	b.newest = number
}

// running returns the newest window. keys is memory for its keys.
func (b *busy) running(keys []BusyKey) Busy {
	w := Busy{Hits: b.hits}
	for _, k := range b.keys {
		at := len(keys)
		for at > 0 && keys[at-1].Most() < k.Most() {
			at--
		}
		switch {
		case len(keys) < BusyKeys:
			keys = append(keys, k)
		case at == BusyKeys:
			w.Floor = max(w.Floor, k.Most())
			continue
		default:
			w.Floor = max(w.Floor, keys[BusyKeys-1].Most())
		}
		copy(keys[at+1:], keys[at:])
		keys[at] = k
	}
	w.Keys = keys
	return w
}

// Busy returns the keys with most hits in the newest windows of a width, the newest first, and the
// number of the newest.
func (s *Sample) Busy(width int) (newest uint64, windows []Busy) {
	b := &s.busy[width]
	return b.newest, append([]Busy{b.running(nil)}, b.past[:]...)
}
