package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"weir/internal/panics"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

const (
	// lookEvery is how long a backend relies on its copy of a namespace's overrides, which another
	// backend may have changed.
	lookEvery = 100 * time.Millisecond
	// noteEvery is how often the store gets the same note of a node again.
	noteEvery = store.AppliedLife / 3
	// keepLists is how long an unused list is kept, and keepLost how long while it can't be read again.
	keepLists = 10 * time.Second
	keepLost  = time.Hour
	// maxLists bounds the lists that are kept. Beyond it, each push asks the store.
	maxLists = 1 << 14
	// roomForRules is how many bytes of a list are for what whole rules are set to, and roomForAll how many for
	// that and notices. A full list must not keep anybody from switching a rule off, and nodes hear of the counters
	// that people change.
	roomForRules = 32 << 10
	roomForAll   = roomForRules + 32<<10
	// freeNotices is how many notices are not counted among the overrides.
	freeNotices = 1000
)

// overrides keeps the lists of namespaces, so that not every push asks the store, and records in
// the store which list each node has.
type overrides struct {
	now   func() time.Time
	store store.Store

	mu    sync.Mutex
	lists map[string]*list
	noted members[noted]
	swept time.Time
}

// list is the known state of a namespace's list.
type list struct {
	bytes   []byte
	version uint64
	pasts   []wire.Past
	// known means that it was read, the last time at. reading means that a read is under way.
	// lost means that the last call of the store failed. used is when a push last wanted it.
	known   bool
	at      time.Time
	reading bool
	lost    bool
	used    time.Time
	// polls is how many polls wait for another version. renewed is closed when there is one.
	// watched means that a goroutine looks for it.
	polls   int
	watched bool
	renewed chan struct{}
	within  time.Duration
}

// set stores a list that was read or changed. The caller holds the lock.
func (l *list) set(bytes []byte, version uint64, at time.Time) {
	if l.renewed != nil && (!l.known || l.version != version) {
		close(l.renewed)
		l.renewed = nil
	}
	switch {
	case !l.known || version < l.version:
		l.pasts = nil // the store has lost its memory
	case version != l.version:
		l.pasts = wire.NextPasts(l.pasts, l.bytes, l.version, bytes)
	}
	l.bytes, l.version, l.known, l.at = bytes, version, true, at
}

// noted is what the store has of a node.
type noted struct {
	store.AppliedList
	at time.Time
}

// look makes sure that the known list of a push's namespace is recent, and that the store knows by
// which list its node decides. It works while the push is applied; call done to wait for it. If the store fails,
// the known list stays in use, and no push waits until the store is back: the list may be on a
// server that is away while the counters are not.
func (o *overrides) look(ctx context.Context, p *wire.Push) (l *list, done func()) {
	now := o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sweep(now)
	l = o.of(p.Namespace)
	l.used = now
	reads := !l.reading && (!l.known || now.Sub(l.at) >= lookEvery || now.Before(l.at))
	l.reading = l.reading || reads
	applied := store.AppliedList{Node: p.Node, Version: p.Known.Version, Unfit: p.Known.Unfit}
	key := member{p.Namespace, p.Node}
	before, known := o.noted.get(key)
	notes := p.Node != 0 && (!known || before.AppliedList != applied || now.Sub(before.at) >= noteEvery)
	if notes {
		o.noted.put(key, noted{applied, now})
	}
	if !reads && !notes {
		return l, func() {}
	}
	ask := func(ctx context.Context) (done func()) {
		var group sync.WaitGroup
		if reads {
			group.Go(func() { o.read(ctx, p.Namespace, l) })
		}
		if notes {
			group.Go(func() {
				if _, err := o.store.Note(ctx, store.AppliedLists, p.Namespace, applied.Note()); err != nil {
					o.mu.Lock()
					defer o.mu.Unlock()
					o.noted.delete(key)
					l.lost = true
				}
			})
		}
		return group.Wait
	}
	if !l.lost {
		return l, ask(ctx)
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
		defer cancel()
		ask(ctx)()
	}()
	return l, func() {}
}

