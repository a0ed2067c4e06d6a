package sharedata

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"weir/internal/must"
)

const (
	now    = int64(1_767_571_200e9)
	second = int64(1e9)
)

func random(seed uint64) func() uint64 {
	return rand.New(rand.NewPCG(seed, 0)).Uint64
}

func open(t testing.TB, data Data, capacity int) *Table {
	t.Helper()
	return must.Get(Open(data, Options{Namespace: "test", Capacity: capacity}, random(1)))(t)
}

// put writes an entry until it wins, and reports whether it was there before.
func put(table *Table, s *Slot, key string, payload []byte, meta Meta, now int64) (found bool) {
	for {
		found = table.Read(s, table.Address(0, []byte(key)))
		if table.Write(s, payload, meta, now) {
			return found
		}
	}
}

func has(table *Table, key string) bool {
	var s Slot
	return table.Read(&s, table.Address(0, []byte(key)))
}

func TestEntriesKeepTheirPayload(t *testing.T) {
	t.Parallel()
	table := open(t, &fakeData{}, 1000)
	var s Slot
	want := map[string][]byte{}
	generator := rand.New(rand.NewPCG(2, 0))
	for i := range 4000 {
		key := fmt.Sprint("key", generator.IntN(300))
		payload := bytes.Repeat([]byte{byte(i)}, generator.IntN(60))
		must.EqualOrEnd(t, put(table, &s, key, payload, Meta{ExpiresNanos: now + second}, now), want[key] != nil, "%s: found", key)
		want[key] = payload
	}
	for key, payload := range want {
		wantAt(t, table, &s, table.Address(0, []byte(key)), payload, "%s", key)
	}
}

// A slot has an entry once it was read or written.
func TestFound(t *testing.T) {
	t.Parallel()
	table := open(t, &fakeData{}, 1000)
	var s Slot
	for _, found := range []bool{false, true} {
		if read := table.Read(&s, table.Address(0, []byte("k"))); read != found || s.Found() != found || s.Corrupt() {
			t.Errorf("read %v and found %v, corrupt %v, want %v", read, s.Found(), s.Corrupt(), found)
		}
		table.Write(&s, []byte("payload"), Meta{}, now)
		must.Equal(t, s.Found(), true, "what was written is found")
	}
}

// All workers that open a table at once agree on one, whoever was first.
func TestOpenTogether(t *testing.T) {
	t.Parallel()
	data := &fakeData{}
	tables := make([]*Table, 8)
	var workers sync.WaitGroup
	for i := range tables {
		workers.Go(func() {
			table, err := Open(data, Options{Namespace: "n", Capacity: 100}, random(uint64(i)))
			must.Report(t, err)
			tables[i] = table
		})
	}
	workers.Wait()
	for _, table := range tables {
		must.EqualOrEnd(t, table.Address(0, []byte("k")), tables[0].Address(0, []byte("k")), "two workers hash with different secrets")
	}
}

func TestOpenLater(t *testing.T) {
	t.Parallel()
	data := &fakeData{}
	var s Slot
	small := open(t, data, 100)
	put(small, &s, "k", []byte("kept"), Meta{ExpiresNanos: now + second}, now)
	large := open(t, data, 10_000)
	wantAt(t, large, &s, large.Address(0, []byte("k")), []byte("kept"), "after a changed capacity")
	if large.Pages() != small.Pages() || large.pageBytes != largestPage-len(large.name)-numberSize || large.Fits(10_000) || !small.Fits(100) {
		t.Errorf("got %d pages of %d bytes, after %d of %d", large.Pages(), large.pageBytes, small.Pages(), small.pageBytes)
	}
	data.Map.Set([]byte("weir2:test"), []byte("garbage"), 0)
	must.Equal(t, must.Get(Open(data, Options{Namespace: "test", Capacity: 100}, random(3)))(t).Pages(), 100/countersPerPage, "after a header of another form")
	data.before = func(op string) {
		if op == "set" {
			data.Map.Set([]byte("weir2:test"), []byte("garbage"), 0)
		}
	}
	data.Map.Set([]byte("weir2:test"), []byte("garbage"), 0)
	_, err := Open(data, Options{Namespace: "test", Capacity: 100}, random(3))
	must.Fails(t, err, "a table that can't be written")
}

