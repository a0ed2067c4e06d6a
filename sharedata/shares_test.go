package sharedata

import (
	"math/rand/v2"
	"testing"

	"weir/internal/must"
)

// entries are some of a group, as short as they can be, with addresses of their own.
func entries(g Group, first, n uint64) (all []Address) {
	for i := range n {
		all = append(all, Address{lo: first + i, hi: uint64(g)})
	}
	return all
}

// left is how many of some entries there still are.
func left(table *Table, all []Address) (n int) {
	for _, a := range all {
		if hasAt(table, a) {
			n++
		}
	}
	return n
}

// A group that takes no more than an even part of a page loses none of its entries, however little
// they are used, and however many entries of other groups come that are at their limits.
func TestGroupsKeepTheirShares(t *testing.T) {
	t.Parallel()
	table := one(t, &fakeData{})
	var s Slot
	full, used := Meta{ExpiresNanos: now + 9*second, Use: 0x3f80}, Meta{ExpiresNanos: now + second, Use: 1}
	room := uint64(table.pageBytes-1) / payloadAt
	put := func(all []Address, meta Meta) {
		for _, a := range all {
			putAt(t, table, &s, a, nil, meta, now)
		}
	}
	alone := entries(1, 0, 10*room)
	put(alone, full)
	must.Equal(t, left(table, alone), int(room), "entries of a group that is alone, all of a page")
	second := entries(2, 0, room/2)
	put(second, used)
	must.Equal(t, [2]int{left(table, alone), left(table, second)}, [2]int{int(room - room/2), int(room / 2)}, "entries of two groups, of %d", room)
	third := entries(3, 0, room/3)
	put(third, used)
	for range 3 {
		put(entries(1, 100*room, 10*room), full)
		put(entries(2, 100*room, 10*room), full)
	}
	must.Equal(t, left(table, third), int(room/3), "left of the %d entries of a third group", room/3)
	put(entries(3, room, room), used)
	must.Equal(t, left(table, third) > 0, true, "a group's new entries leave some of its older ones of the same use")
}

// Whatever is written: no group makes room while another has more, and who makes room has the least
// use of its group.
func TestWhoseEntriesMakeRoom(t *testing.T) {
	t.Parallel()
	type entry struct {
		address Address
		length  int
		use     uint16
	}
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		table := one(t, &fakeData{})
		var s Slot
		kept := map[Address]entry{}
		for range 2000 {
			e := entry{
				address: Address{lo: random.Uint64N(60), hi: random.Uint64N(4)},
				length:  payloadAt + random.IntN(200), use: uint16(random.IntN(5)),
			}
			delete(kept, e.address)
			putAt(t, table, &s, e.address, make([]byte, e.length-payloadAt), Meta{ExpiresNanos: now + second, Use: e.use}, now)
			before, after := map[Group]int{e.address.group(): e.length}, map[Group]int{}
			var gone []entry
			for a, k := range kept {
				before[a.group()] += k.length
				if !hasAt(table, a) {
					gone = append(gone, k)
					delete(kept, a)
				}
			}
			for a, k := range kept {
				after[a.group()] += k.length
			}
			if after[e.address.group()] > 0 {
				after[e.address.group()] += e.length
			}
			for _, k := range gone {
				for _, stays := range kept {
					if stays.address.group() == k.address.group() && stays.use < k.use {
						t.Fatalf("an entry of use %d has gone, and one of %d of its group stays", k.use, stays.use)
					}
				}
				for g, n := range after {
					if had := before[k.address.group()]; had < n {
						t.Fatalf("group %d had %d bytes and lost an entry, group %d still has %d", k.address.group(), had, g, n)
					}
				}
			}
			kept[e.address] = e
		}
	}
}
