package redis

import (
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// The senders of a namespace that advance hits are its fleet. RATIONALE.md proves why no more than the
// limit passes, and how a fleet on Redis differs from a fleet in memory. Backends decide which limits' hits
// are advanced. All that changes more often is decided by commit.lua: parts, versions, and which keys are
// near.

//go:embed fleet.lua
var fleetSource string

var fleetScript = goredis.NewScript(fleetSource)

const (
	// restNanos is for how long a limit rests that had too many near keys. To list it again, all keys of the
	// server are looked through.
	restNanos = uint64(10 * time.Minute)
	// A limit that nobody asks for is forgotten after staleNanos. askedNanos is how late that is noted.
	staleNanos = uint64(time.Hour)
	askedNanos = uint64(10 * time.Minute)
	// lateNanos is how much later than its last answer a sender's part may end: commit.lua notes answers up
	// to 3 s late, and the sender's windows are up to 5 s ahead.
	lateNanos = uint64(wire.PartLife + 8e9)
	// graceOfParts is how long a silent sender is known after its hits have left all windows.
	graceOfParts = uint64(120 * time.Second)
	// fleetTries is how often a fleet is changed in vain, as others were quicker.
	fleetTries = 16
	// seenFleets is how many namespaces' fleets, and walks, are remembered at least.
	seenFleets = 1024
)

var errFleet = errors.New("a fleet: others were quicker too often")

// fleet has the decisions of backends about a fleet, as they were seen. Nobody changes it.
type fleet struct {
	revision string // "" if there is no fleet
	version  uint64 // at that time
	// Epoch names the list of near keys. It changes when senders need all of the list.
	Epoch  uint64
	Limits []nearLimit
}

// nearLimit is a limit of rules whose senders advance hits.
type nearLimit struct {
	Shape wire.LimitCounter // without an identity
	Max   uint64
	Rules []nearRule
	// Listed says that the list has the limit. Unlisted is the version that took it off the list last, 0 if
	// none has.
	Listed   bool
	Unlisted uint64
	// RestsTo is 0 while keys are noted that come near the limit. Watch names that time: in it a backend
	// looks for keys that were near before, and lists the limit when it has seen all.
	RestsTo, Watch uint64
	Asked          uint64
}

// nearRule is a rule whose senders advance hits.
type nearRule struct {
	Tag uint16 // odd
	// Since is the version that has listed the rule, 0 if it is not listed.
	Since uint64
}

var noFleet = &fleet{}

func (l *nearLimit) name() uint64 { return l.Shape.NearLimit(l.Max) }

func (l *nearLimit) isOf(c wire.LimitCounter) bool {
	c.ID = wire.ID{}
	return l.Shape == c
}

// renews reports whether all of the limit can be had in each window.
func (l *nearLimit) renews() bool { return window.Kind(l.Shape.Kind) == window.FixedWindow }

// watched reports whether keys are noted that come near the limit.
func (l *nearLimit) watched() bool { return l.RestsTo == 0 }

// stale reports whether nobody has asked for the limit for long.
func (l *nearLimit) stale(now uint64) bool { return now >= l.Asked && now-l.Asked >= staleNanos }

// wakes reports whether a limit has rested for long enough.
func (l *nearLimit) wakes(now uint64) bool {
	return l.RestsTo != 0 && !l.stale(now) && (now >= l.RestsTo || l.RestsTo-now > restNanos)
}

// rule is that of a tag, which may be even in some of its rooms; nil if the limit is of no such rule.
func (l *nearLimit) rule(tag uint16) *nearRule {
	for i := range l.Rules {
		if r := &l.Rules[i]; r.Tag == tag|1 {
			return r
		}
	}
	return nil
}

// list lists a limit with its rules. The epoch is new, so that a server that loses this tells senders of it that their
// lists are not its own.
func (f *fleet) list(l *nearLimit, version uint64) {
	l.Listed = true
	for i := range l.Rules {
		l.Rules[i].Since = version
	}
	f.begin()
}

// rest takes the limit off the list for a while.
func (f *fleet) rest(l *nearLimit, version, now uint64) {
	l.RestsTo = now + restNanos
	if !l.Listed {
		return
	}
	l.Listed, l.Unlisted = false, version
	for i := range l.Rules {
		l.Rules[i].Since = 0
	}
	f.begin()
}

// begin begins an epoch.
func (f *fleet) begin() { f.Epoch = rand.Uint64() | 1 }

// limit is that of a near key, nil if there is none.
func (f *fleet) limit(name uint64) *nearLimit {
	for i := range f.Limits {
		if f.Limits[i].name() == name {
			return &f.Limits[i]
		}
	}
	return nil
}

// ask notes that a room is asked for whose rule's hits are advanced. It reports whether that is news.
func (f *fleet) ask(room *wire.Room, version, now uint64) bool {
	if room.Tag&1 == 0 || !store.Advances(&room.LimitCounter, room.Limit) {
		return false
	}
	var limit *nearLimit
	rules := 0
	for i := range f.Limits {
		l := &f.Limits[i]
		if rules += len(l.Rules); l.Max != room.Limit || !l.isOf(room.LimitCounter) {
			continue
		}
		if limit = l; l.rule(room.Tag) == nil {
			continue
		}
		late := now >= l.Asked && now-l.Asked >= askedNanos
		if late {
			l.Asked = now
		}
		return late
	}
	switch {
	case rules >= wire.MaxNearLimits || limit == nil && len(f.Limits) >= store.MaxAdvancedLimits:
		return false // the rule's requests wait
	case limit == nil:
		f.Limits = append(f.Limits, nearLimit{Shape: room.LimitCounter, Max: room.Limit, Watch: rand.Uint64()})
		limit = &f.Limits[len(f.Limits)-1]
		limit.Shape.ID = wire.ID{}
	}
	limit.Asked = now
	r := nearRule{Tag: room.Tag}
	if limit.Listed {
		r.Since = version
		f.begin()
	}
	limit.Rules = append(limit.Rules, r)
	return true
}

// partsLast is for how long parts of silent senders are known.
func (f *fleet) partsLast() uint64 {
	longest := uint64(0)
	for i := range f.Limits {
		longest = max(longest, f.Limits[i].Shape.WidthMillis*1e6)
	}
	return 2*longest + graceOfParts
}

// clone is a fleet that may be changed.
func (f *fleet) clone() *fleet {
	g := *f
	g.Limits = slices.Clone(f.Limits)
	for i := range g.Limits {
		g.Limits[i].Rules = slices.Clone(g.Limits[i].Rules)
	}
	return &g
}

// parseFleet reads what a script says of a fleet.
func parseFleet(reply []any) (*fleet, error) {
	all, err := texts(reply)
	if err != nil || len(all) != 3 {
		return nil, errReply
	}
	if all[0] == "" {
		return noFleet, nil
	}
	f := &fleet{}
	if json.Unmarshal([]byte(all[2]), f) != nil {
		f = &fleet{} // somebody else has written it
	}
	f.revision = all[0]
	if f.version, err = strconv.ParseUint(all[1], 10, 64); err != nil {
		return nil, errReply
	}
	return f, nil
}

// fleet is that of a namespace, as far as this backend knows.
func (s *Store) fleet(namespace string) *fleet {
	if f, ok := s.fleets.get(namespace); ok {
		return f
	}
	return noFleet
}

func (s *Store) seeFleet(namespace string, f *fleet) { s.fleets.put(namespace, f, 1) }

// nanos is about the time of the server; 0 before it has told that.
func (s *Store) nanos() uint64 {
	if s.now != nil {
		return uint64(s.now().UnixNano())
	}
	if micros, heard := s.committer.clocks[0].now(); heard {
		return uint64(micros) * 1000
	}
	return 0
}

// changeFleet changes a fleet, and makes it if there is none. change changes a copy, as of a new version,
// and reports whether it has.
func (s *Store) changeFleet(ctx context.Context, namespace string, change func(f *fleet, version, now uint64) bool, gone ...string) error {
	for range fleetTries {
		was, now := s.fleet(namespace), s.nanos()
		f := was.clone()
		version := max(was.version+1, now/1000)
		if was == noFleet {
			f.begin()
		}
		if !change(f, version, now) && was != noFleet {
			return nil
		}
		contents, err := json.Marshal(f)
		if err != nil {
			return err
		}
		revision := strconv.FormatUint(rand.Uint64(), 36)
		args := []any{was.revision, revision, contents, version, f.partsLast()/1e6 + 3600_000}
		for _, key := range gone {
			args = append(args, key)
		}
		reply, err := fleetScript.Run(ctx, s.client, s.keys.fleet(namespace), args...).Slice()
		if err != nil {
			return err
		}
		is, err := parseFleet(reply)
		if err != nil {
			return err
		}
		if s.seeFleet(namespace, is); is.revision == revision {
			return nil
		}
	}
	return errFleet
}

// askFleet notes the rooms that a push asks for. A word on advanced hits makes a fleet. If that fails, another push does it.
func (s *Store) askFleet(ctx context.Context, p *wire.Push) {
	if s.keys.partitions > 1 {
		return
	}
	f, now := s.fleet(p.Namespace), s.nanos()
	if now == 0 {
		return
	}
	news := f == noFleet && p.Advance.Told
	for i := range p.Takes {
		for j := range p.Takes[i].Rooms {
			room := &p.Takes[i].Rooms[j]
			news = news || f != noFleet && room.Tag&1 != 0 && f.lacks(room, now)
		}
	}
	if news {
		_ = s.changeFleet(ctx, p.Namespace, func(f *fleet, version, now uint64) bool { return f.askAll(p, version, now) })
	}
}

func (f *fleet) askAll(p *wire.Push, version, now uint64) (news bool) {
	for i := range p.Takes {
		for j := range p.Takes[i].Rooms {
			news = f.ask(&p.Takes[i].Rooms[j], version, now) || news
		}
	}
	return news
}

// lacks reports whether it is likely to be news that a room is asked for.
func (f *fleet) lacks(room *wire.Room, now uint64) bool {
	for i := range f.Limits {
		if l := &f.Limits[i]; l.Max == room.Limit && l.isOf(room.LimitCounter) && l.rule(room.Tag) != nil {
			return now >= l.Asked && now-l.Asked >= askedNanos
		}
	}
	return store.Advances(&room.LimitCounter, room.Limit)
}

// nearKey is a key in the list of near keys: it is near the limit with a name in the window with a number,
// or in all windows that slide, with the number 0.
type nearKey struct {
	limit  uint64
	id     wire.ID
	number uint64
}

// nearKeyAt is a key in the present window.
func nearKeyAt(l *nearLimit, id wire.ID, now uint64) nearKey {
	k := nearKey{limit: l.name(), id: id}
	if l.renews() {
		k.number = store.NumberAt(l.Shape, now)
	}
	return k
}

// next is the key in the next window.
func (k nearKey) next() nearKey {
	k.number++
	return k
}

// member is the key in Redis's list.
func (k nearKey) member() string {
	b := append(binary.LittleEndian.AppendUint64(nil, k.limit), k.id[:]...)
	return string(binary.LittleEndian.AppendUint64(b, k.number))
}

// told is the key in the form that senders know.
func (k nearKey) told() uint32 { return wire.NearKey(k.id, wire.NearWindow(k.limit, k.number)) }

// parseNearKey reads a member of Redis's list.
func parseNearKey(member string) (k nearKey, ok bool) {
	b := []byte(member)
	if len(b) != 8+len(k.id)+8 {
		return k, false
	}
	copy(k.id[:], b[8:])
	k.limit, k.number = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8+len(k.id):])
	return k, true
}
