package filter

import (
	"encoding/binary"

	"weir/internal/proxywasm"
	"weir/sharedata"
)

const (
	// tellHeld is how often a worker publishes the number of its places in shared data, in
	// nanoseconds. A worker that has not done so for heldGone counts as gone.
	tellHeld = int64(1e9)
	heldGone = int64(15e9)
	// agedPerTell bounds how many requests of a worker are checked for their age at a time.
	agedPerTell = 4096
	heldSize    = 4 * 8
	// maxHeldTellers is more than the workers of a proxy and its draining configurations.
	maxHeldTellers = 1024
)

// heldShare sums up the places that requests hold in all workers of the process, for its metrics. A
// gauge has one value for the whole proxy, and no worker can add to it. So each worker publishes
// its part in shared data.
type heldShare struct {
	_ [0]func() // keeps Go from generating an equality function

	record sharedata.Record
	worker uint64
	toldAt int64
	holds  bool // rules hold places at all
	told   bool // this worker has told of places
	// places is how many all workers hold. since is when the oldest of them was taken, by the
	// host's clock; 0 for none.
	places uint64
	since  int64
}

func newHeldShare(data sharedata.Data, namespace string, worker uint64) heldShare {
	return heldShare{record: sharedata.NewRecord(data, namespace, "held"), worker: worker, holds: true}
}

// tell publishes this worker's places and reads those of the others, if it is time to.
func (s *heldShare) tell(h *holders, now int64) {
	if since := now - s.toldAt; since < tellHeld && since >= 0 {
		return
	}
	s.toldAt = now
	since := h.since()
	written := s.record.Update(nil, func(value []byte) ([]byte, bool) {
		s.places, s.since = h.places, since
		next := make([]byte, 0, len(value)+heldSize)
		for ; len(value) >= heldSize; value = value[heldSize:] {
			worker, at := binary.LittleEndian.Uint64(value), int64(binary.LittleEndian.Uint64(value[8:]))
			if age := now - at; worker == s.worker || age > heldGone || age < -heldGone || len(next) >= maxHeldTellers*heldSize {
				continue
			}
			next = append(next, value[:heldSize]...)
			s.places += binary.LittleEndian.Uint64(value[16:])
			if began := int64(binary.LittleEndian.Uint64(value[24:])); s.since == 0 || began != 0 && began < s.since {
				s.since = began
			}
		}
		if h.places > 0 {
			for _, n := range [...]uint64{s.worker, uint64(now), h.places, uint64(since)} {
				next = binary.LittleEndian.AppendUint64(next, n)
			}
		}
		return next, h.places > 0 || s.told
	})
	if written {
		s.told = h.places > 0
	}
}

// seconds is how long the oldest place has been held.
func (s *heldShare) seconds(now int64) uint64 {
	if s.since == 0 {
		return 0
	}
	return uint64(max(0, now-s.since)) / 1e9
}

// since is when the oldest place was taken, by the host's clock; 0 for none.
func (h *holders) since() (since int64) {
	at := h.first
	for range agedPerTell {
		if at == nil {
			break
		}
		if since == 0 || at.since < since {
			since = at.since
		}
		at = at.after
	}
	return since
}

// publish sets the proxy's gauges.
func (s *heldShare) publish(m *metrics, h *holders) {
	if !s.holds {
		return
	}
	now := proxywasm.Now()
	s.tell(h, now)
	m.places.set(s.places)
	m.longest.set(s.seconds(now))
}
