package filter

import (
	"encoding/binary"

	"weir/internal/proxywasm"
	"weir/sharedata"
)

const (
	// shareEvery is how often a worker publishes the number of its places in shared data, in
	// nanoseconds. A worker that has not done so for goneAfter counts as gone.
	shareEvery = int64(1e9)
	goneAfter  = int64(15e9)
	// agedAtOnce bounds how many requests of a worker are checked for their age at a time.
	agedAtOnce = 4096
	shareSize  = 4 * 8
	// maxSharers is more than the workers of a proxy and its draining configurations.
	maxSharers = 1024
)

// inFlight sums up the places that requests hold in all workers of the process, for its metrics. A
// gauge has one value for the whole proxy, and no worker can add to it. So each worker publishes
// its part in shared data.
type inFlight struct {
	_ [0]func() // keeps Go from generating an equality function

	record    sharedata.Record
	worker    uint64
	sharedAt  int64
	published bool // this worker has published places
	// places is how many all workers hold. since is when the oldest of them was taken, by the
	// host's clock; 0 for none.
	places uint64
	since  int64
}

func newInFlight(data sharedata.Data, namespace string, worker uint64) inFlight {
	return inFlight{record: sharedata.NewRecord(data, namespace, "held"), worker: worker}
}

// sharePlaces publishes this worker's places and reads those of the others, if it is time to.
func (f *inFlight) sharePlaces(h *holders, now int64) {
	if since := now - f.sharedAt; since < shareEvery && since >= 0 {
		return
	}
	f.sharedAt = now
	since := h.since()
	written := f.record.Update(nil, func(value []byte) ([]byte, bool) {
		f.places, f.since = h.places, since
		next := make([]byte, 0, len(value)+shareSize)
		for ; len(value) >= shareSize; value = value[shareSize:] {
			worker, at := binary.LittleEndian.Uint64(value), int64(binary.LittleEndian.Uint64(value[8:]))
			if age := now - at; worker == f.worker || age > goneAfter || age < -goneAfter || len(next) >= maxSharers*shareSize {
				continue
			}
			next = append(next, value[:shareSize]...)
			f.places += binary.LittleEndian.Uint64(value[16:])
			if began := int64(binary.LittleEndian.Uint64(value[24:])); f.since == 0 || began != 0 && began < f.since {
				f.since = began
			}
		}
		if h.places > 0 {
			for _, n := range [...]uint64{f.worker, uint64(now), h.places, uint64(since)} {
				next = binary.LittleEndian.AppendUint64(next, n)
			}
		}
		return next, h.places > 0 || f.published
	})
	if written {
		f.published = h.places > 0
	}
}

// seconds is how long the oldest place has been held.
func (f *inFlight) seconds(now int64) uint64 {
	if f.since == 0 {
		return 0
	}
	return uint64(max(0, now-f.since)) / 1e9
}

// since is when the oldest place was taken, by the host's clock; 0 for none.
func (h *holders) since() (since int64) {
	at := h.first
	for range agedAtOnce {
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

// publishPlaces sets the proxy's gauges.
func (f *inFlight) publishPlaces(m *metrics, h *holders) {
	now := proxywasm.Now()
	f.sharePlaces(h, now)
	m.set(m.places, f.places)
	m.set(m.longest, f.seconds(now))
}
