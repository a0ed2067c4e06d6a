package memory

import (
	"encoding/binary"
	"encoding/json"

	"weir/internal/store/far"
)

// A durable store remembers which senders have parts of the limits, and which limits of rules are
// listed. It does not remember which keys are near, or which versions senders have. So the next
// process begins as if all limits had been removed from the list: it leaves room for hits that
// senders may have advanced until they know that, and lists the limits again after it has found the
// near keys.

const (
	fleetRecord = 'f'
	partRecord  = 'p'
)

// IsFleet reports whether a record's key is about senders that advance hits. Versions of Weir
// without such records can't read them.
func IsFleet(key []byte) bool {
	return len(key) > 0 && (key[0] == fleetRecord || key[0] == partRecord)
}

type (
	fleetKey string
	partKey  owned
)

func (k fleetKey) appendKey(b []byte) []byte { return appendNamespace(b, fleetRecord, string(k)) }

func (k fleetKey) appendValue(b []byte, s *Store) ([]byte, bool) {
	f := s.fleets[string(k)]
	list, err := json.Marshal(&f.List)
	return append(binary.AppendUvarint(b, f.versions), list...), err == nil
}

func (k partKey) appendKey(b []byte) []byte { return owned(k).append(b, partRecord) }

func (k partKey) appendValue(b []byte, s *Store) ([]byte, bool) {
	f := s.fleets[k.namespace]
	if f == nil || f.of[k.id] == nil || f.of[k.id].divisor == 0 {
		return nil, false
	}
	p := f.of[k.id]
	return binary.AppendUvarint(binary.AppendUvarint(b, p.divisor), p.sequence), true
}

// fleet returns the fleet of a namespace, and makes it if necessary.
func (r *restoring) fleet(namespace string) *fleet {
	if f := r.fleets[namespace]; f != nil {
		return f
	}
	return r.newFleet(namespace, r.calendar.NowNanos)
}

// readFleet reads the reserved versions of the list of near keys, and its limits.
func (r *restoring) readFleet(namespace string, v *reader) error {
	f := r.fleet(namespace)
	f.reserve(max(f.version, v.number()))
	list, ok := far.Parse(v.rest)
	if !ok {
		return errRecord
	}
	f.List, v.rest = list, nil
	f.Restart(f.version, r.calendar.NowNanos)
	f.begin()
	return nil
}

// readPart reads the part of a sender. Its last answer may have been just now.
func (r *restoring) readPart(of owned, v *reader) {
	f := r.fleet(of.namespace)
	p := &part{sender: of.id, divisor: v.number(), sequence: v.number(), answered: r.calendar.NowNanos}
	f.of[of.id] = p
	f.live = append(f.live, p)
	f.units += unitsOf(p.divisor)
}
