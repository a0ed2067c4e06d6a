package memory

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"

	"weir/internal/store"
	"weir/internal/store/far"
	"weir/internal/wire"
)

const (
	// maxFleets bounds the namespaces whose senders advance hits.
	maxFleets = 1024
	// walkPlaces bounds the counters that a push examines for a new limit.
	walkPlaces = 256
	// reservedVersions is how many versions a durable store records in advance.
	reservedVersions = 1 << 20
)

// fleet has the senders of a namespace that advance hits, and its near keys.
type fleet struct {
	far.List
	store     *Store
	namespace string
	version   uint64
	versions  uint64 // the next process begins with this version, which is later than any sent before
	near      map[far.Key]nearState
	// base is the version with which the epoch begins, and log has the keys listed since then. gone counts those that
	// have left the list.
	base         uint64
	log          []nearEntry
	gone         int
	walk         far.Walk
	walked       int // places seen so far
	live, silent []*part
	of           map[uint64]*part
	units        uint64 // sum of all parts
	low          uint64 // no live part has a lower version
	swept        uint64
	looked       uint64
}

// nearEntry is a key that a version has added to the list.
type nearEntry struct {
	version uint64
	key     uint32
}

// nearState has the version that has listed a key, and when half of the limit was used; 0 if it was listed before that.
type nearState struct{ version, since uint64 }

// part bounds the hits that a sender may have advanced: MostAdvanced of each limit, of keys that
// are not in the list of version heard. All hits that it advanced before it had that version are
// counted. answered is the time of the sender's last answer, from which its part lasts for
// wire.PartLife.
type part struct {
	sender, sequence, divisor, heard, answered uint64
}

func unitsOf(divisor uint64) uint64 {
	if divisor == 0 {
		return 0
	}
	return (far.Whole + divisor - 1) / divisor
}

// fleet returns the fleet of a push's namespace. It is nil if there is none, or if a granter has
// hits that this store does not know.
func (s *Store) fleet(p *wire.Push, now uint64) *fleet {
	if s.granter != nil {
		return nil
	}
	f := s.fleets[p.Namespace]
	if f == nil && p.Advance.Present && len(s.fleets) < maxFleets {
		f = s.newFleet(p.Namespace, now)
	}
	return f
}

func (s *Store) newFleet(namespace string, now uint64) *fleet {
	f := &fleet{store: s, namespace: namespace, near: map[far.Key]nearState{}, of: map[uint64]*part{}}
	s.fleets[namespace] = f
	f.reserve(now / 1e6)
	f.begin()
	return f
}

func (f *fleet) next() {
	if f.version++; f.version == f.versions {
		f.reserve(f.version)
	}
}

func (f *fleet) reserve(from uint64) {
	f.version, f.versions = from, from+reservedVersions
	noteChange(f.store, fleetKey(f.namespace))
}

// begin begins an epoch. All senders then get the whole list.
func (f *fleet) begin() {
	f.Epoch = f.store.random() | 1
	f.base, f.log, f.gone = f.version, nil, 0
}

// change changes the limits as of the next version.
func (f *fleet) change(change func(version uint64) (news bool)) {
	if !change(f.version + 1) {
		return
	}
	noteChange(f.store, fleetKey(f.namespace))
	if f.Epoch == 0 {
		f.next()
		f.begin()
	}
}

// see records that a counter has used hits.
func (f *fleet) see(key wire.LimitCounter, c *store.Contents, used uint64, calendar store.Calendar) {
	for i := range f.Limits {
		if l := &f.Limits[i]; used >= wire.NearFrom(l.Max) && l.IsOf(key) {
			f.note(l, key.ID, c, calendar)
		}
	}
}

// note adds the windows of a counter that are near a limit to the list.
func (f *fleet) note(l *far.Limit, id wire.ID, c *store.Contents, calendar store.Calendar) {
	l.Near(id, c, calendar, func(k far.Key, spare bool) uint64 { return f.add(l, k, spare, calendar.NowNanos) })
}

// add adds a key to the list, unless it is there. It returns since when half of its limit is used.
func (f *fleet) add(l *far.Limit, key far.Key, spare bool, now uint64) (since uint64) {
	known, is := f.near[key]
	switch {
	case !l.Watched():
		return now
	case is:
		if known.since == 0 && !spare {
			known.since = now
			f.near[key] = known
		}
		return known.since
	case spare && len(f.near) >= far.MostFull:
		return now
	case len(f.near) >= wire.MaxNearKeys:
		f.rest(l, now)
		return now
	}
	if !spare {
		since = now
	}
	if l.Listed { // senders get other limits together with their keys
		f.next()
		f.log = append(f.log, nearEntry{version: f.version, key: key.Sent()})
	}
	f.near[key] = nearState{f.version, since}
	return since
}

