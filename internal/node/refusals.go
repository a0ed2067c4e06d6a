package node

import (
	"weir/sharedata"
)

const (
	// refusalHold is how long a node relies on a refusal that it remembers. Counters only grow, so
	// that what has no room then has none later either, until the time that the entry itself tells;
	// but the answer's headers should not grow stale.
	refusalHold = int64(1e9)
	// revocableHold is the same where rules give hits back to each other, or nodes do.
	revocableHold = refusalHold / 100

	refusalPlaces = 512 // a power of two
	refusalSize   = 192 // bytes; longer entries are not remembered
)

// refusals remembers entries that had no room for a request. Somebody who goes on asking is refused
// from here, at no cost of shared data, and of the table's other users. The memory decides as
// shared data would: from the entry, by the algorithm.
type refusals struct {
	places [refusalPlaces]refusal
}

type refusal struct {
	address sharedata.Address
	rule    int32
	length  int32
	at      int64
	hold    int64
	payload [refusalSize]byte
}

// find is the entry that was remembered for an address; nil if there is none, or it is too old.
func (r *refusals) find(a sharedata.Address, rule int, now int64) []byte {
	p := &r.places[a.Hash()%refusalPlaces]
	if p.length == 0 || p.address != a || int(p.rule) != rule || now < p.at || now-p.at > p.hold {
		return nil
	}
	return p.payload[:p.length]
}

func (r *refusals) add(a sharedata.Address, rule int, payload []byte, now int64, revocable bool) {
	if len(payload) > refusalSize {
		return
	}
	p := &r.places[a.Hash()%refusalPlaces]
	p.address, p.rule, p.length, p.at = a, int32(rule), int32(len(payload)), now
	copy(p.payload[:], payload)
	if p.hold = refusalHold; revocable {
		p.hold = revocableHold
	}
}
