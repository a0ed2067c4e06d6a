package filter

import (
	"encoding/binary"

	"weir/internal/proxywasm"
	"weir/sharedata"
)

const (
	// tellHeld is how often a worker tells what its requests hold, in nanoseconds, and heldGone
	// after how long the others take one for gone that tells nothing any more.
	tellHeld = int64(1e9)
	heldGone = int64(15e9)
	// agedPerTell bounds the requests of a worker whose age is looked at.
	agedPerTell = 4096
	heldSize    = 4 * 8
	// maxHeldTellers is more than a proxy has workers, and configurations that still drain.
	maxHeldTellers = 1024
)

// heldShare is what the requests of all workers of the process hold, for its metrics. Each worker
// tells its part in shared data, as a gauge is one for all of them, and none can add to it.
type heldShare struct {
	_ [0]func() // or else Go makes a function that compares values

	data   sharedata.Data
	key    []byte
	worker uint64
	toldAt int64
	told   bool // that something is held
	// places are held by all, and since is when the first of these was taken, by the host's clock;
	// 0 if nothing is held.
	places uint64
	since  int64
}

// newHeldShare is that of a namespace. Another format needs another name.
func newHeldShare(data sharedata.Data, namespace string, worker uint64) heldShare {
	return heldShare{data: data, key: []byte("weir:" + namespace + ":held"), worker: worker}
}

// tell tells what a worker's requests hold, and takes in what others have told, if it is time for
// that.
func (s *heldShare) tell(h *holders, now int64) {
	if since := now - s.toldAt; since < tellHeld && since >= 0 {
		return
	}
	s.toldAt = now
	since := h.since()
	const attempts = 8
	for range attempts {
		value, cas, found := s.data.Get(s.key, nil)
		if !found {
			value, cas = nil, sharedata.CreateOnly
		}
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
		if h.places == 0 && !s.told {
			return
		}
		if h.places > 0 {
			for _, n := range [...]uint64{s.worker, uint64(now), h.places, uint64(since)} {
				next = binary.LittleEndian.AppendUint64(next, n)
			}
		}
		if s.data.Set(s.key, next, cas) {
			s.told = h.places > 0
			return
		}
	}
}

// seconds is for how long the place is held that was taken first.
func (s *heldShare) seconds(now int64) uint64 {
	if s.since == 0 {
		return 0
	}
	return uint64(max(0, now-s.since)) / 1e9
}

// since is when the first of the places was taken, by the host's clock; 0 if there is none.
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

// publish has the proxy's metrics say what is held.
func (s *heldShare) publish(m *metrics, h *holders) {
	if s.data == nil {
		return
	}
	now := proxywasm.Now()
	s.tell(h, now)
	m.places.set(s.places)
	m.longest.set(s.seconds(now))
}
