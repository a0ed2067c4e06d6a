package sharedata

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/dchest/siphash"

	"weir/internal/must"
)

// one is a table of a single page, for which addresses may be chosen: they need not be hashes.
func one(t *testing.T, data Data) *Table {
	t.Helper()
	return open(t, data, 10)
}

// putAt writes an entry at an address.
func putAt(t *testing.T, table *Table, s *Slot, a Address, payload []byte, meta Meta, now int64) {
	t.Helper()
	table.Read(s, a)
	must.EqualOrEnd(t, table.Write(s, payload, meta, now), true, "%d bytes are not written at %x", len(payload), a)
}

// hasAt reports whether there is an entry at an address.
func hasAt(table *Table, a Address) bool {
	var s Slot
	return table.Read(&s, a)
}

// wantAt wants a payload at an address.
func wantAt(t *testing.T, table *Table, s *Slot, a Address, want []byte, words string, args ...any) {
	t.Helper()
	must.Equal(t, table.Read(s, a), true, words+": found", args...)
	must.Same(t, s.Payload(), want, words, args...)
}

// Workers with a plugin of another version read the same table: its bytes stay what they are.
func TestFormat(t *testing.T) {
	t.Parallel()
	data := &fakeData{}
	secret := []uint64{0x1716151413121110, 0x2726252423222120}
	drawn := 0
	table := must.Get(Open(data, Options{Namespace: "n", Capacity: 40}, func() uint64 {
		drawn++
		return secret[drawn-1]
	}))(t)
	lo, hi := siphash.Hash128(secret[0], secret[1], []byte("key"))
	must.Equal(t, table.Address(7, []byte("key")), Address{lo, hi>>32<<32 + 7}, "a key's address, its hash and its group")
	var s Slot
	a := Address{lo: 0x3736353433323130, hi: 0xc746454443424140}
	putAt(t, table, &s, a, []byte("payload"), Meta{ExpiresNanos: 3<<30 + 1, Use: 0x5150}, 0)
	putAt(t, table, &s, Address{lo: 1, hi: a.hi}, nil, Meta{}, 0)
	table.Read(&s, a)
	table.Rewrite(&s, Meta{ExpiresNanos: 4 << 30, Use: 0x6160}, 0)
	for name, want := range map[string]string{
		"weir2:n":              "02 1011121314151617 2021222324252627 02000000",
		"weir2:n:\x00\x00\x01": "02 1f00 6061 05000000 3031323334353637 40414243444546c7 7061796c6f6164 1800 0000 01000000 0100000000000000 40414243444546c7",
	} {
		got, _, _ := data.Get([]byte(name), nil)
		must.Equal(t, hex.EncodeToString(got), strings.ReplaceAll(want, " ", ""), "%q", name)
	}
}

// A header that no table writes is no table's.
func TestHeader(t *testing.T) {
	t.Parallel()
	pages := func(pages uint32) []byte {
		header := make([]byte, headerSize)
		header[0] = Format
		for i := range 4 {
			header[17+i] = byte(pages >> (8 * i))
		}
		return header
	}
	other := pages(1)
	other[0] = Format + 1
	for _, test := range []struct {
		name   string
		header []byte
		want   int
	}{
		{"a page", pages(1), 1},
		{"as many as there may be", pages(MaxCapacity), MaxCapacity},
		{"no page", pages(0), 100 / countersPerPage},
		{"too many", pages(MaxCapacity + 1), 100 / countersPerPage},
		{"another format", other, 100 / countersPerPage},
		{"longer", append(pages(1), 0), 100 / countersPerPage},
	} {
		data := &fakeData{}
		data.Set([]byte("weir2:test"), test.header, 0)
		must.Equal(t, open(t, data, 100).Pages(), test.want, "%s: pages", test.name)
	}
}

// All pages of a table have a name of their own, and are used evenly.
func TestPagesAreApart(t *testing.T) {
	t.Parallel()
	data := &fakeData{}
	table := open(t, data, MaxCapacity)
	table.pages = MaxCapacity
	var s Slot
	names := map[string]uint64{}
	for bit := range 24 {
		for _, number := range []uint64{1 << bit, 1<<bit - 1} {
			// The page of a number is that of the hashes which are this part of all.
			a := Address{hi: number << 40}
			must.EqualOrEnd(t, uint64(table.page(a)), number, "the page of %x", a.hi)
			table.Read(&s, a)
			if other, ok := names[string(s.name)]; ok && other != number {
				t.Errorf("pages %d and %d are both called %x", number, other, s.name)
			}
			names[string(s.name)] = number
		}
	}
	must.Equal(t, table.page(Address{hi: math.MaxUint64}), MaxCapacity-1, "the greatest hash is in page")
}

