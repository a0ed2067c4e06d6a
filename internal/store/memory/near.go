package memory

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// Senders may let hits of a key pass before the store has counted them ("advance" them), as long as the
// key is far from its limit. RATIONALE.md proves why no more than the limit passes. Here is the store's
// part of that: it notes which keys are near, and what each sender may have advanced; and while a sender
// may not have heard that a key is near, it grants others less of the key.

const (
	// maxFleets bounds the namespaces whose senders advance hits.
	maxFleets = 1024
	// leastDivisor and mostDivisor bound the divisors of senders' parts, and wholeUnits is all parts
	// together.
	leastDivisor = 16
	mostDivisor  = 1 << 16
	wholeUnits   = uint64(1) << 32
	// A sender is silent when it has had no answer for silentAfter: then its part has ended. It is
	// forgotten after its hits have left all windows and graceOfParts.
	silentAfter  = uint64(wire.PartLife + 2e9)
	graceOfParts = uint64(120e9)
	// sweepEvery is how often fleets are looked through.
	sweepEvery = uint64(1e9)
	// reviewEvery is how often keys are taken off the list that are far again, by the clock of now and of
	// clockSlack ago. Windows of senders are ahead by no more than that.
	reviewEvery = uint64(10e9)
	clockSlack  = uint64(5e9)
	// restNanos is for how long a limit rests that had too many near keys, or that nobody asked for.
	restNanos = uint64(60e9)
	staleAt   = uint64(3600e9)
	// walkPlaces bounds the counters that a push looks at for a limit that is new.
	walkPlaces = 256
	// reservedVersions is how many versions a store that outlives its process has written down ahead.
	reservedVersions = 1 << 20
	// maxLimits bounds the limits whose keys are looked at when they are hit.
	maxLimits = 32
)

// fleet has the senders of a namespace, and its near keys.
type fleet struct {
	store          *Store
	namespace      string
	epoch, version uint64
	versions       uint64 // that a next life of the store begins with, and later than any told before
	base           uint64 // the version before the first of the log
	log            []nearEntry
	limits         []*nearLimit
	keys, gone     int // near keys of all limits, and keys of the epoch that are far again
	live, silent   []*part
	of             map[uint64]*part
	units          uint64 // that all parts take
	low            uint64 // no live part has a lower version
	swept, looked  uint64
}

// nearEntry is a limit of a rule, or a key, that a version has added to the list.
type nearEntry struct {
	version, limit uint64
	key            uint32
}

// nearLimit is a limit of rules whose senders advance hits.
type nearLimit struct {
	shape wire.LimitCounter // without an identity
	max   uint64
	name  uint64
	// rules are in the list, each with the limit: nobody advances hits of another rule, and no other rule's
	// hits are kept back.
	rules []nearRule
	// near has the keys that are, each with the version that has told of it.
	near map[wire.ID]uint64
	// listed says that the list has the limit. If not, the store walks through its counters, unless the
	// limit rests until restsTo. unlisted is the version that took the limit off the list, 0 if it has
	// never been there.
	listed   bool
	walked   int // places
	unlisted uint64
	restsTo  uint64
	asked    uint64
}

// nearRule is a rule whose senders advance hits.
type nearRule struct {
	tag uint16 // odd
	// since is the version that has told of the rule first, 0 if none has.
	since uint64
}

// part bounds the hits that a sender may have advanced: MostAdvanced of each limit, of keys that the list
// of version heard does not have. All that it had advanced before it knew that version is counted.
// answered is when the sender got the last answer, from which on its part lasts for wire.PartLife.
type part struct {
	sender, sequence, divisor, heard, answered uint64
}

// owes reports whether the hits of a silent sender may count in a limit's windows of now.
func (p *part) owes(of *wire.LimitCounter, now uint64) bool {
	last := store.NumberAt(*of, p.answered+uint64(wire.PartLife)+clockSlack)
	if window.Kind(of.Kind) == window.SlidingWindow {
		last++ // hits of the window before count
	}
	return store.NumberAt(*of, now) <= last
}

func unitsOf(divisor uint64) uint64 {
	if divisor == 0 {
		return 0
	}
	return (wholeUnits + divisor - 1) / divisor
}