// of returns the list of a namespace. The caller holds the lock.
func (o *overrides) of(namespace string) *list {
	l := o.lists[namespace]
	if l == nil {
		l = &list{}
		if len(o.lists) < maxLists {
			o.lists[namespace] = l
		}
	}
	return l
}

func (o *overrides) sweep(now time.Time) {
	if now.Sub(o.swept) < keepLists && !now.Before(o.swept) {
		return
	}
	o.swept = now
	for namespace, l := range o.lists {
		keep := keepLists
		if l.known && l.lost {
			keep = keepLost
		}
		if now.Sub(l.at) >= keep && now.Sub(l.used) >= keep && !l.reading && l.polls == 0 {
			delete(o.lists, namespace)
		}
	}
	o.noted.sweep(func(n noted) bool { return now.Sub(n.at) >= store.AppliedLife })
}

func (o *overrides) read(ctx context.Context, namespace string, l *list) {
	o.mu.Lock()
	known := l.version
	if !l.known {
		known = 0
	}
	at := o.now()
	o.mu.Unlock()
	bytes, version, err := o.overrides(ctx, namespace, known)
	o.mu.Lock()
	defer o.mu.Unlock()
	l.lost = err != nil
	if l.reading = false; err != nil || l.known && l.at.After(at) {
		return // or it was changed here meanwhile
	}
	if version == known {
		bytes = l.bytes
	}
	l.set(bytes, version, at)
}

// overrides asks the store, in a goroutine that nobody else guards.
func (o *overrides) overrides(ctx context.Context, namespace string, known uint64) (list []byte, version uint64, err error) {
	defer panics.Catch("a read of overrides", func(caught error) { err = caught })
	return o.store.Overrides(ctx, namespace, known)
}

// answer returns the part of a push's answer about the list.
func (o *overrides) answer(p *wire.Push, l *list) wire.Overrides {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !l.known {
		return wire.Overrides{}
	}
	return wire.OverridesFor(p, l.bytes, l.version, l.pasts...)
}

// Overrides are the overrides of a namespace, and which nodes know them.
type Overrides struct {
	// Version is that of the list, which has the overrides in force, in the order of rules and
	// values, and the prices that were set at run time, by list and model.
	Version uint64
	List    []wire.Override
	Prices  []wire.Price
	// Nodes is how many nodes have reported recently. Knowing is how many of them decide by this
	// list, and Unfitting how many of these can't apply all of it.
	Nodes, Knowing, Unfitting int
	// Unfit is how many overrides nodes can't apply in total, whichever list they have.
	Unfit uint64

	applied []store.AppliedList
}

// KnownFrom counts as knowing those nodes, too, that decide by an earlier list, from a version on. A node that has a
// later list than this has one that the store has lost.
func (o *Overrides) KnownFrom(version uint64) {
	o.Knowing, o.Unfitting = 0, 0
	for _, a := range o.applied {
		if a.Version < version || a.Version > o.Version {
			continue
		}
		if o.Knowing++; a.Unfit > 0 {
			o.Unfitting++
		}
	}
}

// Overrides returns the overrides of a namespace as the store has them now.
func (b *Backend) Overrides(ctx context.Context, namespace string) (o Overrides, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if o.applied, err = store.ReadApplied(ctx, b.store, namespace); err != nil {
		return o, err
	}
	set, err := b.inForce(ctx, namespace) // later, so that no node knows a later list that is there
	if err != nil {
		return o, err
	}
	o.Version, o.Prices = set.version, set.prices
	o.List = slices.DeleteFunc(set.overrides, func(o wire.Override) bool { return o.IsNotice() })
	o.Nodes = len(o.applied)
	for _, a := range o.applied {
		o.Unfit += a.Unfit
	}
	o.KnownFrom(o.Version)
	return o, nil
}

// settings is a version of a namespace's list in decoded form, without overrides that have ended.
type settings struct {
	version   uint64
	overrides []wire.Override
	prices    []wire.Price
}

