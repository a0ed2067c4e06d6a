// Package meter adds up what keys have used, and tells the backend, which counts each hit once.
package meter

import (
	"slices"

	"weir/internal/counter"
	"weir/internal/engine/entry"
	"weir/internal/engine/jitter"
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/internal/sketch"
	"weir/internal/wire"
	"weir/window"
)

const (
	// accountEvery is the time between two messages about usage, in nanoseconds.
	accountEvery = int64(1e9)
	// sayEvery is how often a sender without usage says so, in nanoseconds: often enough that a backend
	// does not miss it.
	sayEvery = int64(30e9)
	// maxAccounts is the most keys, by model and day, that a worker keeps for the backend, besides
	// the rest that it sums up. Many may gather while the backend is away.
	maxAccounts = 4096
	// accountsFor is how long after the backend has heard a sender that sender's messages are repeated, or others
	// sent: for less time than a backend remembers it, and no longer than it may take to tell of a gap for good.
	accountsFor = int64(24 * 3600e9)
	// quarter is the shortest time in which no zone changes its day or its clock.
	quarter = int64(900e9)
	// largestRow is above the size of any row in a message, and of its end, in bytes.
	largestRow = 1024
	// namedKeys is how many keys a worker remembers the names of, for corrections of charges, which
	// have no name.
	namedKeys = 1024
)

// Meter have hits that keys have used and the backend has not heard of, for rules that reveal
// names. Hits belong to the day of their request, and so do later corrections of its reservation. A
// message without an answer is sent again. Only one message is on its way at a time, so the backend
// knows by its number whether it has counted it.
type Meter struct {
	tallies   *entry.Tallies
	link      *link.Link
	set       *rule.Set
	keys      *entry.Entries
	namespace string
	send      func(m *Message) (sent bool)
	check     rule.Check // of a charge

	// on means that some rule reveals names. rules describes the rules of the node, and after them
	// the names of inherited rules.
	on    bool
	rules []accountedRule
	at    map[accountKey]int32
	list  []account

	node, sender, sequence uint64
	// toldTo is the time before which all that was counted is in messages, by the backend's clock.
	toldTo int64
	// ended are senders whose usage was inherited. The backend hears that they have ended once it has all
	// of that: if this process dies before, it has lost some of theirs.
	ended []quiet
	over  []uint64
	// heardAt is when the backend had last counted a message of this sender, by the host's clock, or when
	// the first was made.
	heardAt int64
	gone    bool  // this sender has said that it has ended
	sayAt   int64 // when to say that there is no usage, by the host's clock
	// sent are messages without an answer: at most one of this sender, and inherited messages.
	sent   []*Message
	due    []*Message // to be sent now
	idle   *Message
	nextAt int64 // by the host's clock
	// names are the last names of keys, each at its place of namedKeys, where another key may
	// replace it.
	names []accountName
	// label and budget are encoded parts of a row.
	label, budget []byte
}

// quiet is a sender that tells nothing more, and when the backend had last heard it.
type quiet struct {
	sender  uint64
	heardAt int64
}

// accountedRule has the parts of a rule that accounts need.
type accountedRule struct {
	_ [0]func() // keeps Go from generating an equality function

	name string
	// accounted means that the usage of the rule's keys is reported.
	accounted bool
	// calendar says when days begin; nil means UTC. limit is the index of the limit that is the
	// budget, -1 for none.
	calendar window.Calendar
	limit    int
	// quarter and day are the latest time asked for, and its day.
	quarter int64
	day     uint32
}

// accountKey names an account. The id is zero for the sum of all keys without an account of their
// own.
type accountKey struct {
	rule  uint16
	day   uint32
	id    [16]byte
	model string
}

type account struct {
	_ [0]func() // keeps Go from generating an equality function

	accountKey
	hits   int64
	budget wire.Budget
	accountName
}

// accountName is the name of a key, empty if unknown: the backend then has it from an earlier
// message.
type accountName struct {
	of   [16]byte
	size uint8
	text [sketch.MaxName]byte
}

// New returns the accounts of a namespace, for a node whose worker is the sender. send sends a message.
func New(tallies *entry.Tallies, link *link.Link, set *rule.Set, keys *entry.Entries, namespace string, node, sender uint64, send func(m *Message) (sent bool)) (a Meter) {
	a = Meter{tallies: tallies, link: link, set: set, keys: keys, namespace: namespace, node: node, sender: sender, send: send}
	if !slices.ContainsFunc(set.List, func(r rule.Rule) bool { return r.Reveal != 0 && r.Synced() }) {
		return a
	}
	a.on, a.names = true, make([]accountName, namedKeys)
	a.rules = make([]accountedRule, len(set.List))
	for i := range set.List {
		r, own := &set.List[i], &a.rules[i]
		own.name, own.limit, own.quarter = string(rule.NameOf(r)), -1, -1
		own.accounted = r.Reveal != 0 && r.Synced() && own.name != "" && !r.Limits[0].Kind.Held()
		widest := int64(0)
		for j := range r.Own() {
			l := &r.Limits[j]
			if own.calendar == nil {
				own.calendar = l.Calendar
			}
			if ends := l.Kind == window.FixedWindow || l.Kind == window.FirstHitWindow; ends && l.Width > widest && l.Max > 0 {
				own.limit, widest = j, l.Width
			}
		}
	}
	return a
}

