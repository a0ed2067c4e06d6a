package memory

import (
	"cmp"
	"slices"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// Senders may let hits of a key pass before the store has counted them ("advance" them) while the
// key is far from its limit. RATIONALE.md proves that no more than the limit passes. This file is
// the store's part: it records which keys are near, and bounds the hits that each sender may have
// advanced. While a sender may not know that a key is near, the store grants others fewer hits of
// the key.

const (
	// maxFleets bounds the namespaces whose senders advance hits.
	maxFleets = 1024
	// mostDivisor bounds the divisors of senders' parts. wholeUnits is the sum of all possible parts.
	mostDivisor = 1 << 16
	wholeUnits  = uint64(1) << 32
	// A sender is silent after it had no answer for silentAfter: its part has then ended. It is
	// forgotten graceOfParts after its hits have left all windows.
	silentAfter  = uint64(wire.PartLife + 2e9)
	graceOfParts = uint64(120e9)
	// sweepEvery is how often the senders of a fleet are checked.
	sweepEvery = uint64(1e9)
	// reviewEvery is how often keys that are far again are removed from the list. They must be far
	// by the present clock and by that of clockSlack ago, because senders' windows are ahead by at
	// most that.
	reviewEvery = uint64(10e9)
	clockSlack  = uint64(5e9)
	// hearingNanos bounds the time in which senders hear that a key is near.
	hearingNanos = uint64(5e9)
	// mostSpare is the length of the list from which on it has no more full keys, and none for the next
	// window. Without these some requests wait or are refused falsely. If the list had no room for near
	// keys, the limit would have to leave it.
	mostSpare = wire.MaxNearKeys / 2
	// restNanos is how long a limit is off the list after it had too many near keys. After staleAt
	// without a take, a limit is removed.
	restNanos = uint64(60e9)
	staleAt   = uint64(3600e9)
	// walkPlaces bounds the counters that a push examines for a new limit.
	walkPlaces = 256
	// reservedVersions is how many versions a durable store records in advance.
	reservedVersions = 1 << 20
)

// fleet has the senders of a namespace that advance hits, and its near keys.
type fleet struct {
	store          *Store
	namespace      string
	epoch, version uint64
	versions       uint64 // the next process begins with this version, which is later than any sent before
	base           uint64 // the version before the first of the log
	log            []nearEntry
	limits         []*nearLimit
	keys, gone     int // near keys of all limits, and keys removed in this epoch
	live, silent   []*part
	of             map[uint64]*part
	units          uint64 // sum of all parts
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
	// rules are the rules with this limit in the list. Senders advance no hits of other rules, and
	// other rules' takes leave no room for advanced hits.
	rules []nearRule
	// near has the near keys.
	near map[nearKey]nearState
	// listed means that the list has the limit. Otherwise the store walks through its counters,
	// unless the limit rests until restsTo. unlisted is the version that removed the limit from the
	// list; 0 if it was never listed.
	listed   bool
	walked   int // places seen so far
	unlisted uint64
	restsTo  uint64
	asked    uint64
}

// nearKey is a key that is near in a window, which has the number 0 if it slides. With full set it
// is a key that was full in the window.
type nearKey struct {
	id     wire.ID
	number uint64
	full   bool
}

// nearState has the version that has listed a key, and when half of the limit was used; 0 if it was
// listed before that.
type nearState struct{ version, since uint64 }

// nearRule is a rule whose senders advance hits.
type nearRule struct {
	tag uint16 // odd
	// since is the version that has first listed the rule; 0 if none has.
	since uint64
}

// part bounds the hits that a sender may have advanced: MostAdvanced of each limit, of keys that
// are not in the list of version heard. All hits that it advanced before it had that version are
// counted. answered is the time of the sender's last answer, from which its part lasts for
// wire.PartLife.
type part struct {
	sender, sequence, divisor, heard, answered uint64
}

// owes reports whether hits of a silent sender may count in a limit's present windows.
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

// fleet returns the fleet of a push's namespace. It is nil if there is none, or if a granter has
// hits that this store does not know.
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
	f := &fleet{store: s, namespace: namespace, epoch: s.random() | 1, of: map[uint64]*part{}}
	s.fleets[namespace] = f
	f.reserve(now / 1e6)
	f.base = f.version
	return f
}