// Versions of a program that have other formats may work beside each other on one shared data, as
// during an update: each leaves the table of the other as it is.
func TestAnotherFormatBeside(t *testing.T) {
	t.Parallel()
	data := &fakeData{}
	// Format 1 has a header with one page, and that page with an entry.
	others := map[string][]byte{"weir:test": make([]byte, headerSize), "weir:test:\x00\x00\x00": make([]byte, 1+payloadAt)}
	others["weir:test"][0], others["weir:test"][17] = 1, 1
	page := others["weir:test:\x00\x00\x00"]
	page[0], page[1], page[1+expiresAt+3] = 1, payloadAt, 0xff
	// And what a format to come may have, by the same rule.
	for name, value := range others {
		others[strings.Replace(name, "weir:", "weir3:", 1)] = append([]byte{3}, value[1:]...)
	}
	for name, value := range others {
		data.Set([]byte(name), value, 0)
	}
	var s Slot
	for range 2 { // workers
		table := open(t, data, 10)
		for i := range 100 {
			put(table, &s, fmt.Sprint("k", i), make([]byte, 40), Meta{ExpiresNanos: now + second}, now)
			must.EqualOrEnd(t, s.Corrupt(), false, "a page of another format was read")
		}
	}
	for name, value := range others {
		got, _, _ := data.Get([]byte(name), nil)
		must.Equal(t, string(got), string(value), "%q", name)
	}
}

// A flood of keys neither grows the table nor pushes out a key that is near its limit.
func TestFlood(t *testing.T) {
	t.Parallel()
	for _, capacity := range []int{1, 7, 10, 100, 10_000} {
		data := &fakeData{}
		table := open(t, data, capacity)
		var s Slot
		payload := make([]byte, 40)
		put(table, &s, "heavy", []byte("at its limit, and a little longer than the others"), Meta{ExpiresNanos: now + 3600*second, Use: 0x3f80}, now)
		bound := capacity*BytesPerCounter + len("weir2:test") + headerSize
		for i := range 20_000 + 4*capacity {
			put(table, &s, fmt.Sprint("spray", i), payload, Meta{ExpiresNanos: now + 7200*second, Use: 0x3c00}, now)
			if i%10_000 == 0 && data.Bytes() > bound {
				t.Fatalf("capacity %d: %d bytes after %d keys, want at most %d", capacity, data.Bytes(), i, bound)
			}
		}
		if !has(table, "heavy") && capacity > 1 {
			t.Errorf("capacity %d: a flood of keys pushed out the one at its limit", capacity)
		}
		t.Logf("capacity %d: %d bytes of shared data, %.1f a counter", capacity, data.Bytes(), float64(data.Bytes())/float64(capacity))
	}
}

