package filter

import (
	"encoding/binary"

	"weir/proxywasm"
	"weir/sharedata"
)

// clock corrects the proxy's clock to the backend's, so that all nodes keep to the same windows. A worker that has had no answer
// yet takes the correction from shared data, where the others leave theirs: workers that disagree about the time would each take
// the other's counters for out of date.
type clock struct {
	offset int64 // what to add to the proxy's time
	trip   int64 // round trip of the answer that the offset is from
	seen   int64 // when that came; 0 if none has
	key    []byte
	shared int64 // the offset in shared data, as far as is known
}

func newClock(namespace string) clock {
	// No page of the table has a name of this length.
	return clock{key: []byte("weir:" + namespace + ":clock")}
}

// clockDrift is by how much an offset has to differ from the one in shared data to be written there.
const clockDrift = int64(10e6)

// read takes the offset that another worker has left, until there is one of this worker's own.
func (c *clock) read() {
	if c.seen != 0 {
		return
	}
	if value, _, found := (proxywasm.SharedData{}).Get(c.key); found && len(value) == 8 {
		c.shared = int64(binary.LittleEndian.Uint64(value))
		c.offset = c.shared
	}
}

// write leaves the offset for others. If another worker is faster, that one's is as good.
func (c *clock) write() {
	if c.offset-c.shared < clockDrift && c.shared-c.offset < clockDrift {
		return
	}
	data := proxywasm.SharedData{}
	_, cas, found := data.Get(c.key)
	if !found {
		cas = sharedata.CreateOnly
	}
	if data.Set(c.key, binary.LittleEndian.AppendUint64(nil, uint64(c.offset)), cas) {
		c.shared = c.offset
	}
}

// patience is for how long an answer with a short round trip is believed more than one with a longer.
const patience = int64(60e9)

// see takes in an answer's time. The backend read it somewhere in the round trip, so that an offset of less than half of that
// says nothing.
func (c *clock) see(sent, received, backend int64) {
	trip := received - sent
	if trip < 0 || trip > c.trip && c.seen != 0 && received-c.seen < patience && received >= c.seen {
		return
	}
	c.trip, c.seen = trip, received
	if c.offset = backend - sent - trip/2; -c.offset <= trip/2 && c.offset <= trip/2 {
		c.offset = 0
	}
}
