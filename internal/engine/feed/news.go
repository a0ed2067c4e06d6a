package feed

import (
	"encoding/binary"

	"weir/internal/engine/entry"
	"weir/internal/engine/link"
	"weir/internal/wire"
	"weir/sharedata"
)

// news is how a process hears of overrides. Each answer of the backend names the version of the
// list. A worker that hears of another version asks for the list, part by part, and writes it to
// shared data, where all workers find it at their next tick. If the backend has not been heard
// from, one worker of the process asks.
type news struct {
	record sharedata.Record
	listed sharedata.Record // the list, behind its version
	shared sharedNews       // as last read or written

	// wants means that this worker asks for the list of the version wanted, of which it has parts.
	// It asks at once if asksAt is 0, and otherwise not before asksAt by the host's clock.
	// whole means that no change of an earlier list will do.
	wants  bool
	wanted uint64
	parts  []byte
	// leads is how much of the list has to be there before the others are told again that this worker asks.
	leads  int
	asksAt int64
	whole  bool
	// announced is the version that this worker has the backend know.
	announced uint64
	building  *building
}

// sharedNews is the part of news in shared data.
type sharedNews struct {
	// version is that of the list in shared data, written at since by the host's clock.
	version uint64
	since   int64
	// confirmed is the backend's time of the last answer with this version, approximately.
	confirmed int64
	// asked is when the process last asked the backend for anything, by the host's clock,
	// approximately; 0 for never.
	asked int64
	// emptied is the time, in milliseconds, of the newest notice of an emptied counter that a
	// worker of the process has applied. Other workers leave newer leases alone.
	emptied uint64
}

const (
	newsSize = 5 * 8
	// stale is how long a version outranks a lower version, in nanoseconds. One of several backends
	// may hear of a change a little later than the others. A store that has lost its memory keeps
	// reporting the lower version.
	stale = int64(1e9)
	// spread is how long a version must be in shared data until every worker decides by it: by then
	// each has had a tick.
	spread = stale / 4
)

// read loads the state that other workers have written.
func (w *news) read() {
	value, _ := w.record.Read(nil)
	w.take(value)
}

// take takes in the value of the record; other values than those of its size tell nothing.
func (w *news) take(value []byte) {
	if len(value) != newsSize {
		return
	}
	w.shared = sharedNews{
		version:   binary.LittleEndian.Uint64(value),
		since:     int64(binary.LittleEndian.Uint64(value[8:])),
		confirmed: int64(binary.LittleEndian.Uint64(value[16:])),
		asked:     int64(binary.LittleEndian.Uint64(value[24:])),
		emptied:   binary.LittleEndian.Uint64(value[32:]),
	}
}

// update changes the shared state, and reports whether change made a change and this worker wrote
// it.
func (w *news) update(change func(r *sharedNews) bool) bool {
	var next sharedNews
	written := w.record.Update(nil, func(value []byte) ([]byte, bool) {
		w.take(value)
		if next = w.shared; !change(&next) {
			return nil, false
		}
		value = binary.LittleEndian.AppendUint64(make([]byte, 0, newsSize), next.version)
		value = binary.LittleEndian.AppendUint64(value, uint64(next.since))
		value = binary.LittleEndian.AppendUint64(value, uint64(next.confirmed))
		value = binary.LittleEndian.AppendUint64(value, uint64(next.asked))
		return binary.LittleEndian.AppendUint64(value, next.emptied), true
	})
	if written {
		w.shared = next
	}
	return written
}

// old reports whether a version that was reported at a backend's time is older than the known
// version. If the times are far apart, the backend's clock was set.
func (r *sharedNews) old(version uint64, at int64) bool {
	return version < r.version && at-r.confirmed < stale && r.confirmed-at < link.Patience
}

// want makes this worker ask for a list.
func (w *news) want(version uint64) {
	w.wants, w.wanted, w.parts, w.leads, w.asksAt, w.whole = true, version, nil, 0, 0, false
}

// asksAtOnce reports whether this worker asks at once.
func (w *news) asksAtOnce() bool { return w.wants && w.asksAt == 0 }

// got ends the asking.
func (w *news) got() { w.wants, w.parts, w.leads = false, nil, 0 }

// leave writes a list to shared data, unless a newer list is there. The parts of the list may be in what
// [news.list] has returned.
func (w *news) leave(version uint64, at, now int64, parts ...[]byte) {
	size := 8
	for _, p := range parts {
		size += len(p)
	}
	value := binary.LittleEndian.AppendUint64(make([]byte, 0, size), version)
	for _, p := range parts {
		value = append(value, p...)
	}
	if w.read(); w.shared.old(version, at) {
		return
	}
	w.listed.Update(nil, func([]byte) ([]byte, bool) { return value, true })
	w.update(func(r *sharedNews) bool {
		if r.old(version, at) {
			return false
		}
		r.version, r.since, r.confirmed = version, now, at
		return true
	})
}

// list returns the list in shared data, if it has the version named there. It is valid until shared data is
// used again.
func (w *news) list() (list []byte, found bool) {
	value, _ := w.listed.Read(nil)
	if len(value) < 8 || binary.LittleEndian.Uint64(value) != w.shared.version {
		return nil, false
	}
	return value[8:], true
}

// building is a table in the making from a list.
type building struct {
	entry.OverrideTable
	reader   wire.OverrideReader
	listener entry.Listener // nil if the owner is not a Listener
	rule     int            // rule of the last override
	keys     bool           // some override is of a key
	// name is the encoded name of a rule, and key that of an override.
	name, key []byte
	// emptied is sharedNews.emptied at the beginning, and newest its next value.
	emptied, newest uint64
}
