package node

import (
	"encoding/binary"
	"math"

	"weir/sharedata"
)

// order is the order in which requests of a key wait for room, whatever worker of the process has them. A
// request that begins to wait draws a ticket, and the lowest ticket of a key goes first.
//
// Each worker knows its own requests. Shared data has an entry of each worker for each key: how many requests
// wait, and the first one's ticket. So it costs the same to join or to leave, however many wait. An entry
// holds for a while, and its worker renews it: the entries of a worker that has died end.
//
// Keys are spread over pages, as shared data never forgets a key. A page has the next ticket of its keys, and
// their entries. Places that have ended go when anybody writes the page.
type order struct {
	data   sharedata.Data
	key    []byte // of the page, whose number is its last byte
	worker uint32
	page   []byte // that was read last, without the worker's own entry for the key that was asked for
}

// entry tells other workers of a worker's requests that wait for a key.
type entry struct {
	waiting int
	first   uint64 // the first one's ticket
	until   int64  // when the entry ends unless it is renewed
}

const (
	orderHead  = 8
	orderEntry = 8 + 4 + 4 + 8 + 8
	// entryHolds is for how long an entry holds, and entryRenews how long before its end it is renewed. A
	// worker whose ticks come too late finds its entry gone, and takes it again by the old tickets.
	entryHolds  = int64(10e9)
	entryRenews = int64(6e9)
	// entryAhead is how much later an entry may end than it holds: a worker may have read the clock before
	// another has, which writes the page first. An entry that ends even later is of a clock that has gone back.
	entryAhead = int64(1e9)
	// orderAttempts is how often a page is tried to be written, while others write it.
	orderAttempts = 64
)

// newOrder is that of a namespace. Another format needs another name.
func newOrder(o *Options) order {
	key := append(append([]byte("weir:"), o.Namespace...), ":order2:"...)
	return order{data: o.Data, key: append(key, 0), worker: uint32(o.Random())}
}

// others are the requests that wait for a key at other workers.
type others struct {
	waiting int
	first   uint64 // the lowest of their tickets
	// told says that the worker has an entry of its own.
	told bool
}

// read reads the page of a key.
func (o *order) read(a sharedata.Address, now int64) (seen others, cas uint32) {
	hash := a.Hash()
	o.key[len(o.key)-1] = byte(hash)
	page, cas, found := o.data.Get(o.key, o.page)
	if !found {
		cas = sharedata.CreateOnly
	}
	if len(page)%orderEntry != orderHead {
		page = append(page[:0], make([]byte, orderHead)...)
	}
	seen.first = math.MaxUint64
	kept := page[:orderHead]
	for rest := page[orderHead:]; len(rest) > 0; rest = rest[orderEntry:] {
		if left := int64(binary.LittleEndian.Uint64(rest[24:])) - now; left < 0 || left > entryHolds+entryAhead {
			continue
		}
		if binary.LittleEndian.Uint64(rest) == hash {
			if binary.LittleEndian.Uint32(rest[8:]) == o.worker {
				seen.told = true
				continue
			}
			seen.waiting += int(binary.LittleEndian.Uint32(rest[12:]))
			seen.first = min(seen.first, binary.LittleEndian.Uint64(rest[16:]))
		}
		kept = append(kept, rest[:orderEntry]...)
	}
	o.page = kept
	return seen, cas
}

// write writes the page of a key that was read, with the worker's entry for it, unless nobody waits there.
func (o *order) write(a sharedata.Address, p entry, cas uint32) (written bool) {
	if p.waiting > 0 {
		o.page = binary.LittleEndian.AppendUint64(o.page, a.Hash())
		o.page = binary.LittleEndian.AppendUint32(o.page, o.worker)
		o.page = binary.LittleEndian.AppendUint32(o.page, uint32(p.waiting))
		o.page = binary.LittleEndian.AppendUint64(o.page, p.first)
		o.page = binary.LittleEndian.AppendUint64(o.page, uint64(p.until))
	}
	return o.data.Set(o.key, o.page, cas)
}

// join draws a ticket for one more request of the worker's, unless most wait already. The entry is that of
// the others.
func (o *order) join(a sharedata.Address, p entry, now int64, most int) (ticket uint64, joined bool) {
	for range orderAttempts {
		seen, cas := o.read(a, now)
		if seen.waiting+p.waiting >= most {
			return 0, false
		}
		ticket, with := binary.LittleEndian.Uint64(o.page), p
		if with.waiting++; p.waiting == 0 {
			with.first = ticket
		}
		binary.LittleEndian.PutUint64(o.page, ticket+1)
		if o.write(a, with, cas) {
			return ticket, true
		}
	}
	return 0, false
}

// tell has others know of the worker's entry.
func (o *order) tell(a sharedata.Address, p entry, now int64) (told bool) {
	for range orderAttempts {
		if _, cas := o.read(a, now); o.write(a, p, cas) {
			return true
		}
	}
	return false
}