func TestWhoMakesRoom(t *testing.T) {
	t.Parallel()
	data := &fakeData{}
	table := open(t, data, 10) // one page
	var s Slot
	payload := make([]byte, 250)
	live := Meta{ExpiresNanos: now + 10*second, Use: 2}
	put(table, &s, "heavy", payload, Meta{ExpiresNanos: now + 10*second, Use: 9}, now)
	put(table, &s, "older", payload, live, now)
	put(table, &s, "newer", payload, live, now)
	put(table, &s, "one more", payload, live, now)
	if has(table, "newer") || !has(table, "older") || !has(table, "heavy") || !has(table, "one more") {
		t.Error("of equals the newest should have made room")
	}
	evicted := 0
	s.Evicted(func(p []byte) {
		if evicted++; !bytes.Equal(p, payload) {
			t.Errorf("evicted: got %v", p)
		}
	})
	must.Equal(t, evicted, 1, "evicted payloads")
	put(table, &s, "light", payload, Meta{ExpiresNanos: now + 10*second, Use: 1}, now)
	put(table, &s, "another", payload, live, now)
	if has(table, "light") || !has(table, "older") || !has(table, "heavy") {
		t.Error("the least used should have made room")
	}
	put(table, &s, "later", payload, live, now+20*second)
	if has(table, "heavy") || has(table, "older") || !has(table, "later") {
		t.Error("expired entries should have gone first")
	}
	s.Evicted(func([]byte) { t.Error("an expired entry counts as evicted") })
	must.Equal(t, data.Len(), 2, "keys of shared data")
	put(table, &s, "later", make([]byte, 600), live, now+20*second)
	put(table, &s, "huge", make([]byte, 5000), live, now+20*second)
	if has(table, "later") || !has(table, "huge") {
		t.Error("an entry that fills its page alone should be kept alone")
	}
}

// Between every get and every set another worker writes the same page. Nobody's write is lost.
func TestEveryRaceIsLostOnce(t *testing.T) {
	t.Parallel()
	data := &fakeData{}
	mine, other := newCounting(t, data, nil), newCounting(t, data, nil)
	sets, interferes := 0, false
	data.before = func(op string) {
		if op != "set" {
			return
		}
		if sets++; interferes {
			interferes = false
			other.hit("k")
		}
	}
	for range 1000 {
		interferes = true
		mine.hit("k")
	}
	mine.wantCount(t, "k", 2000)
	must.Equal(t, sets, 3000, "writes, 1000 that are lost and 2000 that are not")
}

func TestHammer(t *testing.T) {
	t.Parallel()
	data := &fakeData{}
	const workers, hits, keys = 8, 5000, 20
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			worker := newCounting(t, data, map[bool]*Recent{true: {}}[w%2 == 0]) // half of them remember nothing
			for i := range hits {
				worker.hit(fmt.Sprint((i + w) % keys))
			}
		})
	}
	group.Wait()
	for key := range keys {
		newCounting(t, data, nil).wantCount(t, fmt.Sprint(key), workers*hits/keys)
	}
}

// Whatever shared data holds, reading and writing neither panics nor loses what is written then.
func FuzzPage(f *testing.F) {
	data := &fakeData{}
	table := open(f, data, 10)
	var s Slot
	for i := range 5 {
		put(table, &s, fmt.Sprint("k", i), bytes.Repeat([]byte{1}, 30*i), Meta{ExpiresNanos: now + second}, now)
	}
	f.Add(append([]byte(nil), s.page...), uint16(200))
	f.Add(s.page[:len(s.page)-3], uint16(900))
	f.Add([]byte{}, uint16(0))
	f.Add([]byte{Format, 1, 2, 3}, uint16(2000))
	f.Fuzz(func(t *testing.T, page []byte, size uint16) {
		data := &fakeData{}
		table := open(t, data, 10)
		var s Slot
		name := append(append([]byte(nil), table.name...), 0, 0, 0)
		data.Map.Set(name, page, 0)
		for _, key := range []string{"k3", "new"} {
			payload := make([]byte, size)
			found := table.Read(&s, table.Address(0, []byte(key)))
			if found && s.Corrupt() {
				t.Fatal("found an entry in a corrupt page")
			}
			if written := table.Write(&s, payload, Meta{ExpiresNanos: now + second}, now); written == (len(payload) > MaxPayload) {
				t.Fatalf("write of %d bytes: %v", len(payload), written)
			} else if !written {
				continue
			}
			s.Evicted(func([]byte) {})
			if !table.Read(&s, table.Address(0, []byte(key))) || !bytes.Equal(s.Payload(), payload) {
				t.Fatalf("%s is not what was written", key)
			}
		}
	})
}

