package rule

import (
	"encoding/binary"

	"weir/sharedata"
)

// Excess is by how much keys of a rule are above a limit because responses cost more than there was
// room for. All workers of a process share it, across configurations.
type Excess struct {
	record sharedata.Record
	// most counts until its window ends. later counts until then too, if its window ends later.
	most, later above
}

// above is a number of hits above a limit, and the time from which they no longer count.
type above struct {
	hits  uint64
	until int64
}

const excessSize = 4 * 8

// NewExcess returns the excess of a rule in a namespace, for this process.
func NewExcess(data sharedata.Data, namespace string, rule []byte) *Excess {
	return &Excess{record: sharedata.NewRecord(data, namespace, "excess:"+string(rule))}
}

// Read loads the state that other workers have written.
func (x *Excess) Read() {
	value, _ := x.record.Read(nil)
	x.take(value)
}

// take takes in the value of the record; other values than those of its size tell nothing.
func (x *Excess) take(value []byte) {
	if len(value) == excessSize {
		x.most = above{binary.LittleEndian.Uint64(value), int64(binary.LittleEndian.Uint64(value[8:]))}
		x.later = above{binary.LittleEndian.Uint64(value[16:]), int64(binary.LittleEndian.Uint64(value[24:]))}
	}
}

// note records hits above a limit.
func (x *Excess) note(a above, now int64) {
	if x.covers(a) {
		return
	}
	x.record.Update(nil, func(value []byte) ([]byte, bool) {
		if x.take(value); x.covers(a) {
			return nil, false
		}
		x.add(a, now)
		value = binary.LittleEndian.AppendUint64(make([]byte, 0, excessSize), x.most.hits)
		value = binary.LittleEndian.AppendUint64(value, uint64(x.most.until))
		value = binary.LittleEndian.AppendUint64(value, x.later.hits)
		return binary.LittleEndian.AppendUint64(value, uint64(x.later.until)), true
	})
}

// covers reports whether at is already high enough for some hits at all times.
func (x *Excess) covers(a above) bool {
	return a.hits <= x.most.hits && a.until <= x.most.until || a.hits <= min(x.most.hits, x.later.hits) && a.until <= x.later.until
}

// add adds hits so that at is never too low, and keeps no hits longer than some count.
func (x *Excess) add(a above, now int64) {
	if x.most.until <= now {
		x.most, x.later = x.later, above{}
	}
	if a.hits > x.most.hits {
		x.most, a = a, x.most
	}
	if a.until > x.most.until {
		x.later = above{max(x.later.hits, a.hits), max(x.later.until, a.until)}
	}
	if x.later.until <= x.most.until {
		x.later = above{}
	}
}

// At is an upper bound of the hits by which a key exceeds a limit at a time.
func (x *Excess) At(now int64) uint64 {
	switch {
	case x == nil:
		return 0
	case now < x.most.until:
		return x.most.hits
	case now < x.later.until:
		return x.later.hits
	}
	return 0
}