// fleet is that of a push's namespace; nil if it has none, or a granter knows of hits that this store does not.
func (s *Store) fleet(p *wire.Push, now uint64) *fleet {
	if s.granter != nil {
		return nil
	}
	f := s.fleets[p.Namespace]
	if f == nil && p.Advance.Told && len(s.fleets) < maxFleets {
		f = s.newFleet(p.Namespace, now)
	}
	return f
}

func (s *Store) newFleet(namespace string, now uint64) *fleet {
	f := &fleet{store: s, namespace: namespace, epoch: rand.Uint64() | 1, of: map[uint64]*part{}}
	s.fleets[namespace] = f
	f.reserve(now / 1e6)
	f.base = f.version
	return f
}

// next is the next version.
func (f *fleet) next() {
	if f.version++; f.version == f.versions {
		f.reserve(f.version)
	}
}

// reserve reserves versions, from one on.
func (f *fleet) reserve(from uint64) {
	f.version, f.versions = from, from+reservedVersions
	noteChange(f.store, fleetKey(f.namespace))
}

// advances reports whether hits of a limit can be advanced. Others may come back singly, start their own
// windows, or push out each other.
func advances(c *wire.LimitCounter, limit uint64) bool {
	switch window.Kind(c.Kind) {
	case window.FixedWindow, window.SlidingWindow:
		return wire.MostAdvanced(limit, leastDivisor) > 0
	}
	return false
}

// see notes that a counter has so many hits.
func (f *fleet) see(key wire.LimitCounter, used, now uint64) {
	for _, l := range f.limits {
		if used >= wire.NearFrom(l.max) && (l.listed || l.walks(now)) && l.isOf(key) {
			f.add(l, key.ID, now)
		}
	}
}

func (l *nearLimit) isOf(c wire.LimitCounter) bool {
	c.ID = wire.ID{}
	return l.shape == c
}

func (l *nearLimit) walks(now uint64) bool { return !l.listed && now >= l.restsTo }

// add adds a key to a limit's, unless it is there.
func (f *fleet) add(l *nearLimit, id wire.ID, now uint64) {
	if _, known := l.near[id]; known {
		return
	}
	if f.keys >= wire.MaxNearKeys {
		f.rest(l, now)
		return
	}
	f.keys++
	if !l.listed {
		l.near[id] = l.unlisted // senders will hear of the limit and the key at once
		return
	}
	f.next()
	l.near[id] = f.version
	f.log = append(f.log, nearEntry{version: f.version, limit: l.name, key: wire.NearKey(id, l.name)})
	if len(f.log) > 2*wire.MaxNearKeys {
		f.begin()
	}
}

// rest takes a limit off the list for a while.
func (f *fleet) rest(l *nearLimit, now uint64) {
	f.keys -= len(l.near)
	l.near, l.walked, l.restsTo = map[wire.ID]uint64{}, 0, now+restNanos
	if l.listed {
		f.next()
		l.listed, l.unlisted = false, f.version
		f.begin()
	}
}

// begin begins an epoch: all senders get the whole list.
func (f *fleet) begin() {
	f.epoch = rand.Uint64() | 1
	f.base, f.log, f.gone = f.version, nil, 0
}

// ask notes that a room is asked for whose rule's hits are advanced.
func (f *fleet) ask(room *wire.Room, now uint64) {
	if room.Tag&1 == 0 || !advances(&room.LimitCounter, room.Limit) {
		return
	}
	var limit *nearLimit
	rules := 0
	for _, l := range f.limits {
		if rules += len(l.rules); l.max == room.Limit && l.isOf(room.LimitCounter) {
			limit = l
			if l.asked = now; l.rule(room.Tag) != nil {
				return
			}
		}
	}
	if rules >= wire.MaxNearLimits || limit == nil && len(f.limits) >= maxLimits {
		return // the rule's requests wait
	}
	if limit == nil {
		limit = f.newLimit(room.LimitCounter, room.Limit, now)
	}
	limit.rules = append(limit.rules, nearRule{tag: room.Tag})
	if noteChange(f.store, f.keyOf(limit)); limit.listed {
		f.next()
		f.listRule(limit, &limit.rules[len(limit.rules)-1])
	}
}

