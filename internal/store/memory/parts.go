package memory

import (
	"encoding/binary"

	"weir/internal/store"
	"weir/internal/wire"
)

// A durable store remembers which senders have parts of the limits, and which limits of rules are
// listed. It does not remember which keys are near, or which versions senders have. So the next
// process begins as if all limits had been removed from the list: it leaves room for hits that
// senders may have advanced until they know that, and lists the limits again after it has found the
// near keys.

const (
	fleetRecord = 'f'
	partRecord  = 'p'
	limitRecord = 'l'
)

// IsFleet reports whether a record's key is about senders that advance hits. Versions of Weir
// without such records can't read them.
func IsFleet(key []byte) bool {
	return len(key) > 0 && (key[0] == fleetRecord || key[0] == partRecord || key[0] == limitRecord)
}

type (
	fleetKey string
	partKey  owned
	limitKey struct {
		namespace string
		shape     wire.LimitCounter // without an identity
		max       uint64
	}
)

func (f *fleet) keyOf(l *nearLimit) limitKey { return limitKey{f.namespace, l.shape, l.max} }

func (k fleetKey) appendKey(b []byte) []byte { return appendNamespace(b, fleetRecord, string(k)) }

func (k fleetKey) appendValue(b []byte, s *Store) ([]byte, bool) {
	return binary.AppendUvarint(b, s.fleets[string(k)].versions), true
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

func (k limitKey) appendKey(b []byte) []byte {
	b = append(appendNamespace(b, limitRecord, k.namespace), k.shape.Kind, k.shape.Ordinal)
	return binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(b, k.shape.WidthMillis), k.shape.Precision), k.max)
}

func (k limitKey) appendValue(b []byte, s *Store) ([]byte, bool) {
	f := s.fleets[k.namespace]
	if f == nil {
		return nil, false
	}
	for _, l := range f.limits {
		if l.max != k.max || l.shape != k.shape {
			continue
		}
		for _, r := range l.rules {
			b = binary.BigEndian.AppendUint16(b, r.tag)
		}
		return b, true
	}
	return nil, false
}

// fleet returns the fleet of a namespace, and makes it if necessary.
func (r *restoring) fleet(namespace string) *fleet {
	if f := r.fleets[namespace]; f != nil {
		return f
	}
	return r.newFleet(namespace, r.calendar.NowNanos)
}

// readFleet reads the reserved versions of the list of near keys.
func (r *restoring) readFleet(namespace string, v *reader) {
	f := r.fleet(namespace)
	f.reserve(max(f.version, v.number()))
	f.base = f.version
}

// readPart reads the part of a sender. Its last answer may have been just now.
func (r *restoring) readPart(of owned, v *reader) {
	f := r.fleet(of.namespace)
	p := &part{sender: of.id, divisor: v.number(), sequence: v.number(), answered: r.calendar.NowNanos}
	f.of[of.id] = p
	f.live = append(f.live, p)
	f.units += unitsOf(p.divisor)
}

// readLimit reads a limit of rules.
func (r *restoring) readLimit(namespace string, k, v *reader) error {
	shape := wire.LimitCounter{Kind: k.byte(), Ordinal: k.byte()}
	shape.WidthMillis, shape.Precision = k.number(), k.number()
	most := k.number()
	if k.bad || !store.ValidCounter(shape) {
		return errRecord
	}
	l := r.fleet(namespace).newLimit(shape, most, r.calendar.NowNanos)
	for len(v.rest) > 0 {
		tag := v.next(2)
		if v.bad {
			return errRecord
		}
		// The rule was listed before all versions to come.
		l.rules = append(l.rules, nearRule{tag: binary.BigEndian.Uint16(tag), since: 1})
	}
	return nil
}

// settleFleets removes the limits from the lists.
func (r *restoring) settleFleets() {
	for _, f := range r.fleets {
		for _, l := range f.limits {
			l.unlisted = f.version
		}
	}
}
