// Package feed brings a process the limits that the backend has for single keys, and what was changed
// there, part by part, and says when to ask for them.
package feed

import (
	"bytes"
	"math"
	"runtime"

	"weir/internal/counter"
	"weir/internal/engine/entry"
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// Feed takes in the overrides from the backend, which change limits here.
type Feed struct {
	tallies  *entry.Tallies
	link     *link.Link
	rules    *rule.Set
	variants *entry.Variants
	keys     *entry.Entries
	news     news
	check    rule.Check // of a key that a notice is of
	polling  polling
}

// New returns a namespace's overrides, as a process hears of them.
func New(tallies *entry.Tallies, link *link.Link, rules *rule.Set, keys *entry.Entries, data sharedata.Data, namespace string) Feed {
	return Feed{
		tallies: tallies, link: link, rules: rules, variants: &keys.Variants, keys: keys,
		news: news{record: sharedata.NewRecord(data, namespace, "news"), listed: sharedata.NewRecord(data, namespace, "news:list")},
	}
}

// asksEvery is how long a process that hears nothing waits before it asks. Together with a tick to
// notice that and a tick for the other workers, this makes an interval.
func (v *Feed) asksEvery() int64 { return v.rules.Interval * 3 / 4 }

// build begins to make a table from a list.
func (v *Feed) build(version uint64, list []byte) *building {
	b := &building{OverrideTable: entry.OverrideTable{Version: version, List: list}, emptied: v.news.shared.emptied}
	count, places := 0, 0 // prices, which have no rule, take none
	for b.reader.Reset(list, 0); b.reader.Next(); {
		if string(b.reader.Rule) != string(b.name) { // a list groups the overrides of a rule
			b.name = append(b.name[:0], b.reader.Rule...)
			places = v.perKey(b.name)
		}
		if count += places; places > 0 && v.appendBinary(b, 0) {
			count += len(binaryBits)
		}
	}
	if l, ok := v.variants.Owner.(entry.Listener); ok {
		b.listener = l
		l.BeginList()
	}
	b.Places = make([]entry.Place, count*4/3+1)
	b.reader.Reset(list, 0)
	return b
}

// next adds the next override of the list to the table, and reports whether there was one.
// Everything after a malformed part is ignored.
func (v *Feed) next(b *building) bool {
	at := b.reader.At()
	if !b.reader.Next() {
		if b.reader.Err() != nil {
			v.tallies.Corrupt++
		}
		return false
	}
	if len(b.reader.Rule) == 0 {
		if b.listener != nil {
			b.listener.Priced(&b.reader)
		}
		return true
	}
	o := &b.reader
	if string(o.Rule) == wire.AllRules {
		if o.Mode == wire.Off {
			b.All = entry.Whole{Mode: o.Mode, Until: until(o)}
			b.Count++
		} else {
			b.Unfit++ // a later version's
		}
		return true
	}
	// A list groups the overrides of a rule.
	b.name = counter.AppendPart(b.name[:0], b.reader.Rule)
	if !bytes.Equal(b.name, v.rules.List[b.rule].Prefix) {
		i := 0
		for i < len(v.rules.List) && !bytes.Equal(b.name, v.rules.List[i].Prefix) {
			i++
		}
		if i == len(v.rules.List) {
			return true // a rule that only other nodes have
		}
		b.rule = i
	}
	r := &v.rules.List[b.rule]
	if o.Mode == wire.OfKey && len(o.Limits) == 0 {
		v.notice(b, r)
		return true
	}
	if b.Rules == nil {
		b.Rules = make([]entry.Moved, len(v.rules.List))
	}
	m := &b.Rules[b.rule]
	var limits []window.Limit
	fits := o.Mode.IsWhole() && len(o.Limits) == 0
	if !fits {
		limits, fits = wire.Fit(r.Limits, o.Limits)
	}
	switch {
	case !fits:
	case o.Mode.IsWhole():
		fits = len(o.Values) == 0
	case o.Mode == wire.OfKeys:
		// As below, but that the value is written as one that has to be equal.
		fits = (len(r.Classes) == 0 || string(o.Values[len(o.Values)-1]) == "=") && v.like(b, m, len(r.Prefix))
	default:
		b.key, fits = v.variants.Owner.AppendKey(b.key[:0], b.rule, o.Values)
		// It is the limit of all classes together, so there is no value for theirs.
		fits = fits && (len(r.Classes) == 0 || len(o.Values[len(o.Values)-1]) == 0)
		m.Keys = m.Keys || fits
	}
	if !fits {
		b.Unfit++
		return true
	}
	r.Admit(limits)
	if o.Mode.IsWhole() {
		m.Whole = entry.Whole{Mode: o.Mode, Until: until(o), Limits: limits}
		b.Count++
		return true
	}
	placed := false
	if of := b.key; len(r.Classes) == 0 {
		placed = v.place(b, at, of)
	} else {
		of = of[:len(of)-1] // without the class
		for number := 1; number <= r.Parts(); number++ {
			placed = v.place(b, at, counter.AppendPart(of, r.Part(number).Value)) || placed
		}
	}
	if placed {
		b.Count++
		b.keys = true
		for _, bits := range binaryBits {
			if v.appendBinary(b, bits) {
				v.place(b, at, b.key)
			}
		}
	} else {
		b.Unfit++
	}
	return true
}

// binaryBits are how much of an IPv6 address programs usually keep. Of IPv4 they keep all.
var binaryBits = [...]int{128, 64}

// appendBinary makes the key that an override's has in a program that names addresses by their bytes, as by
// limithttp.ClientIP. It reports whether the owner is a program and the key has an address.
func (v *Feed) appendBinary(b *building, bits int) (ok bool) {
	owner, ok := v.variants.Owner.(interface {
		AppendBinary(key []byte, rule int, values [][]byte, bits int) (_ []byte, ok bool)
	})
	if ok = ok && b.reader.Mode == wire.OfKey; ok {
		b.key, ok = owner.AppendBinary(b.key[:0], b.rule, b.reader.Values, bits)
	}
	return ok
}

// perKey is how many places the override of a key of a rule takes: none if only other nodes have the rule.
func (v *Feed) perKey(name []byte) int {
	prefix := counter.AppendPart(nil, name)
	for i := range v.rules.List {
		if r := &v.rules.List[i]; bytes.Equal(prefix, r.Prefix) {
			return max(1, r.Parts())
		}
	}
	return 0
}

// place puts an override into the table, unless its key has one.
func (v *Feed) place(b *building, at int, key []byte) (placed bool) {
	address := v.keys.Table.Address(v.rules.List[b.rule].Group, key)
	p := b.Find(address)
	if p.At != 0 {
		return false // the same key in another form
	}
	*p = entry.Place{Address: address, At: uint32(at) + 1, Index: int32(b.rule), Until: until(&b.reader)}
	if old := v.variants; old.Places != nil {
		// Requests have used it before, so its variant can be kept.
		if q := old.Find(p.Address); q.Rule != nil && bytes.HasPrefix(old.List[q.At-1:], b.List[at:b.reader.At()]) {
			p.Rule = q.Rule
		}
	}
	return true
}

// like makes the name of the keys that an override is of, and adds their pattern to those of the rule.
// It reports whether the rule can have it.
func (v *Feed) like(b *building, m *entry.Moved, prefix int) (fits bool) {
	values := b.reader.Values
	pattern, ok := wire.PatternOf(values)
	if !ok {
		return false
	}
	for i := range values {
		values[i] = values[i][1:]
	}
	if part := &values[pattern.Part]; pattern.Kind == wire.ByNetwork {
		*part = (*part)[:bytes.LastIndexByte(*part, '/')]
	}
	shape := entry.Shape{Pattern: pattern, Textual: true}
	if owner, ok := v.variants.Owner.(knowing); ok {
		key, _ := owner.KeyOf(b.rule)
		if shape.Textual = false; !pattern.Fits(key) {
			return false
		}
	}
	key, ok := v.variants.Owner.AppendKey(nil, b.rule, values)
	if !ok {
		return false
	}
	if b.key, ok = shape.Append(b.key[:0], key, prefix); !ok {
		return false
	}
	at := 0
	for at < len(m.Shapes) && m.Shapes[at].Compare(pattern) < 0 {
		at++
	}
	if at < len(m.Shapes) && m.Shapes[at] == shape {
		return true
	}
	if len(m.Shapes) == wire.MaxPatterns {
		return false
	}
	m.Shapes = append(m.Shapes, shape)
	copy(m.Shapes[at+1:], m.Shapes[at:])
	m.Shapes[at] = shape
	return true
}

// knowing is an owner that knows what the keys of its rules are like.
type knowing interface {
	KeyOf(rule int) (key []byte, varies wire.RuleFlags)
}

// until returns when an override ends, in nanoseconds of Unix time; 0 for never.
func until(o *wire.OverrideReader) int64 { return int64(min(o.Until, math.MaxInt64/1_000_000)) * 1e6 }

// apply puts a finished table into force.
func (v *Feed) apply(b *building) {
	if !b.keys {
		b.Places = nil // decisions can skip the search
	}
	v.variants.Set(b.OverrideTable)
	if runtime.GOARCH == "wasm" && len(b.List) > wire.MaxPart {
		// The collector finishes late in a module, whose memory never shrinks: each list would add to it.
		runtime.GC()
	}
	if b.listener != nil {
		b.listener.EndList()
	}
	v.news.update(func(r *sharedNews) bool {
		newer := b.newest > r.emptied
		r.emptied = max(r.emptied, b.newest)
		return newer
	})
}

// Hear takes in the part of an answer about overrides: to a push that was sent at a time of the host's
// clock, at a time of the backend's. It is nil if a poll has failed. soon means that there is something to
// ask for at once.
func (v *Feed) Hear(to Inquiry, o *wire.Overrides, sentAt, at int64) (soon bool) {
	if to == Poll {
		v.pollEnded(o != nil)
	}
	if o != nil && o.Known && v.variants.Owner != nil {
		v.hear(to, o, sentAt, at)
	}
	return v.news.asksAtOnce()
}

// hear is Hear of a list's version.
func (v *Feed) hear(to Inquiry, o *wire.Overrides, sentAt, at int64) {
	w := &v.news
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
	if to != None && o.Of != 0 {
		list, found := w.list()
		if keep := uint64(len(list)) - o.Keep; found && o.Of == w.shared.version && len(w.parts) == 0 && o.Keep <= uint64(len(list)) && o.From <= keep {
			w.leave(o.Version, at, v.link.HostNow(), list[:o.From], o.Part, list[keep:])
			w.got()
		} else {
			w.whole, w.asksAt = true, 0
		}
		return
	}
	if to != None && o.From == uint64(len(w.parts)) {
		if len(w.parts) == 0 {
			w.parts = make([]byte, 0, min(o.Size, wire.MaxOverridesSize))
		}
		w.parts, w.asksAt = append(w.parts, o.Part...), 0
		if uint64(len(w.parts)) == o.Size {
			w.leave(o.Version, at, v.link.HostNow(), w.parts)
			w.got()
		}
	}
}

// confirm records that the backend still has the known version.
func (v *Feed) confirm(sentAt, at int64) {
	news := func(r *sharedNews) bool {
		return at-r.confirmed >= stale/4 || r.confirmed-at >= link.Patience || sentAt-r.asked >= v.asksEvery()/4 || r.asked > v.link.HostNow()
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
func (v *Feed) notice(b *building, r *rule.Rule) {
	o := &b.reader
	now := v.link.Now()
	if !r.Synced() || (o.Notice.Newest()+noticeDelay)*1000 < v.variants.Version || o.Until != 0 && uint64(now) >= o.Until*1e6 {
		return // it is known, or too old to matter
	}
	key, fits := v.variants.Owner.AppendKey(b.key[:0], b.rule, o.Values)
	if b.key = key; !fits {
		b.Unfit++
		return
	}
	address := v.keys.Table.Address(r.Group, key)
	v.keys.Forget(address)
	emptied := o.Notice.Reset > b.emptied
	b.newest = max(b.newest, o.Notice.Reset)
	d := v.keys.At(&v.check, r, address)
	if !v.keys.Update(d, 0, now, func() (writes, lists bool) {
		if !d.Slot.Found() {
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

// AdoptOverrides takes in the overrides that this process has received. It returns false if it is late, before that
// is done.
func (v *Feed) AdoptOverrides(late func(handled int) bool) (done bool) {
	w := &v.news
	v.variants.Turn()
	w.read()
	if w.shared.version != v.variants.Version && (w.building == nil || w.building.Version != w.shared.version) {
		if list, found := w.list(); found {
			w.building = v.build(w.shared.version, bytes.Clone(list))
		} else if !w.wants {
			w.want(w.shared.version) // another worker has replaced it by an older list
		}
	}
	if w.building == nil {
		return true
	}
	for handled := 0; v.next(w.building); handled++ {
		if late(handled) {
			return false
		}
	}
	v.apply(w.building)
	w.building = nil
	return true
}

// Inquiry says how the backend is asked for news.
type Inquiry uint8

const (
	// None does not ask.
	None Inquiry = iota
	// Question is an empty push, which is answered at once.
	Question
	// Poll is a question that the backend answers when there are news.
	Poll
)

// Outbox is what a worker has for the backend.
type Outbox struct {
	// Asks means that a question is unanswered, and Polls that a poll is.
	Asks, Polls bool
	// Crammed means that there is no room for a question.
	Crammed bool
	// Quiet means that there is nothing: if the process ended, its last hits would need the connection that a
	// poll occupies.
	Quiet bool
}

// Ask says how to ask the backend for news now. known is the part of a poll about overrides. After a question,
// the next follows at again, unless its answer has news. soon means that there is something to ask for at once.
func (v *Feed) Ask(has Outbox, again int64) (how Inquiry, known wire.Known, soon bool) {
	if !has.Asks {
		how, known = v.due(has.Polls, has.Quiet)
	}
	if how == Question {
		if has.Crammed || !v.link.Enter() {
			how = None
		} else {
			v.news.asksAt = again
		}
	}
	return how, known, v.news.asksAtOnce()
}

// due says how to ask for the list of overrides that is wanted. If no worker of this process has heard from
// the backend for a while, it asks for news, including the number of nodes and the time.
//
// A process that hears nothing from the backend polls: a worker asks for news, and the backend
// answers when there are any, or after half a minute. A poll does not count as a push: no push
// waits for it, and its failure says nothing about the backend. A gateway on the way may cut off a
// long wait, so after a failure the worker asks a question that is answered at once.
func (v *Feed) due(polled, quiet bool) (how Inquiry, known wire.Known) {
	w, now := &v.news, v.link.HostNow()
	if !w.wants || v.link.Open() {
		every := v.asksEvery()
		polled = polled && !v.link.Open()
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
			return None, known
		}
		if !w.wants && quiet && v.polls(now) {
			known = v.Known(Poll)
			known.Within = uint64(max(1, v.asksEvery()/3/1e6))
			if known.Version == w.shared.version {
				return Poll, known
			}
			return Question, known // is answered at once: then the next push soon says that all workers know
		}
	}
	if w.wants && now < w.asksAt {
		return None, known
	}
	if w.wants && len(w.parts) >= w.leads {
		w.leads = len(w.parts) + 1
		w.update(func(r *sharedNews) bool { // the other workers leave it to this one while its list grows
			fresh := now-r.asked < v.asksEvery()/2 && r.asked <= now
			r.asked = now
			return !fresh
		})
	}
	return Question, known
}

// polls reports whether the worker may poll.
func (v *Feed) polls(now int64) bool {
	p := &v.polling
	paused := now < p.notBefore && p.notBefore-now <= longestPlain
	return !paused && v.link.Heard() && v.variants.Owner != nil && !v.link.Open()
}

// pollEnded records the end of the poll.
func (v *Feed) pollEnded(answered bool) {
	p := &v.polling
	if answered {
		p.failures = 0
		return
	}
	p.notBefore = v.link.HostNow() + min(v.asksEvery()<<min(p.failures, 10), longestPlain)
	p.failures++
	v.news.update(func(r *sharedNews) bool {
		r.asked = 0
		return true
	})
}

// Known returns the part of a push about overrides, which names the version that all workers decide by. A
// push that asks for them has nothing else.
func (v *Feed) Known(how Inquiry) (k wire.Known) {
	w := &v.news
	if age := v.link.HostNow() - w.shared.since; v.variants.Version == w.shared.version && (age >= spread || age < 0) {
		w.announced = v.variants.Version
	}
	k.Version, k.Unfit, k.Asks = w.announced, uint64(v.variants.Unfit), how != None
	switch {
	case w.wants && len(w.parts) > 0:
		k.Of, k.From = w.wanted, uint64(len(w.parts))
	case w.wants && (w.whole || w.wanted == w.shared.version):
		k.From = wire.HasAll // of no list
	default:
		k.Of, k.From = w.shared.version, wire.HasAll
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
