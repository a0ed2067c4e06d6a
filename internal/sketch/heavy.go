// Package sketch summarises keys that are too many to keep, in bounded memory: the keys with most
// hits, by [Heavy], and a fair sample of all, by [Sample].
//
// After construction nothing here allocates. Nothing reads a clock, or is safe for concurrent use.
package sketch

import "encoding/binary"

const (
	// Keys is the number of keys in a Heavy.
	Keys = 64
	// MaxName is the longest name of a key, in bytes.
	MaxName = 128
)

// Heavy finds the keys with most hits by Space-Saving: Metwally, Agrawal and El Abbadi, "Efficient
// computation of frequent and top-k elements in data streams" (2005).
//
// A key's Count is at least its hits, and at most Error more. No absent key has more than
// [Heavy.Floor] hits. Floor and every Error are at most the sum of all hits divided by Keys.
type Heavy struct {
	entries []Entry
	names   [][MaxName]byte // nil if keys have no names
}

// Entry is a key of a Heavy.
type Entry struct {
	_ [0]func() // keeps Go from generating an equality function

	ID [16]byte
	// Count is the key's hits, and up to Error hits of other keys.
	Count, Error uint64
	// marks are the values of Count at the last two calls of [Heavy.Mark].
	marks [2]uint64
	// Use is the last reported share of the key's limit, in thousandths.
	Use uint16
	// Leased is how many hits of the key's process were leased and not used at the time At, and Pending how
	// many the backend had not heard of.
	Leased, Pending uint64
	At              int64

	nameSize uint8
	name     uint8 // index in names
}

// NewHeavy makes an empty Heavy, whose keys may have names if named is set.
func NewHeavy(named bool) (h Heavy) {
	h.entries = make([]Entry, 0, Keys)
	if named {
		h.names = make([][MaxName]byte, Keys)
	}
	return h
}

// Reset drops all keys.
func (h *Heavy) Reset() { h.entries = h.entries[:0] }

// Add adds hits of a key, and returns its entry, which is valid until the next Add.
func (h *Heavy) Add(id [16]byte, hits uint64) *Entry {
	least := 0
	low, high := binary.LittleEndian.Uint64(id[:]), binary.LittleEndian.Uint64(id[8:])
	for i := range h.entries {
		e := &h.entries[i]
		if binary.LittleEndian.Uint64(e.ID[:]) == low && binary.LittleEndian.Uint64(e.ID[8:]) == high {
			e.Count = sum(e.Count, hits)
			return e
		}
		if e.Count < h.entries[least].Count {
			least = i
		}
	}
	if n := len(h.entries); n < Keys {
		h.entries = append(h.entries, Entry{ID: id, Count: hits, name: uint8(n)})
		return &h.entries[n]
	}
	e := &h.entries[least]
	*e = Entry{ID: id, Count: sum(e.Count, hits), Error: e.Count, marks: [2]uint64{e.Count, e.Count}, name: e.name}
	return e
}

// Mark moves the beginning of the recent time to the last call but one.
func (h *Heavy) Mark() {
	for i := range h.entries {
		e := &h.entries[i]
		e.marks = [2]uint64{e.Count, e.marks[0]}
	}
}

// recent returns an entry's hits since the last call of Mark but one, as far as it existed then.
func (e *Entry) recent() uint64 { return e.Count - e.marks[1] }

// maxHits keeps sums from overflowing.
const maxHits = 1<<53 - 1

func sum(a, b uint64) uint64 { return min(a+min(b, maxHits), maxHits) }

// Named reports whether an entry has a name, or can't have one.
func (h *Heavy) Named(e *Entry) bool { return h.names == nil || e.nameSize > 0 }

// SetName sets the name of an entry, cut to MaxName bytes.
func (h *Heavy) SetName(e *Entry, name []byte) {
	e.nameSize = uint8(copy(h.names[e.name][:], name))
}

// Name returns the name of an entry, empty if it has none.
func (h *Heavy) Name(e *Entry) []byte {
	if h.names == nil {
		return nil
	}
	return h.names[e.name][:e.nameSize]
}

// Floor returns the most hits that an absent key may have.
func (h *Heavy) Floor() (floor uint64) {
	if len(h.entries) < Keys {
		return 0
	}
	floor = h.entries[0].Count
	for i := range h.entries {
		floor = min(floor, h.entries[i].Count)
	}
	return floor
}

// Key is a key of one Heavy or of two merged.
type Key struct {
	Entry
	Name []byte
	// Recent is the part of its hits since the last call of [Heavy.Mark] but one, as far as known.
	Recent uint64
}

// Merge returns the keys that one Heavy would have after the hits of both, most hits first, and at
// most Keys of them. No other key has more hits than floor.
func Merge(newer, older *Heavy) (keys []Key, floor uint64) {
	newerFloor, olderFloor := newer.Floor(), older.Floor()
	for i := range newer.entries {
		e := &newer.entries[i]
		k := Key{Entry: *e, Name: newer.Name(e), Recent: e.recent()}
		if o := older.find(e.ID); o != nil {
			k.Recent = sum(k.Recent, o.recent())
			k.Count, k.Error = sum(k.Count, o.Count), sum(k.Error, o.Error)
			if len(k.Name) == 0 {
				k.Name = older.Name(o)
			}
		} else {
			k.Count, k.Error = sum(k.Count, olderFloor), sum(k.Error, olderFloor)
		}
		keys = append(keys, k)
	}
	for i := range older.entries {
		if e := &older.entries[i]; newer.find(e.ID) == nil {
			k := Key{Entry: *e, Name: older.Name(e), Recent: e.recent()}
			k.Count, k.Error = sum(k.Count, newerFloor), sum(k.Error, newerFloor)
			keys = append(keys, k)
		}
	}
	sortKeys(keys)
	floor = sum(newerFloor, olderFloor)
	if len(keys) > Keys {
		floor = max(floor, keys[Keys].Count)
		keys = keys[:Keys]
	}
	return keys, floor
}

// sortKeys sorts by descending hits. There are few keys, and a sort for many would be most of the
// package's code.
func sortKeys(keys []Key) {
	for i := range keys {
		most := i
		for j := i + 1; j < len(keys); j++ {
			if keys[j].Count > keys[most].Count {
				most = j
			}
		}
		keys[i], keys[most] = keys[most], keys[i]
	}
}

func (h *Heavy) find(id [16]byte) *Entry {
	for i := range h.entries {
		if h.entries[i].ID == id {
			return &h.entries[i]
		}
	}
	return nil
}
