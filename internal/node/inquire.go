package node

// adoptOverrides takes in the overrides that this process has received. It returns false if time
// ran out.
func (v *overrides) adoptOverrides(deadline int64) (done bool) {
	w := &v.news
	w.read()
	if w.shared.version != v.variants.version && (w.building == nil || w.building.version != w.shared.version) {
		if list, found := w.list(); found {
			w.building = v.build(w.shared.version, list)
		} else if !w.wants {
			w.want(w.shared.version) // another worker has replaced it by an older list
		}
	}
	if w.building == nil {
		return true
	}
	for handled := 0; v.next(w.building); handled++ {
		if v.link.late(handled, deadline) {
			return false
		}
	}
	v.apply(w.building)
	w.building = nil
	return true
}

// inquire asks the backend for the list of overrides that is wanted. If no worker of this process
// has heard from the backend for a while, it asks for news, including the number of nodes and the
// time.
func (v *overrides) inquire() {
	for _, b := range v.callouts.batches {
		if b.inquires {
			return
		}
	}
	if w, now := &v.news, v.link.hostNow(); !w.wants || v.link.open() {
		every := v.asksEvery()
		polls := v.polling.out(now) && !v.link.open()
		if polls {
			every /= 2 // the other workers see that the polling worker is alive
		}
		due := func(r *sharedNews) bool { return now-r.asked >= every || r.asked > now }
		if !due(&w.shared) || !w.update(func(r *sharedNews) bool {
			if !due(r) {
				return false
			}
			r.asked = now
			return true
		}) || polls {
			return
		}
		if !w.wants && v.polls(now) {
			v.poll(now)
			return
		}
	}
	if now := v.link.hostNow(); !v.callouts.crammed() && (!v.news.wants || now >= v.news.asksAt) && v.link.enter(now) {
		v.news.asksAt = now + int64(v.ticks.millis)*1e6 // unless the answer has news
		v.callouts.postEmpty()
	}
}
