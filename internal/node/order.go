package node

import (
	"encoding/binary"

	"weir/sharedata"
)

// order is the order in which requests of a key wait for room, whatever worker of the process has them.
// It is in shared data, which has a list for each key that any wait for: of each request the worker, and
// the time at which it waits no more. A worker that dies leaves its requests in the lists. Others take them
// out when their time is over.
//
// Keys are spread over pages, as shared data never forgets a key. A page is a list of keys: the key's hash,
// the number of its requests, and these.
type order struct {
	data   sharedata.Data
	key    []byte // of the page, whose number is its last byte
	worker uint32
	page   []byte // that was read last
}

const (
	orderPages = 256
	orderHead  = 8 + 4
	orderEntry = 4 + 8
	// orderGrace is for how much longer than it waits a request keeps its place: its worker takes it out,
	// unless it has died.
	orderGrace = int64(200e6)
	// orderAttempts is how often a page is tried to be written, while others write it.
	orderAttempts = 64
)

// newOrder is that of a namespace. Another format needs another name.
func newOrder(o *Options) order {
	key := append(append([]byte("weir:"), o.Namespace...), ":order:"...)
	return order{data: o.Data, key: append(key, 0), worker: uint32(o.Random())}
}

// read reads the page of a key, and finds the key's requests in it.
func (o *order) read(a sharedata.Address) (entries []byte, at int, cas uint32) {
	hash := a.Hash()
	o.key[len(o.key)-1] = byte(hash % orderPages)
	var found bool
	if o.page, cas, found = o.data.Get(o.key, o.page); !found {
		o.page, cas = o.page[:0], sharedata.CreateOnly
	}
	for at = 0; len(o.page)-at >= orderHead; {
		size := int(binary.LittleEndian.Uint32(o.page[at+8:])) * orderEntry
		start := at + orderHead
		if size > len(o.page)-start {
			break // it is not ours
		}
		if binary.LittleEndian.Uint64(o.page[at:]) == hash {
			return o.page[start : start+size], at, cas
		}
		at = start + size
	}
	o.page = o.page[:at]
	return nil, at, cas
}

// waiting is how many requests wait for a key, and says whether the first of them is this worker's.
func (o *order) waiting(a sharedata.Address, now int64) (n int, mine bool) {
	entries, _, _ := o.read(a)
	for ; len(entries) > 0; entries = entries[orderEntry:] {
		if outlived(entries, now) {
			continue
		}
		if n++; n == 1 {
			mine = binary.LittleEndian.Uint32(entries) == o.worker
		}
	}
	return n, mine
}

// outlived reports whether the first request's worker has died.
func outlived(entries []byte, now int64) bool {
	return int64(binary.LittleEndian.Uint64(entries[4:]))+orderGrace < now
}

// join puts a request behind the others of its key, unless there are most of them.
func (o *order) join(a sharedata.Address, until, now int64, most int) (joined bool) {
	return o.change(a, now, func(kept []byte) ([]byte, bool) {
		if len(kept)/orderEntry >= most {
			return kept, false
		}
		kept = binary.LittleEndian.AppendUint32(kept, o.worker)
		return binary.LittleEndian.AppendUint64(kept, uint64(until)), true
	})
}

// leave takes a request out.
func (o *order) leave(a sharedata.Address, until, now int64) {
	o.change(a, now, func(kept []byte) ([]byte, bool) {
		for i := 0; i < len(kept); i += orderEntry {
			if binary.LittleEndian.Uint32(kept[i:]) == o.worker && int64(binary.LittleEndian.Uint64(kept[i+4:])) == until {
				return append(kept[:i], kept[i+orderEntry:]...), true
			}
		}
		return kept, false
	})
}

// change writes what is made of a key's requests, unless that is not ok.
func (o *order) change(a sharedata.Address, now int64, of func(kept []byte) (_ []byte, ok bool)) (changed bool) {
	for range orderAttempts {
		entries, at, cas := o.read(a)
		rest := o.page[at:]
		if len(rest) > 0 {
			rest = rest[orderHead+len(entries):]
		}
		var kept []byte
		for ; len(entries) > 0; entries = entries[orderEntry:] {
			if !outlived(entries, now) {
				kept = append(kept, entries[:orderEntry]...)
			}
		}
		kept, ok := of(kept)
		if !ok {
			return false
		}
		page := append(make([]byte, 0, len(o.page)+orderHead+orderEntry), o.page[:at]...)
		if len(kept) > 0 {
			page = binary.LittleEndian.AppendUint64(page, a.Hash())
			page = binary.LittleEndian.AppendUint32(page, uint32(len(kept)/orderEntry))
			page = append(page, kept...)
		}
		if page = append(page, rest...); o.data.Set(o.key, page, cas) {
			return true
		}
	}
	return false
}
