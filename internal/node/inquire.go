package node

// CatchUp takes in the overrides that other workers of the process have heard of, as long as that
// takes. Ticks do it little by little: call it before the first request.
func (n *Node) CatchUp() {
	if !n.local {
		n.adoptOverrides(1<<63 - 1)
	}
}

// adoptOverrides takes in the overrides that this process has heard of. It reports false if there
// was not time for all of them.
func (n *Node) adoptOverrides(deadline int64) (done bool) {
	w := &n.news
	w.read()
	if w.shared.version != n.overrides.version && (w.building == nil || w.building.version != w.shared.version) {
		if list, found := w.list(); found {
			w.building = n.build(w.shared.version, list)
		} else if !w.wants {
			w.want(w.shared.version) // another worker has left an older one in its place
		}
	}
	if w.building == nil {
		return true
	}
	for handled := 0; n.next(w.building); handled++ {
		if n.late(handled, deadline) {
			return false
		}
	}
	n.apply(w.building)
	w.building = nil
	return true
}

// inquire asks the backend for the list of overrides that is wanted, or if nobody in this process has
// heard from it for a while, for whatever is new: the number of nodes, and its time, too.
func (n *Node) inquire() {
	for _, b := range n.batches {
		if b.asks {
			return
		}
	}
	if w, now := &n.news, n.hostNow(); !w.wants || n.link.open() {
		due := func(r *sharedNews) bool { return now-r.asked >= n.asksEvery() || r.asked > now }
		if !due(&w.shared) || !w.update(func(r *sharedNews) bool {
			if !due(r) {
				return false
			}
			r.asked = now
			return true
		}) {
			return
		}
	}
	if now := n.hostNow(); !n.crammed() && (!n.news.wants || now >= n.news.asksAt) && n.link.enter(now, n.options.Timeout) {
		n.news.asksAt = now + int64(n.tickMillis)*1e6 // unless the answer brings something
		n.postEmpty()
	}
}