// An entry is found by all of its fingerprint: half of it is not enough.
func TestFingerprints(t *testing.T) {
	t.Parallel()
	table := one(t, &fakeData{})
	var s Slot
	all := []Address{{1, 1}, {1, 2}, {2, 1}, {2, 2}}
	for i, a := range all {
		must.Equal(t, hasAt(table, a), false, "%v is found before it is written", a)
		putAt(t, table, &s, a, []byte{byte(i)}, Meta{ExpiresNanos: now + second}, now)
	}
	for i, a := range all {
		wantAt(t, table, &s, a, []byte{byte(i)}, "payload at %v", a)
	}
}

// An entry stays until it expires, and makes room within a unit of time after that.
func TestExpiry(t *testing.T) {
	t.Parallel()
	const unit = int64(1 << 30)
	for _, test := range []struct {
		name            string
		expires, before int64 // it is there until then
		after           int64 // it has gone by then, -1 if it stays
	}{
		{"at a unit's start", 5 * unit, 5 * unit, 6 * unit},
		{"within a unit", 5*unit + 7, 5*unit + 7, 6 * unit},
		{"at a unit's end", 6*unit - 1, 6*unit - 1, 6 * unit},
		{"before the epoch", -unit, 0, unit},
		{"after what four bytes can say", math.MaxInt64, now, -1},
		{"at that time", math.MaxInt64, math.MaxInt64, -1},
		{"a unit after what they can say", (1 << 32) * unit, now, -1},
		{"at the end of what they can say", (1<<32 - 2) * unit, math.MaxInt64, -1},
		{"just before that", (1<<32 - 3) * unit, (1<<32 - 3) * unit, (1<<32 - 2) * unit},
	} {
		for _, way := range []string{"written", "written again"} {
			var s Slot
			table := one(t, &fakeData{})
			if way == "written" {
				putAt(t, table, &s, Address{1, 1}, []byte("old"), Meta{ExpiresNanos: test.expires}, 0)
			} else {
				putAt(t, table, &s, Address{1, 1}, []byte("old"), Meta{ExpiresNanos: 100 * unit}, 0)
				table.Read(&s, Address{1, 1})
				table.Rewrite(&s, Meta{ExpiresNanos: test.expires}, 0)
			}
			putAt(t, table, &s, Address{2, 2}, nil, Meta{}, test.before)
			must.Equal(t, hasAt(table, Address{1, 1}), true, "%s, %s: still there at %d", test.name, way, test.before)
			if test.after < 0 {
				continue
			}
			putAt(t, table, &s, Address{3, 3}, nil, Meta{}, test.after)
			must.Equal(t, hasAt(table, Address{1, 1}), false, "%s, %s: still there at %d", test.name, way, test.after)
		}
	}
}

// A page takes what it has room for, to the byte, and then gives up no more than it has to.
func TestFullPage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		more    int  // bytes than there is room for
		grows   bool // an entry that is there already
		evicted int
	}{
		{"a new entry fits", 0, false, 0},
		{"a new entry is a byte too long", 1, false, 1},
		{"a new entry takes the room of one, to the byte", 100, false, 1},
		{"a new entry takes the room of one and a byte", 101, false, 2},
		{"an entry grows as far as it can", 0, true, 0},
		{"an entry grows by a byte too many", 1, true, 1},
	} {
		table := one(t, &fakeData{})
		var s Slot
		live := Meta{ExpiresNanos: now + second, Use: 1}
		for i := range uint64(5) {
			putAt(t, table, &s, Address{i, 0}, make([]byte, 100-payloadAt), live, now)
		}
		left, at := table.pageBytes-len(s.page), Address{9, 0}
		if test.grows {
			left, at = left+100, Address{0, 0}
		}
		putAt(t, table, &s, at, make([]byte, left+test.more-payloadAt), live, now)
		evicted := 0
		s.Evicted(func([]byte) { evicted++ })
		if evicted != test.evicted || s.Crowded() != (evicted > 0) || len(s.page) > table.pageBytes || !hasAt(table, at) {
			t.Errorf("%s: %d have gone, want %d; the page has %d bytes of %d", test.name, evicted, test.evicted, len(s.page), table.pageBytes)
		}
	}
}