// Of reports whether the usage of a rule's keys is reported. The pool's has what classes have of it.
func (a *Meter) Of(r *rule.Rule) bool { return a.on && a.rules[r.Index].accounted && !r.Bounds() }

// dayAt is the day that contains a time in the rule's zone.
func (r *accountedRule) dayAt(at int64) uint32 {
	at = max(at, 0)
	if q := at / quarter; q != r.quarter {
		r.quarter = q
		if r.calendar != nil {
			r.day = uint32(max(0, r.calendar.Day(at)))
		} else {
			r.day = uint32(at / (24 * 3600e9))
		}
	}
	return r.day
}

// Take records the usage of an allowed request.
//
//go:noinline
func (a *Meter) Take(checks []rule.Check, verdict counter.Verdict, now int64) {
	if verdict != counter.Allowed {
		return
	}
	for i := range checks {
		d := &checks[i]
		switch {
		case d.Over || !a.Of(d.Rule):
		case d.GrantedAt() != 0:
			a.Add(d, int64(d.Cost), d.Model, d.GrantedAt())
		case !d.Passed(): // other checks that have passed were not counted
			a.Add(d, int64(d.Cost), d.Model, now)
		}
	}
}

// Add records hits of a check whose counter was read, at a time of the backend's clock.
//
//go:noinline
func (a *Meter) Add(d *rule.Check, hits int64, model string, at int64) {
	if hits == 0 {
		return
	}
	r := &a.rules[d.Rule.Index]
	of, isNew := a.account(accountKey{uint16(d.Rule.Index), r.dayAt(at), a.keys.Identity(d), model})
	of.hits = wire.Sum(of.hits, hits)
	if of.id == [16]byte{} {
		return
	}
	if name := a.nameOf(d, of.id); isNew || of.size == 0 {
		of.accountName = *name
	}
	if r.limit >= 0 {
		of.budget = budgetOf(d, r.limit, a.link.Now())
	}
}

// Revise records the change of a charge whose cost was before. It belongs to the day of the request.
func (a *Meter) Revise(c *rule.Charge, before uint64, at int64) {
	if !a.Of(c.Rule) || c.Cost == before && c.Counted == c.Model {
		return
	}
	d := a.check.Restore(&c.Ref)
	a.keys.Read(d, a.link.Now()) // the budget needs the counter
	if c.Counted == c.Model {
		a.Add(d, int64(c.Cost-before), c.Model, at)
		return
	}
	a.Add(d, -int64(before), c.Counted, at)
	a.Add(d, int64(c.Cost), c.Model, at)
	c.Counted = c.Model
}

// nameOf is the name of a check's key.
func (a *Meter) nameOf(d *rule.Check, id [16]byte) *accountName {
	name := &a.names[(int(id[0])<<8|int(id[1]))%namedKeys]
	if name.of == id && name.size > 0 {
		return name
	}
	name.of = id
	a.label = a.keys.AppendNameOf(a.label[:0], d, id)
	name.size = uint8(copy(name.text[:], a.label))
	return name
}

// account returns the account of a key, or the common account if there are too many.
func (a *Meter) account(key accountKey) (of *account, isNew bool) {
	if a.at == nil {
		a.at = map[accountKey]int32{}
	}
	i, there := a.at[key]
	if !there && len(a.list) >= maxAccounts && key.id != [16]byte{} {
		of, _ := a.account(accountKey{rule: key.rule, day: key.day})
		return of, false
	}
	if !there {
		i = int32(len(a.list))
		a.at[key] = i
		a.list = append(a.list, account{accountKey: key})
	}
	return &a.list[i], !there
}

// budgetOf is the state of a check's key in the window of a limit at a time.
func budgetOf(d *rule.Check, limit int, now int64) (b wire.Budget) {
	l, s := &d.Rule.Limits[limit], &d.Counter.States[limit]
	end := rule.EndOf(l, s)
	start := end - l.Width
	if l.Calendar != nil {
		start = l.Calendar.At(s.Newest).Start
	}
	if end <= now || start < 0 {
		return b
	}
	quota := min(l.Quota(), wire.MaxHits)
	return wire.Budget{
		AtSeconds: uint64(max(0, now/1e9)), StartSeconds: uint64(start / 1e9), EndSeconds: uint64((end + 1e9 - 1) / 1e9),
		Used: min(quota, d.Used(limit)), Quota: quota,
	}
}