// next begins the next version.
func (f *fleet) next() {
	if f.version++; f.version == f.versions {
		f.reserve(f.version)
	}
}

// reserve reserves versions from a version on.
func (f *fleet) reserve(from uint64) {
	f.version, f.versions = from, from+reservedVersions
	noteChange(f.store, fleetKey(f.namespace))
}

// see records that a counter has used hits.
func (f *fleet) see(key wire.LimitCounter, c *store.Contents, used, now uint64) {
	for _, l := range f.limits {
		if used >= wire.NearFrom(l.max) && (l.listed || l.walks(now)) && l.isOf(key) {
			f.note(l, key.ID, c, now)
		}
	}
}

// note adds a counter that may be near to a limit's near keys.
func (f *fleet) note(l *nearLimit, id wire.ID, c *store.Contents, now uint64) {
	if !l.renews() {
		f.add(l, nearKey{id: id}, now, now)
		return
	}
	oldest := store.NumberAt(l.shape, now-min(now, clockSlack)) // of senders whose clocks are behind
	for _, w := range c.Windows {
		hits := uint64(w.Hits)
		if w.Number < oldest || hits < wire.NearFrom(l.max) {
			continue
		}
		since := f.add(l, nearKey{id: id, number: w.Number}, now, now)
		if f.keys >= mostSpare {
			continue
		}
		if hits >= l.max-l.max/8 && now-min(now, since) < l.hearing() {
			f.add(l, nearKey{id: id, number: w.Number + 1}, 0, now)
		}
		if hits >= l.max {
			f.add(l, nearKey{id, w.Number, true}, now, now)
		}
	}
}

// renews reports whether all of the limit can be had in each window.
func (l *nearLimit) renews() bool { return window.Kind(l.shape.Kind) == window.FixedWindow }

// hearing is the time in which senders hear that a key is near, in nanoseconds. If a key uses up its
// limit in it, it is listed for the next window, too.
func (l *nearLimit) hearing() uint64 { return min(l.shape.WidthMillis*1e6/20*3, hearingNanos) }

// number is that of the window at a time, as the list has it.
func (l *nearLimit) number(now uint64) uint64 {
	if !l.renews() {
		return 0
	}
	return store.NumberAt(l.shape, now)
}

// listed is the form of a key in the list.
func (k *nearKey) listed(limit uint64) uint32 {
	if k.full {
		return wire.NearKey(k.id, wire.NearFull(limit, k.number))
	}
	return wire.NearKey(k.id, wire.NearWindow(limit, k.number))
}

func (l *nearLimit) isOf(c wire.LimitCounter) bool {
	c.ID = wire.ID{}
	return l.shape == c
}

func (l *nearLimit) walks(now uint64) bool { return !l.listed && now >= l.restsTo }

// add adds a key to a limit's near keys, unless it is there. It returns since when half of its limit
// is used.
func (f *fleet) add(l *nearLimit, key nearKey, since, now uint64) uint64 {
	if !l.listed && !l.walks(now) {
		return since
	}
	if known, is := l.near[key]; is {
		if known.since == 0 && since != 0 {
			known.since = since
			l.near[key] = known
		}
		return known.since
	}
	if f.keys >= wire.MaxNearKeys {
		f.rest(l, now)
		return since
	}
	f.keys++
	if !l.listed {
		l.near[key] = nearState{l.unlisted, since} // senders will get the limit and the key together
		return since
	}
	f.next()
	l.near[key] = nearState{f.version, since}
	f.log = append(f.log, nearEntry{version: f.version, limit: l.name, key: key.listed(l.name)})
	if len(f.log) > 2*wire.MaxNearKeys {
		f.begin()
	}
	return since
}

// rest removes a limit from the list for a while.
func (f *fleet) rest(l *nearLimit, now uint64) {
	f.keys -= len(l.near)
	l.near, l.walked, l.restsTo = map[nearKey]nearState{}, 0, now+restNanos
	if l.listed {
		f.next()
		l.listed, l.unlisted = false, f.version
		f.begin()
	}
}

