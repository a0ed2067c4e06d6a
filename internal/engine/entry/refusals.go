package entry

import (
	"weir/internal/counter"
	"weir/internal/engine/rule"
	"weir/sharedata"
)

const (
	// refusalHold is how long a node relies on a remembered refusal, in nanoseconds.
	refusalHold = int64(1e9)
	// syncedHold is the same for a rule that synchronises. An answer of the backend may have made
	// room meanwhile; the effect is that of an answer which came this much later.
	syncedHold = refusalHold / 100

	refusalPlaces = 512 // a power of two
	refusalSize   = 192 // bytes; longer entries are not remembered
)

// refusals are payloads without room for a single hit. A client that keeps asking is refused
// from here, at no cost to shared data and its other users. The decision, and everything that
// clients are told, is the same as by shared data, because the algorithm uses the same payload.
//
// The payload must equal that in shared data. Nothing is taken from an entry while not even one hit
// has room, and the passing of time makes room as the payload says. Payloads that change otherwise
// are not remembered: see Remember. There are three exceptions, bounded by
// refusalHold. Another configuration of the namespace may have other limits, or count rejected
// requests or costs of responses. Hits that lost every race may be added to a full entry. And an
// entry may be evicted, which loses the state that the payload still has.
type refusals struct {
	// marks have a byte of each place's address, and 0 for an empty place: most keys are not refused, and
	// these stay in the processor's cache.
	marks   [refusalPlaces]uint8
	places  [refusalPlaces]refusal
	payload []byte // an encoded counter
}

type refusal struct {
	address sharedata.Address
	rule    int32
	length  int32
	at      int64
	hold    int64
	payload [refusalSize]byte
}

// find returns the remembered payload for a check's key and rule; nil if there is none, or it is too old.
func (r *refusals) find(d *rule.Check, now int64) []byte {
	hash := d.Address.Hash()
	if r.marks[hash%refusalPlaces] != mark(hash) {
		return nil
	}
	p := &r.places[hash%refusalPlaces]
	if p.address != d.Address || int(p.rule) != d.Rule.Index || now < p.at || now-p.at > p.hold {
		return nil
	}
	return p.payload[:p.length]
}

// MayRefuse reports whether there may be a refusal of a check's key.
func (k *Entries) MayRefuse(d *rule.Check) bool {
	hash := d.Address.Hash()
	return k.refusals.marks[hash%refusalPlaces] == mark(hash)
}

func mark(hash uint64) uint8 { return uint8(hash>>56) | 1 }

// Refused reports whether the worker remembers that a check's key is refused. That needs no shared data, as
// long as not even one hit has room.
func (k *Entries) Refused(d *rule.Check, now int64) bool {
	payload := k.refusals.find(d, now)
	if payload == nil || d.Cost == 0 || !d.Counter.Load(&d.Rule.Rule, payload) {
		return false
	}
	d.Counter.Advance(now)
	return d.Decide(1, now) == counter.Rejected
}

// Remember remembers the counter of a refused check, if the entry will stay unchanged while it has no room:
// then requests add nothing to it, and give nothing back.
func (k *Entries) Remember(d *rule.Check, now int64) {
	if d.Rule.CountRejected || d.Rule.CostsLater || d.Rule.Blocks || d.Counter.Revocable() || d.Decide(1, now) != counter.Rejected {
		return
	}
	r := k.refusals
	r.payload = d.Counter.Append(r.payload[:0], now)
	if len(r.payload) > refusalSize {
		return
	}
	hold := refusalHold
	if d.Rule.Synced() {
		hold = syncedHold
	}
	hash := d.Address.Hash()
	r.marks[hash%refusalPlaces] = mark(hash)
	p := &r.places[hash%refusalPlaces]
	p.address, p.rule, p.length, p.at, p.hold = d.Address, int32(d.Rule.Index), int32(len(r.payload)), now, hold
	copy(p.payload[:], r.payload)
}

// Forget drops the refusal at an address, which may have room again.
func (k *Entries) Forget(a sharedata.Address) {
	if r, place := k.refusals, a.Hash()%refusalPlaces; r.places[place].address == a {
		r.marks[place] = 0
	}
}