// inForce reads a namespace's list.
func (b *Backend) inForce(ctx context.Context, namespace string) (s settings, err error) {
	bytes, version, err := b.store.Overrides(ctx, namespace, 0)
	if err != nil {
		return s, err
	}
	s.version = version
	if s.overrides, s.prices, err = wire.DecodeList(bytes); err != nil {
		return s, fmt.Errorf("read the list of overrides: %w", err)
	}
	millis := uint64(max(0, b.overrides.now().UnixMilli()))
	s.overrides = slices.DeleteFunc(s.overrides, func(o wire.Override) bool { return o.Until != 0 && o.Until <= millis })
	return s, nil
}

// put puts elements into an ordered list, each in the place of its like if there is one. Of several that are alike,
// the last counts.
func put[T any](list, elements []T, compare func(a, b T) int) []T {
	all := slices.Concat(elements, list)
	slices.Reverse(all[:len(elements)])
	slices.SortStableFunc(all, compare)
	return slices.CompactFunc(all, func(a, b T) bool { return compare(a, b) == 0 })
}

func compareOverrides(a, b wire.Override) int { return a.Compare(&b) }

// SetOverrides adds overrides to a namespace, replacing those of the same keys: where nodes have told their
// rules, also those that are written otherwise and are of the same key there. It returns the new version of
// the list. If an override is invalid, no node that has its rule could apply it, or there are too many, the
// error wraps [store.ErrInvalid] and nothing has changed.
func (b Changer) SetOverrides(ctx context.Context, namespace string, set ...wire.Override) (version uint64, err error) {
	if err := checkOverrides(set); err != nil {
		return 0, err
	}
	if err := b.checkFit(ctx, namespace, set); err != nil {
		return 0, err
	}
	return b.ForceOverrides(ctx, namespace, set...)
}

// ForceOverrides is [Changer.SetOverrides] for overrides that may fit no rule yet.
func (b Changer) ForceOverrides(ctx context.Context, namespace string, set ...wire.Override) (version uint64, err error) {
	if err := checkOverrides(set); err != nil {
		return 0, err
	}
	what, leaves := setOverride, 0
	var shapes map[string][]wire.RuleShape
	if len(set) > 0 && set[0].Mode.IsWhole() {
		what = setRule
	}
	if slices.ContainsFunc(set, func(o wire.Override) bool { return !o.Mode.IsWhole() }) {
		leaves = roomForAll
		if shapes, err = b.shapes(ctx, namespace); err != nil {
			return 0, err
		}
	}
	forms, last := make([]string, len(set)), map[string]int{}
	for i := range set {
		of := shapes[set[i].Rule]
		if slices.ContainsFunc(of, func(s wire.RuleShape) bool { return !s.Fits(&set[i]) }) {
			of = nil // it does nothing at some nodes, where that of another form goes on
		}
		forms[i] = form(of, &set[i])
		last[forms[i]] = i
	}
	var kept []wire.Override
	for i := range set {
		if last[forms[i]] == i {
			kept = append(kept, set[i])
		}
	}
	version, _, err = b.changeList(ctx, namespace, b.record(namespace, what), leaves, func(s *settings) int {
		s.overrides = slices.DeleteFunc(s.overrides, func(o wire.Override) bool {
			of := shapes[o.Rule]
			if len(of) == 0 || o.IsNotice() {
				return false
			}
			_, replaced := last[form(of, &o)]
			return replaced
		})
		s.overrides = put(s.overrides, kept, compareOverrides)
		return len(set)
	})
	return version, err
}

// UnsetOverrides removes the overrides of keys of a rule, or only the one of one key, or of the many that
// it describes, as the mode says, in whichever form it is written. It returns how many there were, and the new
// version of the list.
func (b Changer) UnsetOverrides(ctx context.Context, namespace, rule string, mode wire.Mode, values []string) (removed int, version uint64, err error) {
	var shapes map[string][]wire.RuleShape
	if values != nil {
		if shapes, err = b.shapes(ctx, namespace); err != nil {
			return 0, 0, err
		}
	}
	of := form(shapes[rule], &wire.Override{Rule: rule, Mode: mode, Values: values})
	return b.remove(ctx, namespace, unsetOverride, func(o wire.Override) bool {
		return !o.Mode.IsWhole() && !o.IsNotice() && o.Rule == rule && (values == nil || form(shapes[rule], &o) == of)
	})
}