// begin begins an epoch. All senders then get the whole list.
func (f *fleet) begin() {
	f.epoch = f.store.random() | 1
	f.base, f.log, f.gone = f.version, nil, 0
}

// ask records a take's room of a rule whose hits are advanced.
func (f *fleet) ask(room *wire.Room, now uint64) {
	if room.Tag&1 == 0 || !store.Advances(&room.LimitCounter, room.Limit) {
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
	if rules >= wire.MaxNearLimits || limit == nil && len(f.limits) >= store.MaxAdvancedLimits {
		return // requests of the rule wait for the backend
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
	l := &nearLimit{shape: shape, max: most, name: shape.NearLimit(most), asked: now, near: map[nearKey]nearState{}}
	f.limits = append(f.limits, l)
	return l
}

// listRule adds a limit with a rule to the list, as of the newest version.
func (f *fleet) listRule(l *nearLimit, r *nearRule) {
	if r.since == 0 {
		r.since = f.version
	}
	f.log = append(f.log, nearEntry{version: f.version, limit: wire.NearRule(l.name, r.tag)})
}

// rule returns the rule with a tag, which is even in some rooms; nil if no rule with it has the
// limit.
func (l *nearLimit) rule(tag uint16) *nearRule {
	for i := range l.rules {
		if r := &l.rules[i]; r.tag == tag|1 {
			return r
		}
	}
	return nil
}

// keptBack returns how many hits a room must leave for senders that may have advanced them, and how
// many of these silent senders may have, which no other sender can get. used hits are counted, and
// the room may give up to most hits.
//
// Senders may use several limits for a key, as when plans change: no more than the largest of them passes.
// So hits advanced by a larger limit than the room's have what it is larger by.
func (f *fleet) keptBack(room *wire.Room, used, most, now uint64) (hits, silent uint64) {
	after := used + most
	for _, l := range f.limits {
		if after < wire.NearFrom(l.max) || !l.isOf(room.LimitCounter) {
			continue
		}
		listed, near := l.near[nearKey{id: room.ID, number: l.number(now)}]
		version := listed.version
		// Rooms of old senders have no tag. If a key was near before its rule was listed, all
		// senders that know the rule also know that the key is near.
		if r := l.rule(room.Tag); room.Tag != 0 && (r == nil || r.since == 0 || near && version < r.since) {
			continue
		}
		switch {
		case !l.listed:
			version = l.unlisted
		case !near:
			version = f.version + 1 // no sender knows it yet
		}
		larger := l.max - min(l.max, room.Limit)
		lost := f.lost(l, version, now)
		kept := lost + f.unheard(l.max, version)
		hits, silent = max(hits, kept-min(kept, larger)), max(silent, lost-min(lost, larger))
	}
	return hits, silent
}

// lost returns the most hits of a key that silent senders may have advanced by a limit without
// knowing a version.
func (f *fleet) lost(l *nearLimit, version, now uint64) (hits uint64) {
	for _, p := range f.silent {
		if p.heard < version && p.owes(&l.shape, now) {
			hits += wire.MostAdvanced(l.max, p.divisor)
		}
	}
	return hits
}

// unheard returns the most hits of a key that live senders may have advanced by a limit without
// knowing a version.
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

// hear records a push's report on its sender's advanced hits. The push's items must be counted
// before.
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

// setDivisor changes the size of a part. A divisor of 0 means no part.
func (f *fleet) setDivisor(p *part, divisor uint64) {
	if p.divisor == divisor {
		return
	}
	f.units += unitsOf(divisor) - unitsOf(p.divisor)
	p.divisor = divisor
	noteChange(f.store, partKey{f.namespace, p.sender})
}

// tell returns the answer to a push's report.
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
		for key := range l.near {
			n.AddKey(key.listed(l.name))
		}
	}
	return n
}

// divisor returns the divisor of a sender's part. A sender gets a part if it wants one and there is
// room.
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
		return 0 // the sender will ask for a larger part
	case own.divisor > 0:
		return max(own.divisor, want)
	case !a.Wants || a.Divisor != 0 || !a.Settled || f.units+unitsOf(want) > wholeUnits || p.Sequence < own.sequence:
		return 0
	}
	own.heard = f.version
	f.setDivisor(own, want)
	return want
}