// Where an entry grows, expired entries go first, and are not told of.
func TestGrowsIntoExpired(t *testing.T) {
	t.Parallel()
	const unit = int64(1 << 30)
	table := one(t, &fakeData{})
	var s Slot
	for i := range uint64(4) {
		putAt(t, table, &s, Address{i, 0}, make([]byte, 100), Meta{ExpiresNanos: 5 * unit}, 0)
	}
	putAt(t, table, &s, Address{2, 0}, make([]byte, table.pageBytes-1-payloadAt), Meta{ExpiresNanos: 9 * unit}, 6*unit)
	must.Equal(t, s.Crowded(), false, "crowded")
	must.Equal(t, len(s.page), table.pageBytes, "bytes of the page")
}

// An entry that takes more or less room than before leaves those around it as they are.
func TestEntriesGrowAndShrink(t *testing.T) {
	t.Parallel()
	for _, length := range []int{0, 1, 49, 50, 51, 400} {
		for changed := range uint64(3) {
			table := one(t, &fakeData{})
			var s Slot
			for i := range uint64(3) {
				putAt(t, table, &s, Address{i, 0}, bytes.Repeat([]byte{byte(i)}, 50), Meta{ExpiresNanos: now + second}, now)
			}
			putAt(t, table, &s, Address{changed, 0}, bytes.Repeat([]byte{9}, length), Meta{ExpiresNanos: now + second}, now)
			for i := range uint64(3) {
				want := bytes.Repeat([]byte{byte(i)}, 50)
				if i == changed {
					want = bytes.Repeat([]byte{9}, length)
				}
				wantAt(t, table, &s, Address{i, 0}, want, "entry %d of %d bytes: entry %d", changed, length, i)
			}
		}
	}
}

// The longest payload is written, and a longer one is not.
func TestLongestPayload(t *testing.T) {
	t.Parallel()
	table := one(t, &fakeData{})
	var s Slot
	longest := bytes.Repeat([]byte{7}, MaxPayload)
	putAt(t, table, &s, Address{1, 1}, longest, Meta{}, now)
	wantAt(t, table, &s, Address{1, 1}, longest, "the longest payload")
	must.Equal(t, table.Write(&s, make([]byte, MaxPayload+1), Meta{}, now), false, "a payload is written whose length has no room")
}

// If a page makes no sense from somewhere on, the part before stays of use.
func TestDamagedPages(t *testing.T) {
	t.Parallel()
	data := &fakeData{}
	table := one(t, data)
	var s Slot
	for i := range uint64(3) {
		putAt(t, table, &s, Address{i, 0}, make([]byte, 100), Meta{ExpiresNanos: now + second}, now)
	}
	name, whole := bytes.Clone(s.name), bytes.Clone(s.page)
	for _, test := range []struct {
		name   string
		at     int // what is damaged, of a page with entries of 124 bytes
		length int
		cut    int // bytes from the end
		found  int // so many entries from the first on
	}{
		{name: "nothing", at: 249, length: 124, found: 3},
		{name: "the last entry is too short to be one", at: 249, length: payloadAt - 1, found: 2},
		{name: "the last entry has nothing but its head", at: 249, length: payloadAt, found: 3},
		{name: "the page ends with a head", at: 249, length: payloadAt, cut: 100, found: 3},
		{name: "the last entry reaches a byte too far", at: 249, length: 125, found: 2},
		{name: "the page ends a byte early", at: 249, length: 124, cut: 1, found: 2},
		{name: "the page ends within the last entry's head", at: 249, length: 124, cut: 101, found: 2},
		{name: "the second entry is empty", at: 125, length: 0, found: 1},
		{name: "the second entry has the third in it", at: 125, length: 248, found: 2},
	} {
		damage := func() {
			page := bytes.Clone(whole[:len(whole)-test.cut])
			page[test.at], page[test.at+1] = byte(test.length), byte(test.length>>8)
			data.Set(name, page, 0)
		}
		for i := range 3 {
			damage()
			must.Equal(t, table.Read(&s, Address{uint64(i), 0}), i < test.found, "%s: entry %d is found", test.name, i)
			must.Equal(t, s.Corrupt(), i >= test.found && test.name != "the second entry has the third in it", "%s: entry %d: corrupt", test.name, i)
		}
		// An entry that needs all of the page has the others evicted. None that makes no sense is
		// among them.
		damage()
		putAt(t, table, &s, Address{0, 0}, make([]byte, table.pageBytes-1-payloadAt), Meta{}, now)
		evicted := 0
		s.Evicted(func(payload []byte) { evicted++ })
		must.Equal(t, [2]int{evicted, len(s.page)}, [2]int{test.found - 1, table.pageBytes}, "%s: entries that are evicted, and bytes of the page", test.name)
	}
}