// UnsetOverridesOf removes the overrides of several keys of a rule together.
func (b Changer) UnsetOverridesOf(ctx context.Context, namespace, rule string, keys [][]string) (removed int, version uint64, err error) {
	return b.remove(ctx, namespace, unsetOverride, func(o wire.Override) bool {
		return o.Mode == wire.OfKey && !o.IsNotice() && o.Rule == rule && slices.ContainsFunc(keys, func(key []string) bool { return slices.Equal(key, o.Values) })
	})
}

// ResetRule removes the override of a whole rule, or what [wire.AllRules] are set to. It returns how many
// there were, and the new version of the list.
func (b Changer) ResetRule(ctx context.Context, namespace, rule string) (removed int, version uint64, err error) {
	return b.remove(ctx, namespace, resetRule, func(o wire.Override) bool { return o.Mode.IsWhole() && o.Rule == rule })
}

func (b Changer) remove(ctx context.Context, namespace, what string, gone func(wire.Override) bool) (removed int, version uint64, err error) {
	version, removed, err = b.changeList(ctx, namespace, b.record(namespace, what), 0, func(s *settings) int {
		before := len(s.overrides)
		s.overrides = slices.DeleteFunc(s.overrides, gone)
		return before - len(s.overrides)
	})
	return removed, version, err
}

// count is how many overrides of keys and prices there are. What whole rules are set to is not counted, nor are the
// first notices: see roomForRules.
func (s *settings) count() int {
	whole, notices := 0, 0
	for i := range s.overrides {
		switch o := &s.overrides[i]; {
		case o.Mode.IsWhole():
			whole++
		case o.IsNotice():
			notices++
		}
	}
	return len(s.overrides) + len(s.prices) - whole - min(notices, freeNotices)
}

// crowded returns a rule with more patterns than a node searches; empty if there is none.
func (s *settings) crowded() string {
	patterns := map[wire.Pattern]bool{}
	rule := ""
	for _, o := range s.overrides {
		if o.Rule != rule {
			clear(patterns)
		}
		rule = o.Rule
		if p, ok := wire.PatternOf(o.Values); ok && o.Mode == wire.OfKeys {
			patterns[p] = true
		}
		if len(patterns) > wire.MaxPatterns {
			return rule
		}
	}
	return ""
}

// changeList changes a namespace's list, and records that. change returns how many overrides or
// prices it has set or removed: if none, the list stays. If the new list has the same, there is no
// record. If it is longer than before, without what has ended, it leaves so many bytes free.
func (b *Backend) changeList(ctx context.Context, namespace string, record *recording, leaves int, change func(s *settings) int) (version uint64, changed int, err error) {
	// The store's time is bounded each time it is asked: to work on a full list takes a second of its own.
	ctx, cancel := context.WithTimeout(ctx, 4*Timeout)
	defer cancel()
	for {
		reading, cancel := context.WithTimeout(ctx, Timeout)
		s, err := b.inForce(reading, namespace)
		cancel()
		if err != nil {
			return 0, 0, err
		}
		before := settings{overrides: slices.Clone(s.overrides), prices: slices.Clone(s.prices)}
		changed := change(&s)
		if changed == 0 {
			return s.version, 0, nil
		}
		if count := s.count(); count > wire.MaxOverrides {
			return 0, 0, fmt.Errorf("%w: overrides: want at most %d in a namespace, got %d", store.ErrInvalid, wire.MaxOverrides, count)
		}
		if rule := s.crowded(); rule != "" {
			return 0, 0, fmt.Errorf("%w: overrides: want prefixes, suffixes and networks of at most %d lengths for a rule, got more for %s", store.ErrInvalid, wire.MaxPatterns, rule)
		}
		encoded := wire.List(s.overrides, s.prices...)
		if n := len(encoded); n > wire.MaxOverridesSize-leaves && n > len(wire.List(before.overrides, before.prices...)) {
			return 0, 0, fmt.Errorf("%w: overrides: want a list of at most %d bytes, %d of them for whole rules and counters that were changed, got %d",
				store.ErrInvalid, wire.MaxOverridesSize, leaves, n)
		}
		recorded := record
		of := differences(&before, &s)
		if len(of) == 0 {
			recorded = nil // a call that has come again
		}
		writing, cancel := context.WithTimeout(ctx, Timeout)
		if err := recorded.begin(writing, of); err != nil {
			cancel()
			return 0, 0, err
		}
		version, err := b.store.SetOverrides(writing, namespace, s.version, encoded)
		if errors.Is(err, store.ErrChanged) {
			// A store whose answer was lost sets the list again, and finds that it has changed. If somebody else has made
			// the same of it at the same time, that is as good.
			if now, at, unread := b.store.Overrides(writing, namespace, 0); unread == nil && at > s.version && bytes.Equal(now, encoded) {
				version, err = at, nil
			}
		}
		cancel()
		if errors.Is(err, store.ErrChanged) {
			continue // the record begins anew, until the context ends
		}
		if recorded.end(ctx, err); err != nil {
			return 0, 0, err
		}
		b.overrides.changed(namespace, version, encoded)
		return version, changed, nil
	}
}