// Pages that are too large, as the table was made for more, shrink when they are written, whatever
// is written.
func TestPagesShrink(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"place", "full"} {
		data := &fakeData{}
		large, small := open(t, data, 1000), open(t, data, 300)
		var s Slot
		meta := Meta{ExpiresNanos: now + second}
		for i := range 1000 {
			put(large, &s, fmt.Sprint(i), make([]byte, 40), meta, now)
		}
		before := data.Bytes()
		for i := range 1000 {
			if !small.Read(&s, small.Address(0, []byte(fmt.Sprint(i)))) {
				continue
			}
			if len(s.page) <= small.pageBytes {
				continue
			}
			s.Payload()[0] = 7
			var written bool
			if in == "place" {
				written = small.Rewrite(&s, meta, now)
			} else {
				written = small.Write(&s, bytes.Clone(s.Payload()), meta, now)
			}
			if !written || !s.Crowded() {
				t.Fatalf("%s: written %v", in, written)
			}
			if !small.Read(&s, small.Address(0, []byte(fmt.Sprint(i)))) || s.Payload()[0] != 7 || len(s.page) > small.pageBytes {
				t.Fatalf("%s: the page has %d bytes, want at most %d, with %v", in, len(s.page), small.pageBytes, s.Payload())
			}
		}
		if bound := 300*BytesPerCounter + 100; before <= bound || data.Bytes() > bound {
			t.Errorf("%s: from %d to %d bytes, want at most %d", in, before, data.Bytes(), bound)
		}
	}
}

// A slot that served one table serves another, and a slot that had a page of no use serves an empty
// page.
func TestSlotIsUsedAgain(t *testing.T) {
	t.Parallel()
	data := &fakeData{}
	table := open(t, data, 10)
	other := must.Get(Open(data, Options{Namespace: "another", Capacity: 10}, random(2)))(t)
	var s Slot
	put(table, &s, "k", []byte("one"), Meta{ExpiresNanos: now + second}, now)
	put(other, &s, "k", []byte("two"), Meta{ExpiresNanos: now + second}, now)
	for want, from := range map[string]*Table{"one": table, "two": other} {
		var fresh Slot
		wantAt(t, from, &fresh, from.Address(0, []byte("k")), []byte(want), "payload of its own table")
	}
	data.Map.Set(s.name, []byte{Format + 1}, 0)
	table, s = s.table, Slot{}
	if table.Read(&s, table.Address(0, []byte("k"))) || !s.Corrupt() {
		t.Error("a page of another format is not told")
	}
	if !put(table, &s, "k", []byte("new"), Meta{ExpiresNanos: now + second}, now) && !has(table, "k") {
		t.Error("nothing can be written there any more")
	}
}

// proxyData hands out its own memory where it gets no buffer, as a VM does.
type proxyData struct {
	*fakeData
	returned []byte
}

func (d *proxyData) Get(key, buffer []byte) ([]byte, uint32, bool) {
	if cap(buffer) > 0 {
		return d.fakeData.Get(key, buffer)
	}
	return d.fakeData.Get(key, d.returned)
}

// Slots that were never used before keep what they have read apart.
func TestNewSlotsAreApart(t *testing.T) {
	t.Parallel()
	data := &fakeData{}
	table := open(t, data, 100)
	var s Slot
	keys := []string{"a", "b", "c", "d", "e", "f"}
	for _, key := range keys {
		put(table, &s, key, []byte(key), Meta{ExpiresNanos: now + second}, now)
	}
	table = open(t, &proxyData{data, make([]byte, 0, 4096)}, 100)
	slots := make([]Slot, len(keys))
	for i, key := range keys {
		table.Read(&slots[i], table.Address(0, []byte(key)))
	}
	for i, key := range keys {
		must.Equal(t, string(slots[i].Payload()), key, "%q", slots[i].Payload())
	}
}