// Send sends the usage that is due, or all. A node that leaves sends all, and then says that its sender has ended.
func (a *Meter) Send(all bool) {
	for _, m := range a.dueMessages(all || a.set.Leaving) {
		if !a.send(m) {
			a.fail(m)
		}
	}
}

// dueMessages returns the messages to send now: usage that is due, or any if all is set, and messages
// without an answer that are to be repeated. They count as sent, unless fail is called. They are
// valid until the next call.
func (a *Meter) dueMessages(all bool) []*Message {
	a.due = a.due[:0]
	now := a.link.HostNow()
	if a.link.Open() {
		return nil
	}
	waits := false
	for i := len(a.sent) - 1; i >= 0; i-- {
		m := a.sent[i]
		if ago := now - m.sentAt; m.onWay && (ago > a.link.Timeout+jitter.LongestPause || ago < -jitter.LongestPause) {
			a.fail(m)
		}
		if now-m.since > accountsFor {
			a.tallies.Lost += m.hits
			a.forsake(m.Sender)
			a.drop(i)
			continue
		}
		if !m.onWay && (all || now >= m.retryAt || m.retryAt-now > 2*jitter.LongestPause) {
			a.post(m)
		}
		waits = waits || m.Sender == a.sender
	}
	if a.sequence > 0 && now-a.heardAt > accountsFor {
		a.forsake(a.sender)
	}
	a.ended = slices.DeleteFunc(a.ended, func(q quiet) bool { return now-q.heardAt > accountsFor })
	due := len(a.list) > 0 && (all || now >= a.nextAt || a.nextAt-now > accountEvery)
	if waits || !due && !a.speaks() {
		return a.due
	}
	a.nextAt = now + accountEvery
	if m := a.next(); m != nil {
		a.sent = append(a.sent, m)
		a.post(m)
	}
	return a.due
}

// speaks reports whether there is something to tell the backend besides usage.
func (a *Meter) speaks() bool {
	ends, now := len(a.ending()) > 0, a.link.HostNow()
	if a.set.Leaving {
		return ends || a.sequence > 0 && !a.gone
	}
	return len(a.list) == 0 && (ends || a.on && (now >= a.sayAt || a.sayAt-now > sayEvery))
}

// ending returns the senders that have ended and have no message on its way, valid until the next call.
func (a *Meter) ending() []uint64 {
	a.over = a.over[:0]
	for _, q := range a.ended {
		if len(a.over) < wire.MaxUsedEnded-1 && !slices.ContainsFunc(a.sent, func(m *Message) bool { return m.Sender == q.sender }) {
			a.over = append(a.over, q.sender)
		}
	}
	return a.over
}

// forsake leaves a sender whose usage was lost, or would be told too late, as a gap. If it is this sender, it goes on under
// another name.
func (a *Meter) forsake(sender uint64) {
	a.ended = slices.DeleteFunc(a.ended, func(q quiet) bool { return q.sender == sender })
	if sender == a.sender {
		a.sender, a.sequence, a.sayAt = a.link.Random(), 0, 0
	}
}

// next makes a message of the accounts, up to its bounds; nil if there is nothing to report.
func (a *Meter) next() *Message {
	m := a.idle
	if a.idle = nil; m == nil {
		m = &Message{}
	}
	now := a.link.HostNow()
	head := wire.Used{Namespace: a.namespace, Node: a.node, Sender: a.sender, Sequence: a.sequence + 1}
	rows, taken := 0, 0
	m.Body, m.hits = wire.AppendUsedHeader(m.Body[:0], &head), 0
	for ; taken < len(a.list) && rows < wire.MaxUsedRows && len(m.Body) < wire.MaxUsed-largestRow; taken++ {
		of := &a.list[taken]
		if of.hits == 0 {
			continue
		}
		m.Body = a.appendRow(m.Body, of)
		m.hits += uint64(max(0, of.hits))
		rows++
	}
	gone := a.gone
	if taken == len(a.list) {
		a.toldTo = a.link.ToBackend(now)
		head.Ended = a.ending()
		if gone = a.set.Leaving || !a.on; gone {
			head.Ended = append(head.Ended, a.sender)
		}
	}
	head.AtNanos = uint64(max(0, a.toldTo))
	m.Body = wire.AppendUsedEnd(m.Body, &head)
	for i := range a.list {
		if key := a.list[i].accountKey; i < taken {
			delete(a.at, key)
		} else {
			a.at[key] = int32(i - taken)
		}
	}
	a.list = a.list[:copy(a.list, a.list[taken:])]
	if rows == 0 && !a.speaks() {
		a.idle = m
		return nil
	}
	if a.sayAt = now + accountEvery; rows == 0 {
		a.sayAt = now + sayEvery
	}
	if a.sequence++; a.sequence == 1 {
		a.heardAt = now
	}
	m.Sender, m.Sequence, m.failures, m.since = head.Sender, head.Sequence, 0, a.heardAt
	a.gone, a.ended = gone, slices.DeleteFunc(a.ended, func(q quiet) bool {
		told := slices.Contains(head.Ended, q.sender)
		if told {
			m.since = min(m.since, q.heardAt)
		}
		return told
	})
	return m
}

