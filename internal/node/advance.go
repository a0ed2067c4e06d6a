package node

import (
	"cmp"
	"slices"

	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// Hits of a key that is far from its limit may pass before the backend has counted them: they are
// advanced. The worker keeps them outside of the table until the backend has counted them, so it
// knows their number whatever happens to the key's entry.

const (
	// leastFleet is the least number of nodes for advancing hits. In a smaller fleet, each node
	// sees a key often enough to lease hits for it.
	leastFleet = 8
	// wishLife is how long a worker that could use a part goes on asking for it, in nanoseconds.
	wishLife = int64(10e9)
	// askAgain is the time until a backend without lists of near keys is asked again, in
	// nanoseconds.
	askAgain = int64(60e9)
)

// advances has the worker's part of the advanced hits, and the keys that are near their limits.
type advances struct {
	rules *ruleset
	link  *link
	keys  *keys
	least uint64 // the least number of nodes

	// knows means that the backend keeps lists of near keys. If it does not, it is not asked again
	// before unknownTo.
	knows     bool
	unknownTo int64
	// wishedAt is when a request last could have used a part.
	wishedAt int64
	// ended means that the worker is no longer wanted.
	ended bool

	epoch, version, divisor uint64
	until                   int64  // when the part ends, by the backend's clock: no hits of a later window are advanced
	sender                  uint64 // the sender that has the part
	// without is the last push that said the worker has no part. Answers to earlier pushes give
	// none.
	without uint64
	askedAt int64 // when the part was asked for; 0 once answered
	// owes means that the backend has not heard yet that the worker has no part any more.
	owes   bool
	tellAt int64
	seenAt int64 // the latest time of the host's clock

	near   nearKeys
	limits []uint64
	// revision changes with the part and the limits, and so do the allowances of rules.
	revision uint64
	hits     advancedHits
}

// newAdvances returns a worker's advances, in fleets of at least so many nodes; 0 means the usual number.
func newAdvances(rules *ruleset, link *link, keys *keys, least uint64) advances {
	return advances{rules: rules, link: link, keys: keys, least: cmp.Or(least, leastFleet)}
}

// nearKeys is a set of keys in the form of [wire.NearKey], in a table with open addressing.
type nearKeys struct {
	slots []uint32
	count int
}

// find returns the slot of a key, or a free slot. At least half of the slots are free.
func (s *nearKeys) find(key uint32) *uint32 {
	for i := key; ; i++ {
		if at := &s.slots[i&uint32(len(s.slots)-1)]; *at == key || *at == 0 {
			return at
		}
	}
}

func (s *nearKeys) has(key uint32) bool { return s.count != 0 && *s.find(key) == key }

func (s *nearKeys) add(key uint32) {
	if 2*(s.count+1) > len(s.slots) {
		old := s.slots
		s.slots = make([]uint32, max(16, 2*len(old)))
		for _, key := range old {
			*s.find(key) = key
		}
	}
	if at := s.find(key); *at == 0 {
		*at = key
		s.count++
	}
}

func (s *nearKeys) clear() {
	clear(s.slots)
	s.count = 0
}

// wishes records that a request has to wait that a part would have let pass.
//
//go:noinline
func (a *advances) wishes(r *Rule, now int64) {
	if r.advances && !r.override && !a.ended && a.rules.nodes >= a.least {
		a.wishedAt = a.link.toHost(now)
	}
}

// wants reports whether the worker can use a part.
func (a *advances) wants(now int64) bool {
	ago := now - a.wishedAt
	return !a.ended && a.wishedAt != 0 && ago >= 0 && ago < wishLife
}

// takes reports whether a demand's hits are advanced: the key is far from its limits and the worker
// has not advanced too many. The demand was read.
//
//go:noinline
func (a *advances) takes(d *Demand, now int64) bool {
	r := d.Rule
	allowance := a.allowance(r)
	if allowance == 0 {
		a.wishes(r, now)
		return false
	}
	hostNow := a.link.toHost(now)
	if a.wishedAt = hostNow; now >= a.until || hostNow < a.seenAt || now < a.hits.lostTo || a.hits.count() >= maxAdvanced {
		return false
	}
	held := a.hits.held(d.address)
	if d.Cost > allowance || held > allowance-d.Cost || !d.Counter.Allows(held+d.Cost) {
		return false
	}
	d.listed = a.lists(d)
	return !d.listed
}

// full reports whether the list has a demand's key as full in its present window. The list does not tell
// if there is room again, so it counts only until the node has heard of the key in this window.
func (a *advances) full(d *Demand, now int64) bool {
	id := a.keys.identity(d)
	for i, limit := range d.Rule.near {
		l := &d.Rule.Limits[i]
		if l.Kind != window.FixedWindow || d.Counter.HeardSince(now-now%l.Width, now) {
			continue
		}
		if a.near.has(wire.NearKey(id, wire.NearFull(limit, l.Number(&d.Counter.States[i])))) {
			return true
		}
	}
	return false
}

// lists reports whether the list has a demand's key as near by any of its limits. The demand was read.
func (a *advances) lists(d *Demand) bool {
	if a.near.count == 0 {
		return false
	}
	id := a.keys.identity(d)
	for i, limit := range d.Rule.near {
		number := uint64(0)
		if l := &d.Rule.Limits[i]; l.Kind == window.FixedWindow {
			number = l.Number(&d.Counter.States[i])
		}
		if a.near.has(wire.NearKey(id, wire.NearWindow(limit, number))) {
			return true
		}
	}
	return false
}

// take advances a demand's hits. The demand's counter includes everything advanced for its key, and
// is not written. many reports whether the worker should lease hits for the key.
func (a *advances) take(d *Demand, now int64) (many bool) {
	d.hits = ahead
	d.numbers = d.Counter.Numbers(d.numbers[:0])
	a.keys.identity(d)
	held := a.hits.held(d.address)
	a.hits.add(d, now)
	d.Counter.Count(held + d.Cost)
	return held > 0 && 2*(held+d.Cost) > a.allowance(d.Rule)
}

// says returns the part of a push about advanced hits. A push without hits may find out whether the
// backend keeps lists of near keys.
func (a *advances) says(sender, sequence uint64, empty bool) (s wire.Advance) {
	now := a.link.hostNow()
	wants := a.wants(now)
	if !a.knows && (!empty || !wants || now < a.unknownTo && a.unknownTo-now <= askAgain) {
		return s
	}
	if a.divisor != 0 && a.sender != sender {
		a.drop()
	}
	if a.sender = sender; a.divisor == 0 {
		// A part that is on its way would be lost.
		if ago := now - a.askedAt; !wants && !a.owes || a.askedAt != 0 && ago >= 0 && ago < longestPause/4 {
			return s
		}
		a.without, a.askedAt = sequence, now
	}
	return wire.Advance{Told: true, Epoch: a.epoch, Version: a.version, Divisor: a.divisor, Wants: wants}
}

// settles reports whether a push with that number of advanced hits leaves none to be counted.
func (a *advances) settles(own int) bool {
	return len(a.hits.unsent) == 0 && a.hits.out == own && a.hits.lostTo <= a.link.now()
}

// hear takes in the answer to a push about advanced hits. answeredAt is by the backend's clock.
func (a *advances) hear(n *wire.Near, sequence uint64, sentAt, answeredAt int64) {
	if !n.Told {
		a.knows, a.unknownTo = false, a.link.hostNow()+askAgain
		a.drop()
		a.owes = false
		return
	}
	a.knows = true
	if sequence == a.without {
		a.askedAt = 0
	}
	switch {
	case a.divisor == 0 && sequence < a.without:
		return
	case n.Whole && (a.divisor == 0 || n.Version >= a.version):
		a.near.clear()
		a.limits = a.limits[:0]
		a.learn(n)
	case !n.Whole && n.Epoch == a.epoch:
		a.learn(n)
	}
	if a.version < n.Version || n.Divisor == 0 {
		a.drop() // the list may lack keys that are near by now
		return
	}
	if a.divisor < n.Divisor {
		a.divisor = n.Divisor
	}
	a.owes = true
	if a.until = answeredAt + wire.PartLife; a.seenAt == 0 {
		a.seenAt = sentAt
	}
	a.revision++
}

// learn adds to the list.
//
//go:noinline
func (a *advances) learn(n *wire.Near) {
	a.epoch, a.version = n.Epoch, max(a.version, n.Version)
	for i := range n.LimitCount() {
		a.limits = append(a.limits, n.Limit(i))
	}
	for i := range n.KeyCount() {
		a.near.add(n.Key(i))
	}
}

// drop ends the part, and drops the list.
//
//go:noinline
func (a *advances) drop() {
	a.epoch, a.version, a.divisor, a.until = 0, 0, 0, 0
	a.near.clear()
	a.limits = a.limits[:0]
	a.revision++
}

// end ends the part for good.
func (a *advances) end() {
	a.ended = true
	a.drop()
}

// allowance returns how many hits of a key a rule may advance: none without a part, or unless the
// list has all of its limits.
func (a *advances) allowance(r *Rule) uint64 {
	if a.divisor == 0 || !r.advances || r.override || r.base() != &a.rules.list[r.Index] {
		return 0
	}
	if r.revision == a.revision {
		return r.allowance
	}
	r.revision, r.allowance = a.revision, wire.MaxAdvance
	for i := range r.Limits {
		if !a.listsRule(wire.NearRule(r.near[i], r.tag)) {
			r.allowance = 0
		}
		r.allowance = min(r.allowance, wire.MostAdvanced(r.Limits[i].Max, a.divisor))
	}
	return r.allowance
}

func (a *advances) listsRule(limit uint64) bool { return slices.Contains(a.limits, limit) }

// tick ends the part when its time is over or the clock was set back. It reports whether a push
// without hits should inform or ask the backend.
func (a *advances) tick() (tells bool) {
	now := a.link.hostNow()
	if a.divisor != 0 && (a.link.now() >= a.until || now < a.seenAt) {
		a.drop()
	}
	a.seenAt = now
	switch {
	case a.tellAt > now && a.tellAt-now <= longestPause:
		return false
	case a.divisor == 0 && a.owes && a.knows && a.hits.count() == 0:
	case !a.knows && a.wants(now) && (now >= a.unknownTo || a.unknownTo-now > askAgain):
	default:
		return false
	}
	a.tellAt = now + longestPause
	return true
}

// told records that the backend knows that the worker has no part.
func (a *advances) told(sequence uint64) {
	if a.divisor == 0 && sequence >= a.without {
		a.owes = false
	}
}

// maxAdvanced bounds the keys with advanced hits that are not counted yet.
const maxAdvanced = 1 << 12

// advanced are hits of a key in certain windows that the backend has not counted yet.
type advanced struct {
	_ [0]func() // keeps Go from generating an equality function

	of      *advancedHits
	rule    *Rule
	address sharedata.Address
	id      [16]byte
	hits    uint64
	numbers [maxLimits]uint64 // of the windows, in the order of the rule's limits
	sent    bool
	next    *advanced // next in the list of the same slot of the index
}

// advancedHits are a worker's advanced hits that the backend has not counted yet. They are not in
// the table, so the worker knows of them whatever happens to their keys' entries, and only it
// pushes them.
type advancedHits struct {
	index  *[256]*advanced
	unsent []*advanced
	out    int   // how many are in pushes
	due    int64 // when to push the others, by the backend's clock
	spare  []*advanced
	// lostTo is until when hits count that the backend may never count, by the backend's clock.
	lostTo int64
}

func (a *advancedHits) count() int { return len(a.unsent) + a.out }

func (a *advancedHits) list(address sharedata.Address) **advanced {
	return &a.index[address.Hash()%uint64(len(a.index))]
}

// held is how many hits of a key are advanced and not counted.
//
//go:noinline
func (a *advancedHits) held(address sharedata.Address) (hits uint64) {
	if a.count() == 0 {
		return 0
	}
	for h := *a.list(address); h != nil; h = h.next {
		if h.address == address {
			hits += h.hits
		}
	}
	return hits
}

// find returns the hits of a demand's key in the same windows, or nil.
//
//go:noinline
func (a *advancedHits) find(d *Demand) *advanced {
	for h := *a.list(d.address); h != nil; h = h.next {
		if h.address == d.address && !h.sent && h.rule.is(d.Rule) && slices.Equal(h.numbers[:len(d.numbers)], d.numbers) {
			return h
		}
	}
	return nil
}

// add adds a demand's hits. The demand has its identity and the numbers of its windows.
func (a *advancedHits) add(d *Demand, now int64) {
	if a.index == nil {
		a.index = new([256]*advanced)
	}
	h := a.find(d)
	if h == nil {
		if last := len(a.spare) - 1; last >= 0 {
			h, a.spare = a.spare[last], a.spare[:last]
		} else {
			h = &advanced{of: a}
		}
		list := a.list(d.address)
		h.rule, h.address, h.id, h.next = d.Rule, d.address, d.id, *list
		h.hits, h.sent = 0, false
		copy(h.numbers[:], d.numbers)
		*list = h
		if due := now + d.Rule.Interval; len(a.unsent) == 0 || due < a.due {
			a.due = due
		}
		a.unsent = append(a.unsent, h)
	}
	h.hits += d.Cost
}

// giveBack takes back the hits that a demand has just added.
func (a *advancedHits) giveBack(d *Demand) {
	if h := a.find(d); h != nil {
		h.hits -= min(h.hits, d.Cost) // without hits, nothing is pushed
	}
}

// dueAt reports whether hits are due at a time, or with all, whether there are any. A clock that
// was set back delays none.
func (a *advancedHits) dueAt(now int64, all bool) bool {
	return len(a.unsent) > 0 && (all || now >= a.due || a.due-now > window.MaxWidth)
}

// send returns the last of the hits that are to be pushed.
func (a *advancedHits) send() *advanced {
	last := len(a.unsent) - 1
	h := a.unsent[last]
	a.unsent[last], a.unsent = nil, a.unsent[:last]
	h.sent = true
	a.out++
	return h
}

// counted drops hits that the backend has counted. The push may be inherited from another worker.
//
//go:noinline
func (h *advanced) counted() {
	a := h.of
	for at := a.list(h.address); *at != nil; at = &(*at).next {
		if *at == h {
			*at = h.next
			break
		}
	}
	a.out--
	if h.next = nil; len(a.spare) < maxAdvanced {
		a.spare = append(a.spare, h)
	}
}

// lost drops hits that were pushed and that the backend may never count.
//
//go:noinline
func (h *advanced) lost() {
	h.of.lostTo = max(h.of.lostTo, h.ends())
	h.counted()
}

// ends is the time from which the hits no longer count. It follows from their windows, because the
// clock may have been set back.
func (h *advanced) ends() (at int64) {
	for i := range h.rule.Limits {
		l := &h.rule.Limits[i]
		at = max(at, (int64(h.numbers[i])+int64(l.Kind.Windows()))*l.Width)
	}
	return at + wire.PartLife
}

// push fills in the push for limit i.
func (h *advanced) push(i int, p *window.Push) {
	p.Newest = h.numbers[i]
	p.Hits, p.Ages = append(p.Hits[:0], int64(h.hits)), p.Ages[:0]
	if h.rule.Limits[i].Kind == window.SlidingWindow {
		p.Hits = append(p.Hits, 0) // asks for the total of the previous window too
	}
}
