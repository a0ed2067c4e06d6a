package sharedata

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"weir/internal/must"
)

// A table that lends its pages has the same bytes as one that copies them, whatever is done with what was borrowed.
// Another slot reads what was written, and what is damaged is read as empty.
func TestBorrow(t *testing.T) {
	t.Parallel()
	var lends, copies Map
	var tables [2]*Table
	for i, data := range []*Map{&lends, &copies} {
		random := rand.New(rand.NewPCG(3, 9))
		options := Options{Namespace: "n", Capacity: 40}
		if data == &lends {
			options.Lends = data
		}
		tables[i] = must.Get(Open(data, options, random.Uint64))(t)
	}
	random := rand.New(rand.NewPCG(5, 8))
	var slots [2]Slot
	lent, evicted := 0, 0
	for step := range 50_000 {
		a := tables[0].Address(Group(random.Uint32N(3)), fmt.Append(nil, random.IntN(100)))
		length, change, meta, now := random.IntN(70), random.IntN(5), Meta{ExpiresNanos: random.Int64N(1e15), Use: uint16(random.Uint32())}, int64(step)*1e10
		payload := bytes.Repeat([]byte{byte(step)}, length)
		if random.IntN(500) == 0 {
			page := fmt.Appendf(nil, "weir2:n:%c%c%c", 0, 0, random.IntN(2))
			garbage := bytes.Repeat([]byte{byte(random.IntN(4))}, random.IntN(100))
			lends.Set(page, garbage, 0)
			copies.Set(page, garbage, 0)
		}
		for i, table := range tables {
			s := &slots[i]
			if i == 0 {
				table.Borrow(s, a)
			} else {
				table.Read(s, a)
			}
			if s.Lent() {
				lent++
			}
			switch old := s.Payload(); {
			case change == 0:
			case change == 1 && s.Found(): // as long as it was
				table.Write(s, bytes.Repeat([]byte{byte(step)}, len(old)), meta, now)
			case change == 2 && s.Found():
				for j := range old {
					old[j] += byte(step)
				}
				table.Rewrite(s, meta, now)
			default:
				table.Write(s, payload, meta, now)
				if s.Crowded() && i == 0 {
					evicted++
				}
			}
			if s.Corrupt() != slots[0].Corrupt() || s.Crowded() != slots[0].Crowded() || s.Found() != slots[0].Found() || !bytes.Equal(s.Payload(), slots[0].Payload()) {
				t.Fatalf("step %d: %x, and by a copy %x", step, slots[0].Payload(), s.Payload())
			}
		}
		slots[0].Return()
		for name, v := range copies.values {
			if got, _, found := lends.Get([]byte(name), nil); !found || !bytes.Equal(got, v.value) {
				t.Fatalf("step %d: page %x differs from %x by a copy", step, got, v.value)
			}
		}
		var other [2]Slot
		a = tables[0].Address(0, fmt.Append(nil, random.IntN(100)))
		if tables[0].Read(&other[0], a) != tables[1].Read(&other[1], a) || !bytes.Equal(other[0].Payload(), other[1].Payload()) {
			t.Fatalf("step %d: another slot reads %x, and by a copy %x", step, other[0].Payload(), other[1].Payload())
		}
	}
	for i := range lends.lent.pages {
		must.AtMost(t, cap(lends.lent.pages[i].value), tables[0].pageBytes, "bytes of memory of page %d", i)
	}
	if lends.Bytes() != copies.Bytes() || lent < 40_000 || evicted < 1000 {
		t.Errorf("%d bytes, and by copies %d; %d lent, %d evicted", lends.Bytes(), copies.Bytes(), lent, evicted)
	}
}

// Goroutines that change entries where they are, and others that copy pages and compare, lose nothing of each other.
func TestHold(t *testing.T) {
	t.Parallel()
	const each, keys = 3000, 3
	var data Map
	table := must.Get(Open(&data, Options{Namespace: "n", Capacity: 40, Lends: &data}, rand.Uint64))(t)
	addresses := make([]Address, keys)
	var s Slot
	for i := range addresses {
		addresses[i] = table.Address(1, fmt.Append(nil, i))
		_, found := table.Hold(addresses[i])
		must.EqualOrEnd(t, found, false, "holds an entry that nobody has written")
		table.Borrow(&s, addresses[i])
		table.Write(&s, make([]byte, 8), Meta{ExpiresNanos: 1e18}, 0)
		s.Return()
	}
	raise := func(payload []byte) { binary.LittleEndian.PutUint64(payload, binary.LittleEndian.Uint64(payload)+1) }
	ways := []func(s *Slot, a Address) (done bool){
		func(_ *Slot, a Address) bool {
			h, found := table.Hold(a)
			if found {
				raise(h.Payload())
				h.Changed(Meta{ExpiresNanos: 1e18, Use: 7})
				h.Let()
			}
			return found
		},
		func(s *Slot, a Address) bool {
			table.Read(s, a)
			raise(s.Payload())
			return table.Rewrite(s, Meta{ExpiresNanos: 1e18}, 0)
		},
		func(s *Slot, a Address) bool {
			defer s.Return()
			table.Borrow(s, a)
			raise(s.Payload())
			return table.Rewrite(s, Meta{ExpiresNanos: 1e18}, 0)
		},
	}
	var all sync.WaitGroup
	for way := range 2 * len(ways) {
		all.Go(func() {
			var s Slot
			for i := range each {
				for !ways[way%len(ways)](&s, addresses[i%keys]) {
					runtime.Gosched()
				}
			}
		})
	}
	all.Wait()
	sum := uint64(0)
	for _, a := range addresses {
		table.Read(&s, a)
		sum += binary.LittleEndian.Uint64(s.Payload())
	}
	must.Equal(t, sum, uint64(2*len(ways)*each), "changes")
	var copies Map
	table = must.Get(Open(&copies, Options{Namespace: "n", Capacity: 40}, rand.Uint64))(t)
	table.Read(&s, addresses[0])
	table.Write(&s, make([]byte, 8), Meta{ExpiresNanos: 1e18}, 0)
	_, found := table.Hold(addresses[0])
	must.Equal(t, found, false, "holds an entry of a table that lends nothing")
}
