package backend

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"weir/internal/calendar"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

const (
	// heardEvery is how often the store gets the same note of what nodes have told of their rules, and
	// of a namespace that they report in.
	heardEvery = time.Minute
	// heardSoon is the first of these intervals, which double: the first nodes of many are soon not all.
	heardSoon = 5 * time.Second
	// notesAtOnce is how many notes on a namespace may come at once. More come every heardSoon: for each note all of
	// its reports are read.
	notesAtOnce = 4
	// looksAtOnce is the same of looks for rules that nodes only name: for each look all that nodes have told are read.
	looksAtOnce = store.MaxRules
	// askEvery is how often a node is asked for rules that nobody tells.
	askEvery = 10 * time.Second
	// directory is the namespace of the notes on namespaces.
	directory = "weir"
)

// known notes in the store what nodes tell of their rules, and asks for what it does not have.
type known struct {
	now   func() time.Time
	store store.Store

	mu    sync.Mutex
	heard members[heard]     // by digest
	room  members[time.Time] // of namespaces: when the next note or look, as node, could come if they came every heardSoon
	swept time.Time
}

// What needs room in a namespace.
const (
	ofNotes = iota
	ofLooks
)

// heard is what a backend knows of a digest: when it was last noted, for how long that holds, and when a node
// was asked for it.
type heard struct {
	noted, asked time.Time
	holds        time.Duration
}

// hear notes which rules the sender of a report has. tell means that it should tell them in its next report, and
// noted that its namespace should be noted, too. If the store fails, the next report notes them.
func (k *known) hear(ctx context.Context, r *wire.Report) (tell, noted bool) {
	key, now := member{r.Namespace, r.Digest}, k.now()
	k.mu.Lock()
	if now.Sub(k.swept) >= heardEvery || now.Before(k.swept) {
		k.swept = now
		k.heard.sweep(func(h heard) bool { return now.Sub(h.noted) >= 2*heardEvery && now.Sub(h.asked) >= askEvery })
		k.room.sweep(func(next time.Time) bool { return !now.Before(next) })
	}
	h, _ := k.heard.get(key)
	later := now.Sub(h.noted) < h.holds && !now.Before(h.noted)
	if !later && len(r.Told) == 0 && r.Digest != 0 {
		asked := now.Sub(h.asked) < askEvery && !now.Before(h.asked)
		later = asked || !k.hasRoom(r.Namespace, ofLooks, looksAtOnce*heardSoon, now)
	}
	if !later {
		h.noted, h.holds = now, min(max(2*h.holds, heardSoon), heardEvery) // others need not, meanwhile
		k.heard.put(key, h)
	}
	k.mu.Unlock()
	if later {
		return false, false
	}
	found, err := k.note(ctx, r, now)
	k.mu.Lock()
	defer k.mu.Unlock()
	if h, _ = k.heard.get(key); err != nil || !found {
		h.noted = time.Time{}
		if tell = err == nil && r.Digest != 0 && now.Sub(h.asked) >= askEvery; tell {
			h.asked = now
		}
		if r.Digest == 0 && err == nil {
			h.noted = now
		}
		k.heard.put(key, h)
	}
	return tell, err == nil && (found || r.Digest == 0) && k.hasRoom(r.Namespace, ofNotes, notesAtOnce*heardSoon, now)
}

// hasRoom reports whether something may be done in a namespace, however many rules somebody makes up in it: as often at
// once as most has heardSoon. The caller holds the lock.
func (k *known) hasRoom(namespace string, what uint64, most time.Duration, now time.Time) bool {
	key := member{namespace, what}
	next, _ := k.room.get(key)
	if ahead := next.Sub(now); ahead < 0 || ahead > most { // the clock was set back
		next = now
	}
	if next = next.Add(heardSoon); next.Sub(now) > most {
		return false
	}
	k.room.put(key, next)
	return true
}

