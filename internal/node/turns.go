package node

import (
	"encoding/binary"

	"weir/sharedata"
)

// turnsApart is the least time between two turns for the worse that a host is told of. A backend that
// comes and goes would fill its log.
const turnsApart = int64(10e9)

// turn tells the host what pushes come to since a failure or an answer, if no node of the process has.
func (n *Node) turn(why Outcome) {
	if n.options.Turned != nil && n.link.tell(why, n.hostNow()) {
		n.options.Turned(why)
	}
}

// tell reports whether the process's host is to be told of an outcome, and notes that it was.
func (l *link) tell(why Outcome, now int64) bool {
	// A backend that is away is refused connections and misses answers in turns.
	if why >= 500 {
		why = PushLost
	}
	value, cas, found := l.data.Get(l.told, nil)
	before, apart := PushAnswered, true
	if !found {
		cas = sharedata.CreateOnly
	} else if len(value) == toldSize {
		before = Outcome(binary.LittleEndian.Uint16(value))
		ago := now - int64(binary.LittleEndian.Uint64(value[2:]))
		apart = ago < 0 || ago >= turnsApart
	}
	if why == before || why != PushAnswered && !apart {
		return false
	}
	value = binary.LittleEndian.AppendUint16(make([]byte, 0, toldSize), uint16(why))
	return l.data.Set(l.told, binary.LittleEndian.AppendUint64(value, uint64(now)), cas)
}

// toldSize is that of an outcome, and of the time at which a host was told.
const toldSize = 2 + 8