// changed records a list that was set here.
func (o *overrides) changed(namespace string, version uint64, bytes []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.of(namespace)
	if l.known && l.version >= version {
		return // another change is newer
	}
	l.set(bytes, version, o.now())
}

func checkOverrides(set []wire.Override) error {
	for i := range set {
		if err := checkOverride(&set[i]); err != nil {
			return fmt.Errorf("%w: overrides[%d].%w", store.ErrInvalid, i, err)
		}
	}
	return nil
}

// checkOverride checks an override, except for the fit to its rule, which only nodes know.
func checkOverride(o *wire.Override) error {
	all := o.Rule == wire.AllRules && o.Mode.IsWhole()
	if err := checkKey(o); err != nil && !all {
		return err
	}
	switch {
	case o.Mode > wire.OfKeys:
		return fmt.Errorf("mode: want configured, enforce, shadow or off")
	case all && (o.Mode != wire.Off || len(o.Limits) > 0):
		return errors.New("mode: want off for all rules together, and no limits")
	case o.Mode.IsWhole() && len(o.Values) > 0:
		return fmt.Errorf("key: want none for a whole rule, got %d values", len(o.Values))
	case o.Mode == wire.Configured && len(o.Limits) == 0:
		return errors.New("limits: want some, or a mode")
	case o.Mode.IsWhole() && len(o.Limits) == 0:
	case len(o.Limits) == 0 || len(o.Limits) > wire.MaxLimits:
		return fmt.Errorf("limits: want 1 to %d, got %d", wire.MaxLimits, len(o.Limits))
	}
	for i, l := range o.Limits {
		switch {
		case l.Max > window.MaxLimit:
			return fmt.Errorf("limits[%d].limit: want 0 to %d, got %d", i, uint64(window.MaxLimit), l.Max)
		case l.Burst > window.MaxLimit:
			return fmt.Errorf("limits[%d].burst: want 1 to %d, got %d", i, uint64(window.MaxLimit), l.Burst)
		case l.WidthMillis == 0 || l.WidthMillis > wire.MaxWidthMillis:
			return fmt.Errorf("limits[%d].window: want 1 ms to 366 days", i)
		}
	}
	if o.Until > wire.MaxHits {
		return errors.New("until: want a time before the year 200000")
	}
	return nil
}

func checkKey(o *wire.Override) error {
	if !wire.IsName(o.Rule) {
		return fmt.Errorf("rule: want 1 to 64 of A-Za-z0-9_-, got %.80q", o.Rule)
	}
	if len(o.Values) > wire.MaxOverrideValues {
		return fmt.Errorf("key: want at most %d values, got %d", wire.MaxOverrideValues, len(o.Values))
	}
	for i, v := range o.Values {
		if len(v) > wire.MaxOverrideValue {
			return fmt.Errorf("key[%d]: want at most %d bytes, got %d", i, wire.MaxOverrideValue, len(v))
		}
	}
	return nil
}