func (f *fleet) newLimit(shape wire.LimitCounter, most, now uint64) *nearLimit {
	shape.ID = wire.ID{}
	l := &nearLimit{shape: shape, max: most, name: shape.NearLimit(most), asked: now, near: map[wire.ID]uint64{}}
	f.limits = append(f.limits, l)
	return l
}

// listRule lists a limit with a rule, by the newest version.
func (f *fleet) listRule(l *nearLimit, r *nearRule) {
	if r.since == 0 {
		r.since = f.version
	}
	f.log = append(f.log, nearEntry{version: f.version, limit: wire.NearRule(l.name, r.tag)})
}

// rule is that of a tag, which may be even in some of its rooms; nil if the limit is of no such rule.
func (l *nearLimit) rule(tag uint16) *nearRule {
	for i := range l.rules {
		if r := &l.rules[i]; r.tag == tag|1 {
			return r
		}
	}
	return nil
}

// keptBack is the number of hits that a room has to leave for those that senders may have advanced, and
// how many of them silent senders may have: nobody gets those. used hits are counted, and the room may
// give most hits.
func (f *fleet) keptBack(room *wire.Room, used, most, now uint64) (hits, silent uint64) {
	after := used + most
	for _, l := range f.limits {
		if after < wire.NearFrom(l.max) || !l.isOf(room.LimitCounter) {
			continue
		}
		version, near := l.near[room.ID]
		// An old sender's room has no tag. A rule's key that is near for longer than the rule is listed is
		// known to be near to all who know of the rule.
		if r := l.rule(room.Tag); room.Tag != 0 && (r == nil || r.since == 0 || near && version < r.since) {
			continue
		}
		switch {
		case !l.listed:
			version = l.unlisted
		case !near:
			version = f.version + 1 // nobody has heard of it yet
		}
		lost := f.lost(l, version, now)
		hits, silent = max(hits, lost+f.unheard(l.max, version)), max(silent, lost)
	}
	return hits, silent
}

// lost is the most hits of a key that silent senders may have advanced by a limit, which may not know a
// version.
func (f *fleet) lost(l *nearLimit, version, now uint64) (hits uint64) {
	for _, p := range f.silent {
		if p.heard < version && p.owes(&l.shape, now) {
			hits += wire.MostAdvanced(l.max, p.divisor)
		}
	}
	return hits
}

// unheard is the most hits of a key that live senders may have advanced by a limit of so many hits, and
// may not know a version.
func (f *fleet) unheard(limit, version uint64) (hits uint64) {
	if version <= f.low {
		return 0
	}
	low := f.version
	for _, p := range f.live {
		if p.divisor == 0 {
			continue
		}
		if low = min(low, p.heard); p.heard < version {
			hits += wire.MostAdvanced(limit, p.divisor)
		}
	}
	f.low = low
	return hits
}

// hear takes in a push's word on what its sender has advanced. The push's items are counted.
func (f *fleet) hear(p *wire.Push) {
	a := &p.Advance
	own := f.of[p.Sender]
	if own == nil || p.Sequence <= own.sequence {
		return
	}
	own.sequence = p.Sequence
	if !a.Settled {
		return
	}
	if a.Divisor == 0 || a.Divisor > own.divisor && own.divisor > 0 {
		f.setDivisor(own, a.Divisor)
	}
	own.heard = max(own.heard, min(a.Version, f.version))
}

// setDivisor has a part be larger or smaller, or none.
func (f *fleet) setDivisor(p *part, divisor uint64) {
	if p.divisor == divisor {
		return
	}
	f.units += unitsOf(divisor) - unitsOf(p.divisor)
	p.divisor = divisor
	noteChange(f.store, partKey{f.namespace, p.sender})
}

// tell answers a push's word.
func (f *fleet) tell(p *wire.Push, now uint64) (n wire.Near) {
	a := &p.Advance
	n = wire.Near{Told: true, Epoch: f.epoch, Version: f.version, Divisor: f.divisor(p, now)}
	if a.Epoch == f.epoch && a.Version >= f.base && a.Version <= f.version {
		first, _ := slices.BinarySearchFunc(f.log, a.Version+1, func(e nearEntry, v uint64) int { return cmp.Compare(e.version, v) })
		for _, e := range f.log[first:] {
			if e.key == 0 {
				n.AddLimit(e.limit)
			} else {
				n.AddKey(e.key)
			}
		}
		if len(n.Keys) <= 4*wire.MaxNearKeys && len(n.Limits) <= 8*wire.MaxNearLimits {
			return n
		}
		n.Limits, n.Keys = nil, nil
	}
	n.Whole = true
	for _, l := range f.limits {
		if !l.listed {
			continue
		}
		for _, r := range l.rules {
			n.AddLimit(wire.NearRule(l.name, r.tag))
		}
		for id := range l.near {
			n.AddKey(wire.NearKey(id, l.name))
		}
	}
	return n
}

