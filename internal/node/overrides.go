package node

import (
	"bytes"

	"weir/internal/counter"
	"weir/internal/wire"
	"weir/sharedata"
)

// overrides takes in the overrides from the backend, which change limits here.
type overrides struct {
	tallies  *Tallies
	link     *link
	ticks    *ticks
	rules    *ruleset
	variants *variants
	keys     *keys
	callouts *callouts
	pushes   *pushes
	refusals *refusals
	news     news
	polling  polling
}

// asksEvery is how long a process that hears nothing waits before it asks. Together with a tick to
// notice that and a tick for the other workers, this makes an interval.
func (v *overrides) asksEvery() int64 { return v.rules.interval * 3 / 4 }

// overrideTable has the backend's overrides, indexed by the addresses of their keys. The keys keep
// their counters.
type overrideTable struct {
	// version is that of the list; 0 if there has been none. list is its encoded form.
	version uint64
	list    []byte
	// places is an open hash table with a power of two as its size, at most three quarters full;
	// nil if empty. The first place of an address counts.
	places []place
	// count is how many are in the table, and unfit how many do not fit their rules.
	count, unfit int
}

// place is an override in the table.
type place struct {
	address sharedata.Address
	until   int64  // Unix time in nanoseconds; 0 for no end
	rule    *Rule  // the variant, once a request has used it
	at      uint32 // 1 + the override's offset in the list; 0 for an empty place
	index   int32  // index of the rule
}

// find returns the place of an address: that of its override, or a free place. The table must not
// be nil.
func (o *overrideTable) find(a sharedata.Address) *place {
	for i := a.Hash(); ; i++ {
		p := &o.places[i&uint64(len(o.places)-1)]
		if p.at == 0 || p.address == a {
			return p
		}
	}
}

// inForce returns the variant of a rule that decides a key: that of its override if there is one,
// and otherwise r, unless r belongs to an override that is over.
//
//go:noinline
func (v *variants) inForce(r *Rule, a sharedata.Address) *Rule {
	if r.Index >= len(v.rules.list) || !v.rules.list[r.Index].Akin(&r.Rule) {
		return r // a rule of an inherited node
	}
	base := &v.rules.list[r.Index]
	if base.overridden {
		p := v.find(a)
		if p.at != 0 && (p.until == 0 || v.link.now() < p.until) {
			if p.rule == nil {
				v.vary(p)
			}
			return p.rule
		}
	}
	if r.override {
		return base
	}
	return r
}

// vary makes the variant for an override.
func (v *variants) vary(p *place) {
	var o wire.OverrideReader
	o.Reset(v.list, int(p.at-1))
	o.Next()
	r := &v.rules.list[p.index]
	limits, _ := wire.Fit(r.Limits, o.Limits)
	p.rule = r.Variant(limits)
	p.rule.override = true
}

// variants has the variants of rules for overrides.
type variants struct {
	overrideTable
	rules *ruleset
	link  *link
	owner Owner // nil if overrides have no effect here
}

// build begins to make a table from a list.
func (v *overrides) build(version uint64, list []byte) *building {
	b := &building{overrideTable: overrideTable{version: version, list: list}, emptied: v.news.shared.emptied}
	count := 0
	for b.reader.Reset(list, 0); b.reader.Next(); {
		count++
	}
	size := 4
	for size*3/4 < count {
		size *= 2
	}
	if l, ok := v.variants.owner.(Listener); ok {
		b.listener = l
		l.BeginList()
	}
	b.places = make([]place, size)
	b.reader.Reset(list, 0)
	return b
}

// next adds the next override of the list to the table, and reports whether there was one.
// Everything after a malformed part is ignored.
func (v *overrides) next(b *building) bool {
	at := b.reader.At()
	if !b.reader.Next() {
		if b.reader.Err() != nil {
			v.tallies.Corrupt++
		}
		return false
	}
	// A list groups the overrides of a rule.
	b.name = counter.AppendPart(b.name[:0], b.reader.Rule)
	if !bytes.Equal(b.name, v.rules.list[b.rule].Prefix) {
		i := 0
		for i < len(v.rules.list) && !bytes.Equal(b.name, v.rules.list[i].Prefix) {
			i++
		}
		if i == len(v.rules.list) {
			if b.listener != nil {
				b.listener.Listed(&b.reader)
			}
			return true // a rule that only other nodes have
		}
		b.rule = i
	}
	r := &v.rules.list[b.rule]
	if len(b.reader.Limits) == 0 {
		v.notice(b, r)
		return true
	}
	limits, fits := wire.Fit(r.Limits, b.reader.Limits)
	if fits {
		b.key, fits = v.variants.owner.AppendKey(b.key[:0], b.rule, b.reader.Values)
	}
	if !fits {
		b.unfit++
		return true
	}
	r.Admit(limits)
	address := v.keys.table.Address(r.group, b.key)
	p := b.find(address)
	if p.at != 0 {
		return true // the same key in another form
	}
	*p = place{address: address, at: uint32(at) + 1, index: int32(b.rule), until: int64(b.reader.Until) * 1e6}
	if old := v.variants; old.places != nil {
		// Requests have used it before, so its variant can be kept.
		if q := old.find(p.address); q.rule != nil && bytes.HasPrefix(old.list[q.at-1:], b.list[at:b.reader.At()]) {
			p.rule = q.rule
		}
	}
	b.count++
	return true
}

