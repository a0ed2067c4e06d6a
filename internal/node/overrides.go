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
	rules    *ruleset
	variants *variants
	keys     *keys
	refusals *refusals
	news     news
	polling  polling
}

// newOverrides returns a namespace's overrides, as a process hears of them.
func newOverrides(tallies *Tallies, link *link, rules *ruleset, variants *variants, keys *keys, refusals *refusals) overrides {
	return overrides{tallies: tallies, link: link, rules: rules, variants: variants, keys: keys, refusals: refusals}
}

// open begins to hear.
func (v *overrides) open(data sharedata.Data, namespace string) { v.news = newNews(data, namespace) }

// asksEvery is how long a process that hears nothing waits before it asks. Together with a tick to
// notice that and a tick for the other workers, this makes an interval.
func (v *overrides) asksEvery() int64 { return v.rules.interval * 3 / 4 }

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

// hear takes in the part of an answer about overrides: to a push that was sent at a time of the host's
// clock, and was an inquiry or not, at a time of the backend's.
func (v *overrides) hear(o *wire.Overrides, sentAt, at int64, inquiry bool) {
	w := &v.news
	if !o.Told || v.variants.owner == nil {
		return
	}
	w.read()
	if o.Version == w.shared.version && (!w.wants || w.wanted != o.Version) {
		w.got()
		v.confirm(sentAt, at)
		return
	}
	if w.shared.old(o.Version, at) {
		return
	}
	if !w.wants || w.wanted != o.Version {
		w.want(o.Version)
	}
	if inquiry && o.From == uint64(len(w.parts)) {
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

// inquiry says how to ask the backend for news.
type inquiry uint8

const (
	noInquiry inquiry = iota
	// question is an empty push, which is answered at once.
	question
	// poll is a question that the backend answers when there are news.
	poll
)

// due says how to ask the backend for the list of overrides that is wanted. If no worker of this
// process has heard from the backend for a while, it asks for news, including the number of nodes and
// the time. polled means that this worker's poll is unanswered, and quiet that it has nothing for the
// backend: if the process ended, its last hits would need the connection that a poll occupies.
//
// A process that hears nothing from the backend polls: a worker asks for news, and the backend
// answers when there are any, or after half a minute. A poll does not count as a push: no push
// waits for it, and its failure says nothing about the backend. A gateway on the way may cut off a
// long wait, so after a failure the worker asks a question that is answered at once.
func (v *overrides) due(polled, quiet bool) inquiry {
	w, now := &v.news, v.link.hostNow()
	if !w.wants || v.link.open() {
		every := v.asksEvery()
		polled = polled && !v.link.open()
		if polled {
			every /= 2 // the other workers see that the polling worker is alive
		}
		due := func(r *sharedNews) bool { return now-r.asked >= every || r.asked > now }
		if !due(&w.shared) || !w.update(func(r *sharedNews) bool {
			if !due(r) {
				return false
			}
			r.asked = now
			return true
		}) || polled {
			return noInquiry
		}
		if !w.wants && quiet && v.polls(now) {
			return poll
		}
	}
	if w.wants && now < w.asksAt {
		return noInquiry
	}
	return question
}

// hurries reports whether there is something to ask for at once.
func (v *overrides) hurries() bool { return v.news.hurries() }

// asked records that a question is on its way. Unless the answer has news, the next follows then.
func (v *overrides) asked(then int64) { v.news.asksAt = then }

// polls reports whether the worker may poll.
func (v *overrides) polls(now int64) bool {
	p := &v.polling
	paused := now < p.notBefore && p.notBefore-now <= longestPlain
	return !paused && v.link.heard() && v.variants.owner != nil && !v.link.open()
}

// knownToPoll returns the part of a poll about overrides. ok is false if a question should be asked in
// its place, which is answered at once: then the next push soon says that all workers know.
func (v *overrides) knownToPoll() (k wire.Known, ok bool) {
	k = v.known(true)
	k.Within = uint64(max(1, v.asksEvery()/3/1e6))
	return k, k.Version == v.news.shared.version
}

// pollEnded records the end of the poll.
func (v *overrides) pollEnded(answered bool) {
	p := &v.polling
	if answered {
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

// known returns the part of a push about overrides. A push that asks for them has nothing else.
func (v *overrides) known(asks bool) (k wire.Known) {
	w := &v.news
	if age := v.link.hostNow() - w.shared.since; v.variants.version == w.shared.version && (age >= spread || age < 0) {
		w.told = v.variants.version
	}
	k.Version, k.Unfit, k.Asks = w.told, uint64(v.variants.unfit), asks
	if w.wants {
		k.Of, k.From = w.wanted, uint64(len(w.parts))
	} else {
		k.Of, k.From = w.shared.version, wire.MaxOverridesSize // all of it
	}
	return k
}

// longestPlain is the longest time that a process whose polls fail asks without polling, in
// nanoseconds.
const longestPlain = int64(60e9)

// polling is what a worker knows of its polls.
type polling struct {
	// failures is how many polls failed in a row; the worker does not poll again until then.
	failures  int
	notBefore int64
}
