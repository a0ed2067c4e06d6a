package node

import (
	"encoding/binary"

	"weir/sharedata"
)

// excess is by how much keys of a rule are above a limit, as responses have cost more than there was.
// All workers of a process share it, whatever configuration they have: any of them may tell it last.
type excess struct {
	data sharedata.Data
	key  []byte
	// most counts until its window ends, and then later, if that ends later.
	most, later above
}

// above is hits above a limit, and the time from which they count no more.
type above struct {
	hits  uint64
	until int64
}

const excessSize = 4 * 8

// newExcess returns what a process knows of a rule of a namespace. Another format needs another
// name.
func newExcess(data sharedata.Data, namespace string, rule []byte) *excess {
	key := append(append([]byte("weir:"), namespace...), ":excess:"...)
	return &excess{data: data, key: append(key, rule...)}
}

// read takes what other workers have left.
func (x *excess) read() (cas uint32) {
	value, cas, found := x.data.Get(x.key, nil)
	if !found {
		return sharedata.CreateOnly
	}
	if len(value) == excessSize {
		x.most = above{binary.LittleEndian.Uint64(value), int64(binary.LittleEndian.Uint64(value[8:]))}
		x.later = above{binary.LittleEndian.Uint64(value[16:]), int64(binary.LittleEndian.Uint64(value[24:]))}
	}
	return cas
}

// note notes hits of a key.
func (x *excess) note(a above, now int64) {
	if x.covers(a) {
		return
	}
	const attempts = 8
	for range attempts {
		cas := x.read()
		if x.covers(a) {
			return
		}
		x.add(a, now)
		value := binary.LittleEndian.AppendUint64(make([]byte, 0, excessSize), x.most.hits)
		value = binary.LittleEndian.AppendUint64(value, uint64(x.most.until))
		value = binary.LittleEndian.AppendUint64(value, x.later.hits)
		value = binary.LittleEndian.AppendUint64(value, uint64(x.later.until))
		if x.data.Set(x.key, value, cas) {
			return
		}
	}
}

// covers reports whether at is never too low by some hits.
func (x *excess) covers(a above) bool {
	return a.hits <= x.most.hits && a.until <= x.most.until || a.hits <= min(x.most.hits, x.later.hits) && a.until <= x.later.until
}

// add adds hits, so that at is never too low by them, and no hits are kept longer than some count.
func (x *excess) add(a above, now int64) {
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

// at is by how many hits a key may be above a limit at a time.
func (x *excess) at(now int64) uint64 {
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