// Capacity and memory say how many pages there are, and how long.
func TestSizes(t *testing.T) {
	t.Parallel()
	const long = "a namespace of so many characters that its name alone is longer than all the memory of one counter"
	for _, test := range []struct {
		capacity, each int
		namespace      string
		pages, bytes   int // with the page's name
	}{
		{100, 96, "n", 6, 1600},
		{100, 10, "n", 6, 1600}, // the least that a counter may take
		{0, 96, "n", 1, 96},
		{-5, 96, "n", 1, 96},
		{1, 96, "n", 1, 96},
		{31, 96, "n", 1, 2976},
		{32, 96, "n", 2, 1536},
		{1000, 1000, "n", 125, 8000},  // of larger counters fewer share a page
		{1000, 5000, "n", 500, 10000}, // at least two
		{1000, 10000, "n", 500, 20000},
		{1 << 26, 96, "n", 1 << 20, 1536},
		{1, 96, long, 1, 1 + len("weir2:") + len(long) + len(":123")}, // a page has a byte at least
	} {
		table := must.Get(Open(&fakeData{}, Options{Namespace: test.namespace, Capacity: test.capacity, BytesPerCounter: test.each}, random(1)))(t)
		must.Equal(t, [2]int{table.Pages(), table.pageBytes + len(table.name) + numberSize}, [2]int{test.pages, test.bytes}, "%d counters of %d bytes: pages, and bytes of each", test.capacity, test.each)
	}
}

// A table that was made for another capacity has pages as large as that needs, up to a bound.
func TestSizesLater(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		capacity, each, bytes int
		fits                  bool
	}{
		{6, 96, 96, true}, {5, 96, 80, false}, {100, 96, 1600, true},
		{1024, 96, largestPage, true}, {1025, 96, largestPage, false},
		{1024, 5000, 4 * 5000, false}, {24, 5000, 4 * 5000, true}, // so that some of the largest have room
	} {
		data := &fakeData{}
		open(t, data, 100)
		table := must.Get(Open(data, Options{Namespace: "test", Capacity: test.capacity, BytesPerCounter: test.each}, random(1)))(t)
		must.Equal(t, [2]int{table.Pages(), table.pageBytes + len(table.name) + numberSize}, [2]int{6, test.bytes}, "capacity %d: pages, and bytes of each", test.capacity)
		must.Equal(t, table.Fits(test.capacity), test.fits, "capacity %d fits", test.capacity)
	}
}

// Counters of one filter are not evicted because those of another with the same table are small, whichever opened it first. The
// small ones have no more room for that.
func TestLargeCountersBesideSmall(t *testing.T) {
	t.Parallel()
	for _, order := range [][2]int{{96, 3165}, {3165, 96}} {
		data := &fakeData{}
		tables := map[int]*Table{}
		for _, each := range order {
			tables[each] = must.Get(Open(data, Options{Namespace: "test", Capacity: 1 << 16, BytesPerCounter: each}, random(1)))(t)
		}
		small, large := tables[96], tables[3165]
		var s Slot
		meta, log := Meta{ExpiresNanos: now + 3600*second}, bytes.Repeat([]byte{7}, 2400)
		putAt(t, large, &s, Address{1, 0}, log, meta, now)
		for i := range uint64(200) { // new counters, which are changed in their place, and grow
			putAt(t, small, &s, Address{2 + i, 1}, make([]byte, 8), meta, now)
			must.Equal(t, small.Read(&s, Address{2 + i, 1}) && small.Rewrite(&s, meta, now), true, "changed in its place")
			putAt(t, small, &s, Address{2 + i, 1}, make([]byte, 20), meta, now)
		}
		wantAt(t, large, &s, Address{1, 0}, log, "opened with %d first: the large counter", order[0])
		must.Between(t, len(s.page)-payloadAt-len(log), small.pageBytes-64, small.pageBytes, "bytes of the small counters")
		for i := range uint64(20) {
			putAt(t, large, &s, Address{300 + i, 0}, log, meta, now)
		}
		must.AtMost(t, len(s.page), large.pageBytes, "bytes of a page with logs")
	}
}

// Numbers of a table tell it from others, and an address from others, for tables of the caller's.
func TestNumbersOfATable(t *testing.T) {
	t.Parallel()
	data, seen := &fakeData{}, map[uint64]string{}
	for i := range 4 {
		name := fmt.Sprint("table ", i/2)
		table := must.Get(Open(data, Options{Namespace: name, Capacity: 10}, random(uint64(i))))(t)
		if other, ok := seen[table.ID()]; ok && other != name || !ok && i%2 == 1 {
			t.Errorf("%s and %q have the number %x", name, other, table.ID())
		}
		seen[table.ID()] = name
	}
	must.Equal(t, Address{1, 2}.Hash() == Address{2, 2}.Hash(), false, "two addresses have the same hash")
}
