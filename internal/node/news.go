package node

import (
	"encoding/binary"

	"weir/internal/wire"
	"weir/sharedata"
)

// news is how a process hears of overrides. Each answer of the backend tells the version of the
// list. A worker that hears of another one asks for the list, part by part, and leaves it in shared
// data, where all workers find it at their next ticks. While nothing comes from the backend, one
// worker of the process asks.
type news struct {
	data    sharedata.Data
	key     []byte
	listKey []byte
	shared  sharedNews // as it was read or written last
	value   []byte

	// wants says that this worker asks for the list of the version wanted, of which it has parts. It
	// does so at once if asksAt is 0, and not before that time of the host's otherwise.
	wants  bool
	wanted uint64
	parts  []byte
	asksAt int64
	// told is the version that the worker tells.
	told     uint64
	building *building
}

// sharedNews is the part of news in shared data.
type sharedNews struct {
	// version is that of the list in shared data, which was left there at since by the host's clock.
	version uint64
	since   int64
	// confirmed is the backend's time of the last answer that told this version, or nearly.
	confirmed int64
	// asked is when the process has asked the backend for something last, by the host's clock, or
	// nearly. If it is 0, it never has.
	asked int64
	// emptied is the time in milliseconds of the newest notice of an emptied counter whose lease a
	// worker of the process has ended. Other workers leave those alone that came afterwards.
	emptied uint64
}

const (
	newsSize = 5 * 8
	// stale is for how long a version that was told is believed more than a lower one. One backend
	// of several knows of a change a little later than others. A store that has lost its memory goes
	// on telling the lower one.
	stale = int64(1e9)
	// spread is how long a version has to be in shared data until every worker decides by it: each
	// has ticked, with time to spare.
	spread = stale / 4
)

func newNews(data sharedata.Data, namespace string) news {
	// As with that of link, another format needs other names: versions of the plugin share them.
	key := append(append([]byte("weir:"), namespace...), ":news"...)
	return news{data: data, key: key, listKey: append(key[:len(key):len(key)], ":list"...)}
}

// read takes what other workers have left.
func (w *news) read() (cas uint32) {
	value, cas, found := w.data.Get(w.key, nil)
	if !found {
		return sharedata.CreateOnly
	}
	if len(value) == newsSize {
		w.shared = sharedNews{
			version:   binary.LittleEndian.Uint64(value),
			since:     int64(binary.LittleEndian.Uint64(value[8:])),
			confirmed: int64(binary.LittleEndian.Uint64(value[16:])),
			asked:     int64(binary.LittleEndian.Uint64(value[24:])),
			emptied:   binary.LittleEndian.Uint64(value[32:]),
		}
	}
	return cas
}

// update changes what workers share, and reports whether change has changed anything and this
// worker wrote it.
func (w *news) update(change func(r *sharedNews) bool) bool {
	const attempts = 8
	for range attempts {
		cas := w.read()
		next := w.shared
		if !change(&next) {
			return false
		}
		value := binary.LittleEndian.AppendUint64(w.value[:0], next.version)
		value = binary.LittleEndian.AppendUint64(value, uint64(next.since))
		value = binary.LittleEndian.AppendUint64(value, uint64(next.confirmed))
		value = binary.LittleEndian.AppendUint64(value, uint64(next.asked))
		value = binary.LittleEndian.AppendUint64(value, next.emptied)
		if w.value = value; w.data.Set(w.key, value, cas) {
			w.shared = next
			return true
		}
	}
	return false
}

// old reports whether a version that was told at a time of the backend's is less new than the one
// known. If the times are far apart, the backend's clock was set.
func (r *sharedNews) old(version uint64, at int64) bool {
	return version < r.version && at-r.confirmed < stale && r.confirmed-at < patience
}

// want has this worker ask for a list.
func (w *news) want(version uint64) { w.wants, w.wanted, w.parts, w.asksAt = true, version, nil, 0 }

// hurries reports whether there is something to ask for at once.
func (w *news) hurries() bool { return w.wants && w.asksAt == 0 }

// got ends that.
func (w *news) got() { w.wants, w.parts = false, nil }

// leave leaves a list to other workers, unless they know of a newer list.
func (w *news) leave(version uint64, list []byte, at, now int64) {
	if w.read(); w.shared.old(version, at) {
		return
	}
	w.value = append(binary.LittleEndian.AppendUint64(w.value[:0], version), list...)
	const attempts = 8
	for range attempts {
		_, cas, found := w.data.Get(w.listKey, nil)
		if !found {
			cas = sharedata.CreateOnly
		}
		if w.data.Set(w.listKey, w.value, cas) {
			break
		}
	}
	w.value = nil // it may be large
	w.update(func(r *sharedNews) bool {
		if r.old(version, at) {
			return false
		}
		r.version, r.since, r.confirmed = version, now, at
		return true
	})
}

// list returns the list in shared data, if it is of the version that is told there.
func (w *news) list() (list []byte, found bool) {
	value, _, found := w.data.Get(w.listKey, nil)
	if !found || len(value) < 8 || binary.LittleEndian.Uint64(value) != w.shared.version {
		return nil, false
	}
	return append([]byte(nil), value[8:]...), true
}

// building is a list on its way into a table.
type building struct {
	overrideTable
	reader   wire.OverrideReader
	listener Listener // nil if the owner is none
	rule     int      // that the last override was of
	// name is that of a rule, and key that of an override, as keys have them.
	name, key []byte
	// emptied is sharedNews.emptied when the building began, and newest what it is to be.
	emptied, newest uint64
}