// forget has the next report that names the same rules noted, and its namespace with it.
func (k *known) forget(r *wire.Report) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := member{r.Namespace, r.Digest}
	h, _ := k.heard.get(key)
	h.noted, h.asked = time.Time{}, time.Time{} // it was told
	k.heard.put(key, h)
}

// note notes again what a digest names. found is false if the store does not have it.
func (k *known) note(ctx context.Context, r *wire.Report, now time.Time) (found bool, err error) {
	told := r.Told
	if len(told) == 0 && r.Digest != 0 {
		notes, err := k.store.Notes(ctx, store.Rules, r.Namespace)
		if err != nil {
			return false, err
		}
		for _, n := range notes {
			if _, of := store.RulesOf(n); n.Member == r.Digest {
				told = of
			}
		}
	}
	if _, _, err := wire.DecodeTold(told); err != nil || wire.DigestOf(told) != r.Digest {
		return false, nil
	}
	_, err = k.store.Note(ctx, store.Rules, r.Namespace, store.RulesNote(r.Digest, now, told))
	return true, err
}

// noteNamespace notes how a namespace stands, so that a list of all takes one call to the store.
func (b *Backend) noteNamespace(ctx context.Context, namespace string) error {
	n, _, err := b.Census(ctx, namespace)
	if err != nil {
		return err
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(namespace)) // it never fails
	body := fmt.Appendf(nil, "%d %d %s %d %d", b.known.now().Unix(), n.Rules, namespace, n.Nodes, n.Others)
	_, err = b.store.Note(ctx, store.Namespaces, directory, store.Note{Member: hash.Sum64(), Body: body})
	return err
}

// Namespace is a namespace in which nodes have reported.
type Namespace struct {
	Name string
	// Nodes have reported in the half minute before Heard. Rules is how many rules most of them have, and
	// Others how many nodes have another configuration than those.
	Rules, Nodes, Others int
	// Heard is when this was last noted: each minute while nodes report.
	Heard time.Time
}

