package node

// hear takes in the part of a batch's answer about overrides.
func (v *overrides) hear(b *batch) {
	w, o, at := &v.news, &b.reader.Overrides, int64(b.reader.NowNanos)
	if !o.Told || v.variants.owner == nil {
		return
	}
	w.read()
	if o.Version == w.shared.version && (!w.wants || w.wanted != o.Version) {
		w.got()
		v.confirm(b.sentAt, at)
		return
	}
	if w.shared.old(o.Version, at) {
		return
	}
	if !w.wants || w.wanted != o.Version {
		w.want(o.Version)
	}
	if b.inquires && o.From == uint64(len(w.parts)) {
		w.parts, w.asksAt = append(w.parts, o.Part...), 0
		if uint64(len(w.parts)) == o.Size {
			w.leave(o.Version, w.parts, at, v.link.hostNow())
			w.got()
		}
	}
}

// confirm records that the backend still has the known version.
func (v *overrides) confirm(sentAt, at int64) {
	news := func(r *sharedNews) bool {
		return at-r.confirmed >= stale/4 || r.confirmed-at >= patience || sentAt-r.asked >= v.asksEvery()/4 || r.asked > v.link.hostNow()
	}
	if news(&v.news.shared) {
		v.news.update(func(r *sharedNews) bool {
			if !news(r) {
				return false
			}
			r.confirmed, r.asked = at, sentAt
			return true
		})
	}
}