// fair returns the divisor with which each sender can have a part; 0 if there is none.
func (f *fleet) fair() uint64 {
	lost := uint64(0)
	for _, p := range f.silent {
		lost += unitsOf(p.divisor)
	}
	if lost >= wholeUnits {
		return 0
	}
	senders := uint64(len(f.live))
	divisor := max(store.LeastDivisor, (senders*wholeUnits+wholeUnits-lost-1)/(wholeUnits-lost))
	step := uint64(1)
	for step*16 <= divisor {
		step *= 2
	}
	divisor = (divisor + step - 1) / step * step
	if senders*unitsOf(divisor) > wholeUnits-lost {
		divisor += step // as units are rounded up, the last sender would have none
	}
	if divisor > mostDivisor {
		return 0
	}
	return divisor
}

func (p *part) silent(now uint64) bool { return now > p.answered && now-p.answered > silentAfter }

// sort separates silent senders from others.
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

// sweepFleet does the periodic work. It also examines some of the counters that a new limit may
// have.
func (s *Store) sweepFleet(namespace string, f *fleet, now uint64) {
	calendar := store.Calendar{NowNanos: now}
	for _, l := range f.limits {
		if l.walks(now) {
			s.walk(namespace, f, l, calendar)
		} else {
			l.walked = 0 // keys go unseen if the clock was set back
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

// forget removes silent senders whose hits count no more, and limits that no take has named for
// long.
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

// review removes keys from the list that are far again.
func (s *Store) review(namespace string, f *fleet, calendar store.Calendar) {
	before := store.Calendar{NowNanos: calendar.NowNanos - min(calendar.NowNanos, clockSlack)}
	for _, l := range f.limits {
		for near := range l.near {
			if s.stays(namespace, l, near, calendar, before) {
				continue
			}
			delete(l.near, near)
			if f.keys--; !l.renews() {
				f.gone++
			}
		}
	}
	if f.gone > 64+f.keys/2 {
		f.next() // the last epoch's list may have the same version
		f.begin()
	}
}

// stays reports whether a near key stays on the list. before is the time of the senders whose clocks
// are behind most.
func (s *Store) stays(namespace string, l *nearLimit, near nearKey, calendar, before store.Calendar) bool {
	if l.renews() {
		return near.number >= store.NumberAt(l.shape, before.NowNanos)
	}
	key := counterKey{namespace, l.shape}
	key.ID = near.id
	used := uint64(0)
	if e := s.counters.rows[key]; e != nil {
		used = max(calendar.Used(&e.value.Contents, key.LimitCounter), before.Used(&e.value.Contents, key.LimitCounter))
	}
	return used >= wire.NearFrom(l.max)/4*3
}

// walk searches for near keys of a limit to be listed, and lists it after all counters were seen.
// Counters that are added meanwhile are seen when they are hit.
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
		if l.renews() || calendar.Used(&e.value.Contents, e.key.LimitCounter) >= wire.NearFrom(l.max) {
			if f.note(l, e.key.ID, &e.value.Contents, calendar.NowNanos); !l.walks(calendar.NowNanos) {
				return
			}
		}
	}
}

// list adds a limit and its near keys to the list.
func (f *fleet) list(l *nearLimit) {
	f.next()
	l.listed = true
	for i := range l.rules {
		f.listRule(l, &l.rules[i])
	}
	for key := range l.near {
		f.log = append(f.log, nearEntry{version: f.version, limit: l.name, key: key.listed(l.name)})
	}
	if len(f.log) > 2*wire.MaxNearKeys {
		f.begin()
	}
}

// keptBack calls [fleet.keptBack] for a room of a take.
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

// takeFor returns the take with rooms that leave the hits that senders may have advanced. It
// returns the take itself if there are none.
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

// refuse counts hits that silent senders may have advanced as used in the answer to a refused take.
// Otherwise its sender would see room, and ask for each request until the window ends. Windows of
// other kinds don't need it: senders ask for them as they fill.
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
