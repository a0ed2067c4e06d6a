package memory

import (
	"container/list"
	"encoding/binary"

	"weir/internal/share"
)

// A sender that got no answer sends its push again, so the store remembers the grants of pushes. A
// sender never has more than a few pushes unanswered. But a store can't tell which, but for the
// push at the floor. So it remembers all from the floor on, within bounds. A push whose grants are
// forgotten is still known by its sender's bits: it is not applied again, and its grants are of
// nothing. The hits that it was granted stay counted.
const (
	// senderGrantBytes bounds what is remembered of one sender. The plugin has eight batches out at
	// most. With the largest numbers in all of their takes these need a quarter of it.
	senderGrantBytes = 256 << 10
	// counterGrantBytes bounds the memory of all senders' grants, for each counter that the store
	// may have. leastGrantBytes is the bound in a store of few counters.
	counterGrantBytes = 64
	leastGrantBytes   = 1 << 20
	// grantOverhead is about what a push's grants take beside their units.
	grantOverhead = 256
)

// pushGrants holds the grants of a push's takes.
type pushGrants struct {
	sender       *sender
	sequence, at uint64
	units        []byte        // a varint for each take
	inSender     *list.Element // of its sender's
	inShare      *list.Element // of its namespace's
}

func (g *pushGrants) key() grantsKey {
	return grantsKey{owned{g.sender.namespace, g.sender.id}, g.sequence}
}

func (g *pushGrants) size() int { return grantOverhead + len(g.units) }

// add adds the next take's units.
func (g *pushGrants) add(units uint64) { g.units = binary.AppendUvarint(g.units, units) }

// each yields the units of n takes, zeros beyond those that were added.
func (g *pushGrants) each(n int, yield func(i int, units uint64)) {
	rest := g.units
	for i := range n {
		units, length := binary.Uvarint(rest)
		rest = rest[max(0, length):]
		yield(i, units)
	}
}

// senderGrants are those of a sender's pushes.
type senderGrants struct {
	bySequence map[uint64]*pushGrants
	oldest     list.List // as they were noted
	bytes      int
}

// of is a push's, nil if there are none.
func (s *senderGrants) of(sequence uint64) *pushGrants { return s.bySequence[sequence] }

// grants are those of all senders.
type grants struct {
	max     int
	shares  share.Shares[string, list.List] // as they were noted
	bytes   int
	dropped uint64 // before their sender's floor had passed them
	// forgotten, if it is not nil, is told of those of each push that go.
	forgotten func(*pushGrants)
}

// keep remembers a push's. If there is too much of its sender, those that were noted first make
// room, but not those of the push at its floor, which has no answer. If there is too much of all,
// those make room that were noted first of the namespace that has most.
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

// forget forgets a push's, if there are any.
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

// forgetSender forgets all of a sender's.
func (a *grants) forgetSender(s *sender) {
	for e := s.grants.oldest.Front(); e != nil; e = s.grants.oldest.Front() {
		a.forget(e.Value.(*pushGrants))
	}
}
