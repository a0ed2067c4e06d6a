package memory

import (
	"container/list"
	"encoding/binary"

	"weir/internal/share"
)

// A sender that got no answer sends its push again, so the store remembers the grants of pushes.
// Only a few pushes of a sender are unanswered at a time. But the store can't tell which, except
// for the push at the floor. So it remembers the grants of all pushes from the floor on, within
// bounds. If the grants of a push are forgotten, its sequence is still known: the push is not
// applied again, and its takes get nothing. The hits of the first grants stay counted.
const (
	// senderGrantBytes bounds the remembered grants of a sender. The plugin has at most eight
	// unanswered pushes. If all of their takes have the largest numbers, they need a quarter of it.
	senderGrantBytes = 256 << 10
	// counterGrantBytes times MaxCounters bounds the grants of all senders. leastGrantBytes is the
	// bound of small stores.
	counterGrantBytes = 64
	leastGrantBytes   = 1 << 20
	// grantOverhead estimates the memory of a push's grants besides their units.
	grantOverhead = 256
)

// pushGrants has the grants of a push's takes.
type pushGrants struct {
	sender       *sender
	sequence, at uint64
	units        []byte        // a varint for each take
	inSender     *list.Element // in senderGrants.oldest
	inShare      *list.Element // in its namespace's share
}

func (g *pushGrants) key() grantsKey {
	return grantsKey{owned{g.sender.namespace, g.sender.id}, g.sequence}
}

func (g *pushGrants) size() int { return grantOverhead + len(g.units) }

// add appends the units of the next take.
func (g *pushGrants) add(units uint64) { g.units = binary.AppendUvarint(g.units, units) }

// each yields the units of n takes; zero for takes without an added unit.
func (g *pushGrants) each(n int, yield func(i int, units uint64)) {
	rest := g.units
	for i := range n {
		units, length := binary.Uvarint(rest)
		rest = rest[max(0, length):]
		yield(i, units)
	}
}

type senderGrants struct {
	bySequence map[uint64]*pushGrants
	oldest     list.List // in the order of the pushes
	bytes      int
}

// of returns the grants of a push; nil if there are none.
func (s *senderGrants) of(sequence uint64) *pushGrants { return s.bySequence[sequence] }

type grants struct {
	max     int
	shares  share.Shares[string, list.List] // in the order of the pushes
	bytes   int
	dropped uint64 // how many made room although the sender's floor had not passed them
	// forgotten, unless nil, is called for the grants of each push that are removed.
	forgotten func(*pushGrants)
}

// keep remembers the grants of a push. If its sender has too many bytes, the sender's oldest grants
// make room, except those of the push at the floor, which is unanswered. If all have too many
// bytes, the oldest grants of the largest namespace make room.
func (a *grants) keep(g *pushGrants) {
	own := &g.sender.grants
	if own.bySequence == nil {
		own.bySequence = make(map[uint64]*pushGrants)
	}
	own.bySequence[g.sequence] = g
	g.inSender, g.inShare = own.oldest.PushBack(g), a.shares.Grow(g.sender.namespace, g.size()).Of.PushBack(g)
	own.bytes += g.size()
	a.bytes += g.size()
	for own.bytes > senderGrantBytes {
		first := own.oldest.Front()
		if next := first.Next(); next != nil && first.Value.(*pushGrants).sequence == g.sender.floor {
			first = next
		}
		a.drop(first)
	}
	for a.bytes > a.max {
		a.drop(a.shares.MakesRoom(g.sender.namespace).Of.Front())
	}
}

func (a *grants) drop(e *list.Element) {
	a.dropped++
	a.forget(e.Value.(*pushGrants))
}

// forget removes the grants of a push. g may be nil.
func (a *grants) forget(g *pushGrants) {
	if g == nil {
		return
	}
	own := &g.sender.grants
	delete(own.bySequence, g.sequence)
	own.oldest.Remove(g.inSender)
	a.shares.Of(g.sender.namespace).Of.Remove(g.inShare)
	a.shares.Grow(g.sender.namespace, -g.size())
	own.bytes -= g.size()
	a.bytes -= g.size()
	if a.forgotten != nil {
		a.forgotten(g)
	}
}

func (a *grants) forgetSender(s *sender) {
	for e := s.grants.oldest.Front(); e != nil; e = s.grants.oldest.Front() {
		a.forget(e.Value.(*pushGrants))
	}
}
