package node

import (
	"weir/internal/wire"
)

// known is what a push tells of overrides. One that asks, is of nothing else.
func (n *Node) known(asks bool) (k wire.Known) {
	w := &n.news
	if age := n.hostNow() - w.shared.since; n.overrides.version == w.shared.version && (age >= spread || age < 0) {
		w.told = n.overrides.version
	}
	k.Version, k.Unfit, k.Asks = w.told, uint64(n.overrides.unfit), asks
	if w.wants {
		k.Of, k.From = w.wanted, uint64(len(w.parts))
	} else {
		k.Of, k.From = w.shared.version, wire.MaxOverridesSize // all of it
	}
	return k
}

// hear takes in what the answer to a batch tells of overrides.
func (n *Node) hear(b *batch) {
	w, o, at := &n.news, &b.reader.Overrides, int64(b.reader.NowNanos)
	if !o.Told || n.options.Owner == nil {
		return
	}
	w.read()
	if o.Version == w.shared.version && (!w.wants || w.wanted != o.Version) {
		w.got()
		n.confirm(b.sentAt, at)
		return
	}
	if w.shared.old(o.Version, at) {
		return
	}
	if !w.wants || w.wanted != o.Version {
		w.want(o.Version)
	}
	if b.asks && o.From == uint64(len(w.parts)) {
		w.parts, w.asksAt = append(w.parts, o.Part...), 0
		if uint64(len(w.parts)) == o.Size {
			w.leave(o.Version, w.parts, at, n.hostNow())
			w.got()
		}
	}
}

// confirm notes that the backend has told the version that is known already.
func (n *Node) confirm(sentAt, at int64) {
	news := func(r *sharedNews) bool {
		return at-r.confirmed >= stale/4 || r.confirmed-at >= patience || sentAt-r.asked >= n.asksEvery()/4 || r.asked > n.hostNow()
	}
	if news(&n.news.shared) {
		n.news.update(func(r *sharedNews) bool {
			if !news(r) {
				return false
			}
			r.confirmed, r.asked = at, sentAt
			return true
		})
	}
}

// asksEvery is how long a process that hears nothing waits before it asks. With a tick to notice that,
// and one for other workers to hear of what has come, that makes an interval.
func (n *Node) asksEvery() int64 { return n.interval * 3 / 4 }