// divisor is that of a sender's part, which it gets if it wants one and there is room.
func (f *fleet) divisor(p *wire.Push, now uint64) uint64 {
	own, a := f.of[p.Sender], &p.Advance
	if own != nil {
		silent := own.silent(now)
		if own.answered = now; silent {
			f.sort(now)
		}
	}
	if own == nil && a.Wants && len(f.of) < mostDivisor {
		own = &part{sender: p.Sender, sequence: p.Sequence, answered: now}
		f.of[p.Sender] = own
		f.live = append(f.live, own)
	}
	want := f.fair()
	switch {
	case own == nil || want == 0:
		return 0
	case own.divisor > 4*want:
		return 0 // it comes back for a larger part
	case own.divisor > 0:
		return max(own.divisor, want)
	case !a.Wants || a.Divisor != 0 || !a.Settled || f.units+unitsOf(want) > wholeUnits || p.Sequence < own.sequence:
		return 0
	}
	own.heard = f.version
	f.setDivisor(own, want)
	return want
}

// fair is the divisor by which there is a part for each sender; 0 if there is none.
func (f *fleet) fair() uint64 {
	lost := uint64(0)
	for _, p := range f.silent {
		lost += unitsOf(p.divisor)
	}
	if lost >= wholeUnits {
		return 0
	}
	senders := uint64(len(f.live))
	divisor := max(leastDivisor, (senders*wholeUnits+wholeUnits-lost-1)/(wholeUnits-lost))
	step := uint64(1)
	for step*16 <= divisor {
		step *= 2
	}
	if divisor = (divisor + step - 1) / step * step; divisor > mostDivisor {
		return 0
	}
	return divisor
}

func (p *part) silent(now uint64) bool { return now > p.answered && now-p.answered > silentAfter }

// sort tells silent senders from others.
func (f *fleet) sort(now uint64) {
	all := append(f.live, f.silent...)
	f.live, f.silent, f.low = nil, nil, 0
	for _, p := range all {
		if p.silent(now) {
			f.silent = append(f.silent, p)
		} else {
			f.live = append(f.live, p)
		}
	}
}

// sweep does what is due. It looks at some of the counters that a new limit may have.
func (s *Store) sweepFleet(namespace string, f *fleet, now uint64) {
	calendar := store.Calendar{NowNanos: now}
	for _, l := range f.limits {
		if l.walks(now) {
			s.walk(namespace, f, l, calendar)
		} else {
			l.walked = 0 // if the clock was set back, keys go unseen
		}
	}
	if now >= f.swept && now-f.swept < sweepEvery {
		return
	}
	f.swept = now
	f.sort(now)
	f.forget(now)
	if now >= f.looked && now-f.looked < reviewEvery {
		return
	}
	f.looked = now
	s.review(namespace, f, calendar)
}

// forget forgets silent senders whose hits count no more.
func (f *fleet) forget(now uint64) {
	longest := uint64(0)
	for _, l := range f.limits {
		longest = max(longest, l.shape.WidthMillis*1e6)
	}
	f.silent = slices.DeleteFunc(f.silent, func(p *part) bool {
		if now < p.answered || now-p.answered < graceOfParts || p.divisor > 0 && now-p.answered < 2*longest+graceOfParts {
			return false
		}
		f.setDivisor(p, 0)
		delete(f.of, p.sender)
		return true
	})
	f.limits = slices.DeleteFunc(f.limits, func(l *nearLimit) bool {
		if now < l.asked || now-l.asked < staleAt {
			return false
		}
		f.rest(l, now)
		if f.lost(l, l.unlisted, now)+f.unheard(l.max, l.unlisted) > 0 {
			return false
		}
		noteChange(f.store, f.keyOf(l))
		return true
	})
}