// apply puts a finished table into force.
func (v *overrides) apply(b *building) {
	if b.count == 0 {
		b.places = nil // decisions can skip the search
	}
	v.variants.overrideTable = b.overrideTable
	if b.listener != nil {
		b.listener.EndList()
	}
	v.news.update(func(r *sharedNews) bool {
		newer := b.newest > r.emptied
		r.emptied = max(r.emptied, b.newest)
		return newer
	})
	for i := range v.rules.list {
		v.rules.list[i].overridden = false
	}
	for i := range b.places {
		if b.places[i].at != 0 {
			v.rules.list[b.places[i].index].overridden = true
		}
	}
}

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

// noticeDelay is above the time from a change of a counter until the list has the notice of it, in
// milliseconds.
const noticeDelay = 10_000

// notice takes in that someone changed a key's counter at the backend, so that this node's state of
// it is outdated.
func (v *overrides) notice(b *building, r *Rule) {
	o := &b.reader
	now := v.link.now()
	if !r.Synced() || (o.Notice.Newest()+noticeDelay)*1000 < v.variants.version || o.Until != 0 && uint64(now) >= o.Until*1e6 {
		return // it is known, or too old to matter
	}
	key, fits := v.variants.owner.AppendKey(b.key[:0], b.rule, o.Values)
	if b.key = key; !fits {
		b.unfit++
		return
	}
	address := v.keys.table.Address(r.group, key)
	v.refusals.forget(address)
	emptied := o.Notice.Reset > b.emptied
	b.newest = max(b.newest, o.Notice.Reset)
	d := v.keys.at(r, address)
	if !v.keys.update(d, 0, now, func() (writes, lists bool) {
		if !d.slot.Found() {
			return false, false
		}
		pending := d.Counter.Pending()
		writes = d.Counter.Reopen()
		if emptied && d.Counter.Emptied(int64(o.Notice.Reset)*1e6) {
			return true, d.Counter.Own(pending, now)
		}
		return writes, false
	}) {
		v.tallies.GivenUp++
	}
}

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

// A process that hears nothing from the backend polls: a worker asks for news, and the backend
// answers when there are any, or after half a minute. A poll does not count as a push: no push
// waits for it, and its failure says nothing about the backend. A gateway on the way may cut off a
// long wait, so after a failure the worker asks a question that is answered at once.

// polls reports whether the worker may poll: it must have nothing for the backend. If the process
// ended, its last hits would need the connection that the poll occupies.
func (v *overrides) polls(now int64) bool {
	p := &v.polling
	paused := now < p.notBefore && p.notBefore-now <= longestPlain
	return !paused && v.link.seen != 0 && v.variants.owner != nil && !v.callouts.leaving && !v.link.open() && !v.pushes.unfinished()
}

// poll sends the poll.
func (v *overrides) poll(now int64) {
	known := v.callouts.known(true)
	if known.Version != v.news.shared.version {
		v.callouts.postEmpty() // answered at once, so that the next push soon says that all workers know
		return
	}
	b := &v.polling.batch
	*b = batch{
		sender: v.callouts.worker, sequence: b.sequence + 1, body: b.body[:0], inquires: true, state: sent, sentAt: now,
		patience: wire.LongestPoll + pollSlack,
	}
	known.Within = uint64(max(1, v.asksEvery()/3/1e6))
	b.body = wire.AppendPushHeader(b.body, &wire.Push{
		Namespace: v.callouts.namespace, Node: v.callouts.id, Sender: b.sender, Sequence: b.sequence, Floor: b.sequence, Known: known,
	}, 0)
	if !v.link.host.Send(b.body, Ticket{batch: b, sender: b.sender, sequence: b.sequence}) {
		v.pollEnded(false)
	}
}

// pollEnded records the end of the poll.
func (v *overrides) pollEnded(answered bool) {
	p := &v.polling
	if p.batch.state = filling; answered {
		p.failures = 0
		return
	}
	p.notBefore = v.link.hostNow() + min(v.asksEvery()<<min(p.failures, 10), longestPlain)
	p.failures++
	v.news.update(func(r *sharedNews) bool {
		r.asked = 0
		return true
	})
}

// pollSlack is how much longer than the backend a node waits, in nanoseconds.
const pollSlack = longestPause

// longestPlain is the longest time that a process whose polls fail asks without polling, in
// nanoseconds.
const longestPlain = int64(60e9)

// polling is a worker's poll.
type polling struct {
	batch batch
	// failures is how many polls failed in a row; the worker does not poll again until then.
	failures  int
	notBefore int64
}

// out reports whether the poll is unanswered.
func (p *polling) out(now int64) bool {
	ago := now - p.batch.sentAt
	return p.batch.state == sent && ago >= 0 && ago <= p.batch.patience+pollSlack
}