func (a *Meter) appendRow(dst []byte, of *account) []byte {
	a.label = wire.AppendUsedLabel(a.label[:0], &wire.UsedLabel{
		Rule: a.rules[of.rule].name, ID: of.id, Model: of.model, Name: of.text[:of.size],
	})
	if a.budget = a.budget[:0]; of.budget.EndSeconds != 0 {
		a.budget = wire.AppendBudget(a.budget, &of.budget)
	}
	return wire.AppendUsedRow(dst, &wire.UsedRow{Label: a.label, Day: of.day, Hits: of.hits, Budget: a.budget})
}

//go:noinline
func (a *Meter) post(m *Message) {
	m.onWay, m.sentAt = true, a.link.HostNow()
	a.due = append(a.due, m)
}

// fail makes a message wait before it is repeated. A backend that does not know such messages may
// be replaced by another that does.
func (a *Meter) fail(m *Message) {
	m.onWay, m.retryAt = false, a.link.HostNow()+a.link.Random.Pause(m.failures)
	m.failures++
}

// Answered takes in the outcome of a message as it was sent under a sender and a sequence. A node that leaves sends more if
// the backend has counted it. After a failure the next tick sends again: otherwise a backend that fails at once would be
// called without end.
func (a *Meter) Answered(m *Message, sender, sequence uint64, outcome link.Outcome, answer []byte) {
	for i := range a.sent {
		if a.sent[i] != m || m.Sender != sender || m.Sequence != sequence {
			continue
		}
		switch {
		case outcome == link.PushAnswered && wire.AnswersUsed(answer, m.Sequence):
			if a.drop(i); sender == a.sender {
				a.heardAt = a.link.HostNow()
			}
			if a.set.Leaving {
				a.Send(true)
			}
		case m.onWay:
			a.fail(m)
		}
		return
	}
}

// drop drops a message.
func (a *Meter) drop(i int) {
	a.idle = a.sent[i]
	a.sent[i] = a.sent[len(a.sent)-1]
	a.sent = a.sent[:len(a.sent)-1]
}

// Unfinished reports whether there is usage that the backend has not heard of, or the end of a sender.
func (a *Meter) Unfinished() bool {
	return len(a.list)+len(a.sent) > 0 || a.set.Leaving && !a.link.Open() && a.speaks()
}

// Inherit takes over the usage that another node has not reported. The answers to its messages may
// never arrive, so they are repeated unchanged.
func (a *Meter) Inherit(from *Meter) {
	for _, m := range from.sent {
		m.onWay, m.retryAt = false, 0
		a.sent = append(a.sent, m)
	}
	for i := range from.list {
		old := &from.list[i]
		key := old.accountKey
		key.rule = a.ruleOf(from.rules[old.rule].name)
		of, isNew := a.account(key)
		if of.hits = wire.Sum(of.hits, old.hits); isNew {
			of.accountName, of.budget = old.accountName, old.budget
		}
	}
	if a.ended = append(a.ended, from.ended...); from.sequence > 0 && !from.gone {
		a.ended = append(a.ended, quiet{from.sender, from.heardAt})
	}
	from.sent, from.list, from.at, from.ended, from.gone = nil, nil, nil, nil, true
}

// ruleOf returns the index of a rule, which the node may no longer have.
func (a *Meter) ruleOf(name string) uint16 {
	for i := range a.rules {
		if a.rules[i].name == name {
			return uint16(i)
		}
	}
	a.rules = append(a.rules, accountedRule{name: name, limit: -1})
	return uint16(len(a.rules) - 1)
}

// Message is a message about usage, until it is answered. It is repeated unchanged, so it
// counts once.
type Message struct {
	Sender, Sequence uint64
	Body             []byte
	hits             uint64
	// onWay means that its end is not known yet.
	onWay bool
	// sentAt is when it was last sent, and since when the backend had last heard whom it tells of, by the host's
	// clock.
	sentAt, since int64
	failures      int
	retryAt       int64
}
