package wait

import (
	"encoding/binary"
	"math"

	"weir/sharedata"
)

// order is the order in which requests for a key wait for room, across the workers of the process.
// A request draws a ticket when it begins to wait, and the lowest ticket of a key goes first.
//
// Each worker knows its own requests. Shared data has an entry per worker and key: how many
// requests wait, and the ticket of the first. So joining and leaving cost the same, however many
// wait. An entry expires unless its worker renews it, so the entries of a dead worker end.
//
// Keys are spread over pages, because shared data never forgets a key. A page has the next ticket
// of its keys, and their entries. Any write of the page drops expired entries.
type order struct {
	record sharedata.Record // of the page, which is numbered by its last byte
	worker uint32
	page   []byte // last read, without the worker's own entry for the key asked for
}

// entry describes a worker's waiting requests for a key to other workers.
type entry struct {
	waiting int
	first   uint64 // the ticket of the first request
	until   int64  // when the entry ends unless it is renewed
}

const (
	orderHead  = 8
	orderEntry = 8 + 4 + 4 + 8 + 8
	// entryHolds is how long an entry is valid, and entryRenews how long before its end it is
	// renewed, in nanoseconds. If a worker's ticks come too late, its entry is gone, and it adds it
	// again with the old tickets.
	entryHolds  = int64(10e9)
	entryRenews = int64(6e9)
	// entryAhead is how much later than entryHolds an entry may end: its worker may have read the
	// clock before another worker that writes the page first. An entry that ends even later is from
	// a clock that has gone back.
	entryAhead = int64(1e9)
)

// newOrder returns the order of a namespace, for a worker of it.
func newOrder(data sharedata.Data, namespace string, worker uint32) order {
	return order{record: sharedata.NewRecord(data, namespace, "order2:\x00"), worker: worker}
}

// others are the requests for a key that wait at other workers.
type others struct {
	waiting int
	first   uint64 // the lowest of their tickets
	// told means that the worker has an entry of its own.
	told bool
}

// read reads the page of a key.
func (o *order) read(a sharedata.Address, now int64) others {
	o.record.Number(byte(a.Hash()))
	page, _ := o.record.Read(o.page)
	return o.take(page, a, now)
}

// take takes in a key's page, without the worker's own entry for it.
func (o *order) take(page []byte, a sharedata.Address, now int64) (seen others) {
	hash := a.Hash()
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
	return seen
}

// with returns the page of a key after take, with the worker's entry for it, if it has requests
// there.
func (o *order) with(a sharedata.Address, p entry) []byte {
	if p.waiting > 0 {
		o.page = binary.LittleEndian.AppendUint64(o.page, a.Hash())
		o.page = binary.LittleEndian.AppendUint32(o.page, o.worker)
		o.page = binary.LittleEndian.AppendUint32(o.page, uint32(p.waiting))
		o.page = binary.LittleEndian.AppendUint64(o.page, p.first)
		o.page = binary.LittleEndian.AppendUint64(o.page, uint64(p.until))
	}
	return o.page
}

// join draws a ticket for one more request of the worker, unless most wait already. The entry is
// the worker's so far.
func (o *order) join(a sharedata.Address, p entry, now int64, most int) (ticket uint64, joined bool) {
	o.record.Number(byte(a.Hash()))
	joined = o.record.Update(o.page, func(page []byte) ([]byte, bool) {
		if o.take(page, a, now).waiting+p.waiting >= most {
			return nil, false
		}
		ticket = binary.LittleEndian.Uint64(o.page)
		binary.LittleEndian.PutUint64(o.page, ticket+1)
		with := p
		if with.waiting++; p.waiting == 0 {
			with.first = ticket
		}
		return o.with(a, with), true
	})
	return ticket, joined
}

// tell writes the worker's entry for other workers.
func (o *order) tell(a sharedata.Address, p entry, now int64) (told bool) {
	o.record.Number(byte(a.Hash()))
	return o.record.Update(o.page, func(page []byte) ([]byte, bool) {
		o.take(page, a, now)
		return o.with(a, p), true
	})
}