// Namespaces returns the namespaces that may returns true for, by their names, as they were noted.
func (b *Backend) Namespaces(ctx context.Context, may func(namespace string) bool) (all []Namespace, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	notes, err := b.store.Notes(ctx, store.Namespaces, directory)
	if err != nil {
		return nil, err
	}
	for _, n := range notes {
		var found Namespace
		seconds := int64(0)
		// Another version's may end behind the name.
		if _, _ = fmt.Fscanf(bytes.NewReader(n.Body), "%d %d %s %d %d", &seconds, &found.Rules, &found.Name, &found.Nodes, &found.Others); !wire.IsNamespace(found.Name) || !may(found.Name) {
			continue
		}
		found.Heard = time.Unix(seconds, 0)
		all = append(all, found)
	}
	slices.SortFunc(all, func(a, b Namespace) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// Configuration is what nodes have told of their rules, and the nodes that have these: those that have
// reported in the last half minute.
type Configuration struct {
	Digest Number   `json:"digest"`
	Nodes  []Number `json:"nodes"`
	// Heard is when it was last noted. It is zero if nobody has told the rules yet.
	Heard time.Time        `json:"-"`
	Rules []wire.RuleShape `json:"-"`
}

// Number names a node, one of its workers or a configuration. As text it is 16 hexadecimal digits.
type Number uint64

func (n Number) String() string { return fmt.Sprintf("%016x", uint64(n)) }

// MarshalText implements [encoding.TextMarshaler].
func (n Number) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (n *Number) UnmarshalText(text []byte) error {
	number, err := strconv.ParseUint(string(text), 16, 64)
	*n = Number(number)
	return err
}

// Configurations returns the configurations that nodes report, the one of most nodes first. If nobody
// reports, it is the last that was noted.
func (b *Backend) Configurations(ctx context.Context, namespace string) (all []Configuration, err error) {
	_, all, err = b.Census(ctx, namespace)
	return all, err
}

// Census returns how a namespace stands now, without Heard, and its Configurations.
func (b *Backend) Census(ctx context.Context, namespace string) (n Namespace, all []Configuration, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	reports, _, err := b.reports(ctx, namespace, 0)
	if err != nil {
		return n, nil, err
	}
	nodes := map[uint64]bool{}
	for _, r := range reports {
		nodes[r.Node] = true
	}
	n, all = Namespace{Name: namespace, Nodes: len(nodes)}, b.configurations(ctx, namespace, reports)
	for i := range all {
		if i == 0 {
			n.Rules = len(all[i].Rules)
		} else {
			n.Others += len(all[i].Nodes)
		}
	}
	return n, all, nil
}

// configurations is Configurations by some reports. If the store can't tell the rules, as where it may not
// make a table for them, they are not known, and all else is told.
func (b *Backend) configurations(ctx context.Context, namespace string, reports []*wire.Report) (all []Configuration) {
	notes, err := b.store.Notes(ctx, store.Rules, namespace)
	if err != nil {
		notes = nil
	}
	by := map[uint64]*Configuration{}
	last := &Configuration{}
	for _, n := range notes {
		at, told := store.RulesOf(n)
		// Another version's, or nobody's: whoever else writes to the store.
		if _, rules, err := wire.DecodeTold(told); err == nil && wire.DigestOf(told) == n.Member {
			by[n.Member] = &Configuration{Digest: Number(n.Member), Nodes: []Number{}, Heard: at, Rules: dated(rules)}
			if at.After(last.Heard) {
				last = by[n.Member]
			}
		}
	}
	newest := map[uint64]*wire.Report{} // by node
	for _, r := range reports {
		if of := newest[r.Node]; r.Digest != 0 && (of == nil || r.AtNanos > of.AtNanos) {
			newest[r.Node] = r
		}
	}
	for _, node := range slices.Sorted(maps.Keys(newest)) {
		digest := newest[node].Digest
		if by[digest] == nil {
			by[digest] = &Configuration{Digest: Number(digest)}
		}
		by[digest].Nodes = append(by[digest].Nodes, Number(node))
	}
	for _, c := range by {
		if len(c.Nodes) > 0 || len(newest) == 0 && c == last {
			all = append(all, *c)
		}
	}
	slices.SortFunc(all, func(a, b Configuration) int {
		return cmp.Or(cmp.Compare(len(b.Nodes), len(a.Nodes)), b.Heard.Compare(a.Heard), cmp.Compare(a.Digest, b.Digest))
	})
	return all
}

// dated gives limits their calendars.
func dated(rules []wire.RuleShape) []wire.RuleShape {
	for i := range rules {
		for j := range rules[i].Limits {
			l := &rules[i].Limits[j]
			if c := calendar.Described(l.Described); c != nil && l.Kind == window.FixedWindow {
				l.Calendar = c
			}
		}
	}
	return rules
}

// CalendarAt returns the index of the calendar limit that has an ordinal and, at a time, a width in the store; -1 for none.
// The store knows no calendars: it has a month's hits in a window with a width of its own.
func CalendarAt(limits []window.Limit, ordinal uint8, widthMillis uint64, now int64) int {
	return slices.IndexFunc(limits, func(of window.Limit) bool {
		return of.Calendar != nil && of.Ordinal == ordinal && uint64(of.WidthAt(now)/window.MinWidth) == widthMillis
	})
}

// PeriodOf returns the name of a calendar limit's period; empty for any other limit.
func PeriodOf(l *window.Limit) string {
	if c, ok := l.Calendar.(*calendar.Calendar); ok {
		return calendar.Periods[c.Period()]
	}
	return ""
}

// RuleOf returns a rule of the first of configurations that has it, or nil.
func RuleOf(all []Configuration, rule string) *wire.RuleShape {
	for i := range all {
		for j := range all[i].Rules {
			if r := &all[i].Rules[j]; r.Name == rule {
				return r
			}
		}
	}
	return nil
}
