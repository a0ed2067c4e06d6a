package node

import (
	"weir/sharedata"
)

const (
	// refusalHold is how long a node relies on a refusal that it remembers.
	refusalHold = int64(1e9)
	// syncedHold is the same of a rule that synchronises. Another worker may have had an answer of
	// the backend's meanwhile: it is as if that had taken so much longer.
	syncedHold = refusalHold / 100

	refusalPlaces = 512 // a power of two
	refusalSize   = 192 // bytes; longer entries are not remembered
)

// refusals remembers payloads that have no room for a single hit. A client that goes on asking is
// refused from here, at no cost to shared data and the table's other users. The decision, and all
// that clients are told, is that of shared data: the algorithm makes it from the payload.
//
// For that the payload has to be what shared data has. Nothing is taken from an entry while not
// even one hit has room, and time makes room only where the payload tells so too. Payloads that
// change otherwise are not remembered: see [Node.rememberRefusal]. There are three exceptions,
// which refusalHold bounds. A configuration of the same namespace may have other limits, or count
// what it rejects, or what responses cost. Hits that lost every race may be added to a full entry.
// And an entry may be evicted, which loses what the payload still tells.
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

func (r *refusals) add(a sharedata.Address, rule int, payload []byte, now, hold int64) {
	if len(payload) > refusalSize {
		return
	}
	p := &r.places[a.Hash()%refusalPlaces]
	p.address, p.rule, p.length, p.at, p.hold = a, int32(rule), int32(len(payload)), now, hold
	copy(p.payload[:], payload)
}

// forget forgets what is remembered for an address: there is something to have again.
func (r *refusals) forget(a sharedata.Address) {
	if p := &r.places[a.Hash()%refusalPlaces]; p.address == a {
		p.length = 0
	}
}
