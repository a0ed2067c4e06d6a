package sharedata

import (
	"fmt"
	"testing"

	"weir/internal/must"
)

// A visitor sees each entry that has not expired, once, with its group, and changes nothing.
func TestVisit(t *testing.T) {
	t.Parallel()
	data := &fakeData{}
	if _, found := Find(data, "test"); found || data.Len() != 0 {
		t.Errorf("a table is found that nobody has made, and %d keys", data.Len())
	}
	table := open(t, data, 1000)
	want := map[string]int{}
	var s Slot
	for i := range 500 {
		group, expires := table.Group([]byte{byte(i % 3)}), now+second*int64(1+i%2*10)
		key := fmt.Sprint("key-", i)
		table.Read(&s, table.Address(group, []byte(key)))
		must.EqualOrEnd(t, table.Write(&s, []byte(key), Meta{ExpiresNanos: expires}, now), true, "a write is lost")
		if i%2 == 1 {
			want[fmt.Sprint(group, key)]++
		}
	}
	other := must.Get(Open(data, Options{Namespace: "other", Capacity: 10}, random(2)))(t)
	put(other, &s, "another's", []byte("another's"), Meta{ExpiresNanos: now + 10*second}, now)
	before := data.Numbers

	found, ok := Find(data, "test")
	if !ok || found.ID() != table.ID() {
		t.Fatalf("another table is found: %t", ok)
	}
	seen := map[string]int{}
	found.Visit(now+4*second, func(g Group, payload []byte) { seen[fmt.Sprint(g, string(payload))]++ })
	must.Same(t, seen, want, "entries that are seen")
	must.Equal(t, *before, *data.Numbers, "something was written")
}

// Pages of forms that nobody writes are seen as far as they make sense.
func FuzzVisit(f *testing.F) {
	data := &fakeData{}
	table := open(f, data, 10)
	var s Slot
	for i := range 3 {
		put(table, &s, fmt.Sprint("k", i), make([]byte, 10*i), Meta{ExpiresNanos: now + second}, now)
	}
	f.Add(append([]byte(nil), s.page...))
	f.Add(s.page[:len(s.page)-3])
	f.Add([]byte{})
	f.Add([]byte{Format, 1, 2, 3})
	f.Add([]byte{Format + 1, 30, 0})
	f.Fuzz(func(t *testing.T, page []byte) {
		data := &fakeData{}
		table := open(t, data, 10)
		data.Map.Set(append(append([]byte(nil), table.name...), 0, 0, 0), page, 0)
		size := 0
		table.Visit(now, func(_ Group, payload []byte) { size += payloadAt + len(payload) })
		must.AtMost(t, size, len(page), "bytes that are seen of a page")
	})
}