// review takes keys off the list that are far again.
func (s *Store) review(namespace string, f *fleet, calendar store.Calendar) {
	before := store.Calendar{NowNanos: calendar.NowNanos - min(calendar.NowNanos, clockSlack)}
	for _, l := range f.limits {
		for id := range l.near {
			key := counterKey{namespace, l.shape}
			key.ID = id
			used := uint64(0)
			if e := s.counters.rows[key]; e != nil {
				used = max(calendar.Used(&e.value.Contents, key.LimitCounter), before.Used(&e.value.Contents, key.LimitCounter))
			}
			if used < wire.NearFrom(l.max)/4*3 {
				delete(l.near, id)
				f.keys--
				f.gone++
			}
		}
	}
	if f.gone > 64+f.keys/2 {
		f.next() // a list of the same version may be the last epoch's
		f.begin()
	}
}

// walk looks for near keys of a limit that is to be listed, and lists it when it has seen all counters.
// Those that come meanwhile are seen when they are hit.
func (s *Store) walk(namespace string, f *fleet, l *nearLimit, calendar store.Calendar) {
	for range walkPlaces {
		if l.walked >= len(s.counters.places) {
			f.list(l)
			return
		}
		e := s.counters.places[l.walked]
		l.walked++
		if e == nil || e.key.namespace != namespace || !l.isOf(e.key.LimitCounter) {
			continue
		}
		if calendar.Used(&e.value.Contents, e.key.LimitCounter) >= wire.NearFrom(l.max) {
			if f.add(l, e.key.ID, calendar.NowNanos); !l.walks(calendar.NowNanos) {
				return
			}
		}
	}
}

// list lists a limit, with its near keys.
func (f *fleet) list(l *nearLimit) {
	f.next()
	l.listed = true
	for i := range l.rules {
		f.listRule(l, &l.rules[i])
	}
	for id := range l.near {
		f.log = append(f.log, nearEntry{version: f.version, limit: l.name, key: wire.NearKey(id, l.name)})
	}
	if len(f.log) > 2*wire.MaxNearKeys {
		f.begin()
	}
}

// keptBack asks [fleet.keptBack] about a room of a take.
func (l *ledger) keptBack(take *wire.Take, room *wire.Room) (hits, silent uint64) {
	used := uint64(0)
	if e := l.store.counters.rows[counterKey{l.namespace, room.LimitCounter}]; e != nil {
		used = l.calendar.Used(&e.value.Contents, room.LimitCounter)
	}
	most := wire.MaxHits
	if room.Cost == 0 || take.Most <= wire.MaxHits/room.Cost {
		most = int(take.Most * room.Cost)
	}
	return l.fleet.keptBack(room, used, uint64(most), l.calendar.NowNanos)
}

// takeFor is a take whose rooms leave what senders may have advanced. It is the take itself, unless there
// is something to leave.
func (l *ledger) takeFor(take *wire.Take) *wire.Take {
	if l.fleet == nil {
		return take
	}
	var left *wire.Take
	for i := range take.Rooms {
		room := &take.Rooms[i]
		l.fleet.ask(room, l.calendar.NowNanos)
		if hits, _ := l.keptBack(take, room); hits != 0 {
			if left == nil {
				left = &wire.Take{Least: take.Least, Most: take.Most, Lease: take.Lease, Rooms: slices.Clone(take.Rooms)}
			}
			left.Rooms[i].Limit -= min(room.Limit, hits)
		}
	}
	if left == nil {
		return take
	}
	return left
}

// refuse has what silent senders may have advanced count as used in the answer to a take that is refused:
// a sender that took it for room would ask for each request until the window ends. Other kinds of windows
// are asked for as they fill.
func (l *ledger) refuse(take *wire.Take, g *wire.Grant) {
	for i := range take.Rooms {
		room := &take.Rooms[i]
		if window.Kind(room.Kind) != window.FixedWindow || len(g.Totals[i].Hits) == 0 {
			continue
		}
		if _, silent := l.keptBack(take, room); silent != 0 {
			used := &g.Totals[i].Hits[0]
			*used = max(*used, min(*used+silent, room.Limit))
		}
	}
}