// rest takes a limit with too many near keys off the list for a while.
func (f *fleet) rest(l *far.Limit, now uint64) {
	f.change(func(version uint64) bool {
		f.Rest(l, version, now)
		return true
	})
	name := l.Name()
	maps.DeleteFunc(f.near, func(k far.Key, _ nearState) bool { return k.Limit == name })
}

// ask records a take's room of a rule whose hits are advanced.
func (f *fleet) ask(room *wire.Room, now uint64) {
	f.change(func(version uint64) bool { return f.Ask(room, version, now) })
}

// left returns how many hits of a key senders may have advanced by a limit. listed is since when the rule is listed.
func (f *fleet) left(l *far.Limit, key far.Key, listed, now uint64) (left far.Left) {
	version := l.HeardFrom(listed, f.near[key].version)
	return far.Left{Live: f.unheard(l.Max, version), Silent: f.lost(l, version, now)}
}

// lost returns the most hits of a key that silent senders may have advanced by a limit without
// knowing a version.
func (f *fleet) lost(l *far.Limit, version, now uint64) (hits uint64) {
	owing := l.Owing(now, 0)
	for _, p := range f.silent {
		if p.heard < version && p.answered >= owing {
			hits += wire.MostAdvanced(l.Max, p.divisor)
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
func (f *fleet) tell(p *wire.Push, now uint64) wire.Near {
	a := &p.Advance
	n := wire.Near{Present: true, Epoch: f.Epoch, Version: f.version, Divisor: f.divisor(p, now)}
	first, _ := slices.BinarySearchFunc(f.log, a.Version+1, func(e nearEntry, v uint64) int { return cmp.Compare(e.version, v) })
	news := f.log[first:]
	n.Whole = a.Epoch != f.Epoch || a.Version < f.base || a.Version > f.version || len(news) > wire.MaxNearKeys
	f.Tell(&n, a.Version)
	if !n.Whole {
		for _, e := range news {
			n.AddKey(e.key)
		}
		return n
	}
	for key := range f.near {
		if l := f.Limit(key.Limit); l != nil && l.Listed {
			n.AddKey(key.Sent())
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
	if own == nil && a.Wants && len(f.of) < far.MostDivisor {
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
	case !a.Wants || a.Divisor != 0 || !a.Settled || f.units+unitsOf(want) > far.Whole || p.Sequence < own.sequence:
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
	if lost >= far.Whole {
		return 0
	}
	senders := uint64(len(f.live))
	divisor := max(far.LeastDivisor, (senders*far.Whole+far.Whole-lost-1)/(far.Whole-lost))
	step := uint64(1)
	for step*16 <= divisor {
		step *= 2
	}
	divisor = (divisor + step - 1) / step * step
	if senders*unitsOf(divisor) > far.Whole-lost {
		divisor += step // as units are rounded up, the last sender would have none
	}
	if divisor > far.MostDivisor {
		return 0
	}
	return divisor
}

func (p *part) silent(now uint64) bool { return now > p.answered && now-p.answered > far.SilentAfter }

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
func (s *Store) sweepFleet(namespace string, f *fleet, calendar store.Calendar) {
	now := calendar.NowNanos
	f.change(func(uint64) bool { return f.Wake(now) })
	s.walk(namespace, f, calendar)
	if now >= f.swept && now-f.swept < far.SweepEvery {
		return
	}
	f.swept = now
	f.sort(now)
	f.forget(now)
	if now >= f.looked && now-f.looked < far.ReviewEvery {
		return
	}
	f.looked = now
	s.review(namespace, f, calendar)
}

// forget removes silent senders whose hits count no more, and limits that no take has named for
// long.
func (f *fleet) forget(now uint64) {
	last := f.PartsLast()
	f.silent = slices.DeleteFunc(f.silent, func(p *part) bool {
		if p.divisor > 0 && (now < p.answered || now-p.answered < last) {
			return false
		}
		f.setDivisor(p, 0)
		delete(f.of, p.sender)
		return true
	})
	f.change(func(version uint64) bool {
		return f.Forget(version, now, func(l *far.Limit) bool {
			return f.lost(l, l.Unlisted, now)+f.unheard(l.Max, l.Unlisted) == 0
		})
	})
}

// review removes keys from the list that are far again.
func (s *Store) review(namespace string, f *fleet, calendar store.Calendar) {
	before := len(f.near)
	maps.DeleteFunc(f.near, func(k far.Key, _ nearState) bool {
		l := f.Limit(k.Limit)
		if l == nil || !l.Watched() {
			return true
		}
		key := counterKey{namespace, l.Shape}
		key.ID = k.ID
		contents := &store.Contents{}
		if e := s.counters.rows[key]; e != nil {
			contents = &e.value.Contents
		}
		is, _ := l.Far(k, contents, calendar)
		return is
	})
	f.gone += before - len(f.near)
	f.change(func(uint64) bool { return f.Shorten(f.gone, len(f.near)) })
}

// walk looks at some counters. Those that are added meanwhile are seen when they are hit.
func (s *Store) walk(namespace string, f *fleet, calendar store.Calendar) {
	var begins bool
	if f.walk, begins = f.Walk(f.walk); begins {
		f.walked = 0
	}
	if f.walk == nil {
		return
	}
	for range walkPlaces {
		if f.walked >= len(s.counters.places) {
			f.change(func(version uint64) bool { return f.End(f.walk, version) })
			return
		}
		e := s.counters.places[f.walked]
		f.walked++
		if e == nil || e.key.namespace != namespace {
			continue
		}
		for i := range f.Limits {
			if l := &f.Limits[i]; l.IsOf(e.key.LimitCounter) && f.walk.Seeks(l) {
				f.note(l, e.key.ID, &e.value.Contents, calendar)
			}
		}
	}
}

// leave returns how many hits a room of a take must leave, and how many of these silent senders may have advanced. The room
// may give most hits.
func (l *ledger) leave(room *wire.Room, most uint64) (hits, silent uint64) {
	after := l.calendar.Used(l.contents(room.LimitCounter), room.LimitCounter) + most
	hits, silent, _ = l.fleet.Leave(room, after, l.calendar.NowNanos, func(limit *far.Limit, k far.Key, since uint64) far.Left {
		return l.fleet.left(limit, k, since, l.calendar.NowNanos)
	})
	return hits, silent
}

// takeFor returns a take whose rooms leave the hits that senders may have advanced.
func (l *ledger) takeFor(take *wire.Take) *wire.Take {
	if l.fleet == nil {
		return take
	}
	return far.Take(take, func(i int, most uint64) uint64 {
		l.fleet.ask(&take.Rooms[i], l.calendar.NowNanos)
		hits, _ := l.leave(&take.Rooms[i], most)
		return hits
	})
}

// refuse counts hits that silent senders may have advanced as used in the answer to a refused take.
func (l *ledger) refuse(take *wire.Take, g *wire.Grant) {
	if l.fleet == nil {
		return
	}
	far.Refuse(take, g, func(i int) uint64 {
		_, silent := l.leave(&take.Rooms[i], wire.MaxHits)
		return silent
	})
}

// A durable store remembers which senders have parts of the limits, and which limits of rules are
// listed. It does not remember which keys are near, or which versions senders have. So the next
// process begins as if all limits had been removed from the list: it leaves room for hits that
// senders may have advanced until they know that, and lists the limits again after it has found the
// near keys.

const (
	fleetRecord = 'f'
	partRecord  = 'p'
)

// IsFleet reports whether a record's key is about senders that advance hits. Versions of Weir
// without such records can't read them.
func IsFleet(key []byte) bool {
	return len(key) > 0 && (key[0] == fleetRecord || key[0] == partRecord)
}

type (
	fleetKey string
	partKey  owned
)

func (k fleetKey) appendKey(b []byte) []byte { return appendNamespace(b, fleetRecord, string(k)) }

func (k fleetKey) appendValue(b []byte, s *Store) ([]byte, bool) {
	f := s.fleets[string(k)]
	list, err := json.Marshal(&f.List)
	return append(binary.AppendUvarint(b, f.versions), list...), err == nil
}

func (k partKey) appendKey(b []byte) []byte { return owned(k).append(b, partRecord) }

func (k partKey) appendValue(b []byte, s *Store) ([]byte, bool) {
	f := s.fleets[k.namespace]
	if f == nil || f.of[k.id] == nil || f.of[k.id].divisor == 0 {
		return nil, false
	}
	p := f.of[k.id]
	return binary.AppendUvarint(binary.AppendUvarint(b, p.divisor), p.sequence), true
}

// fleet returns the fleet of a namespace, and makes it if necessary.
func (r *restoring) fleet(namespace string) *fleet {
	if f := r.fleets[namespace]; f != nil {
		return f
	}
	return r.newFleet(namespace, r.calendar.NowNanos)
}

// readFleet reads the reserved versions of the list of near keys, and its limits.
func (r *restoring) readFleet(namespace string, v *reader) error {
	f := r.fleet(namespace)
	f.reserve(max(f.version, v.number()))
	list, ok := far.Parse(v.rest)
	if !ok {
		return errRecord
	}
	f.List, v.rest = list, nil
	f.Restart(f.version, r.calendar.NowNanos)
	f.begin()
	return nil
}

// readPart reads the part of a sender. Its last answer may have been just now.
func (r *restoring) readPart(of owned, v *reader) {
	f := r.fleet(of.namespace)
	p := &part{sender: of.id, divisor: v.number(), sequence: v.number(), answered: r.calendar.NowNanos}
	f.of[of.id] = p
	f.live = append(f.live, p)
	f.units += unitsOf(p.divisor)
}
