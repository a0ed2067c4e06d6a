package node

import (
	"weir/sharedata"
)

const (
	// refusalHold is how long a node relies on a refusal that it remembers. Counters only grow:
	// hits that have no room then have none later, until the time that the entry itself tells. But
	// the answer's headers should not grow stale.
	refusalHold = int64(1e9)
	// revocableHold is the same where rules give hits back to each other, or nodes do.
	revocableHold = refusalHold / 100

	refusalPlaces = 512 // a power of two
	refusalSize   = 192 // bytes; longer entries are not remembered
)

// refusals remembers payloads that had no room for a request. Whoever goes on asking is refused
// from here, at no cost to shared data and the table's other users. The decision is that of shared
// data: the algorithm makes it from the payload.
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

// find is the payload that is remembered for an address. It is nil if there is none, or it is too
// old.
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
