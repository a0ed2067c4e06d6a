package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

const (
	// lookEvery is how long a backend relies on what it knows of a namespace's overrides, which
	// another one may have changed.
	lookEvery = 100 * time.Millisecond
	// tellEvery is how often the store hears from a node that says what it has said before.
	tellEvery = store.HeardLife / 3
	// keepLists is for how long a list is kept that nobody asks for.
	keepLists = 10 * time.Second
	// maxLists bounds the lists that are kept. Beyond it each push asks the store.
	maxLists = 1 << 14
)

// overrides has the lists of namespaces, without asking the store each time, and tells the store
// which of them nodes have.
type overrides struct {
	now   func() time.Time
	store store.Store

	mu    sync.Mutex
	lists map[string]*list
	told  members[telling]
	swept time.Time
}

// list holds what is known of a namespace's list.
type list struct {
	bytes   []byte
	version uint64
	// known says that it was read, at a time. reading says that somebody is about to. lost says that the
	// store failed the last time.
	known   bool
	at      time.Time
	reading bool
	lost    bool
	// polls wait for another version. renewed is closed when there is one. watched says that somebody
	// looks for it, each within.
	polls   int
	watched bool
	renewed chan struct{}
	within  time.Duration
}

// set takes over a list that was read or changed, of a time. The lock is held.
func (l *list) set(bytes []byte, version uint64, at time.Time) {
	if l.renewed != nil && (!l.known || l.version != version) {
		close(l.renewed)
		l.renewed = nil
	}
	l.bytes, l.version, l.known, l.at = bytes, version, true, at
}

type telling struct {
	told store.Told
	at   time.Time
}

// look makes sure that what is known of the list of a push's namespace is new enough, and that the
// store knows what its node has told. It does so while the push is applied: call done to wait for it.
// If the store fails, what was known goes on to count, and nobody waits until it is back: where the
// list is may be away, and the counters not.
func (o *overrides) look(ctx context.Context, p *wire.Push) (done func()) {
	now := o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sweep(now)
	l := o.of(p.Namespace)
	reads := !l.reading && (!l.known || now.Sub(l.at) >= lookEvery || now.Before(l.at))
	l.reading = l.reading || reads
	told := store.Told{Node: p.Node, Version: p.Known.Version, Unfit: p.Known.Unfit}
	key := member{p.Namespace, p.Node}
	before, known := o.told.get(key)
	tells := p.Node != 0 && (!known || before.told != told || now.Sub(before.at) >= tellEvery)
	if tells {
		o.told.put(key, telling{told, now})
	}
	if !reads && !tells {
		return func() {}
	}
	ask := func(ctx context.Context) (done func()) {
		var group sync.WaitGroup
		if reads {
			group.Go(func() { o.read(ctx, p.Namespace, l) })
		}
		if tells {
			group.Go(func() {
				if o.store.Heard(ctx, p.Namespace, told) != nil {
					o.mu.Lock()
					defer o.mu.Unlock()
					o.told.delete(key)
					l.lost = true
				}
			})
		}
		return group.Wait
	}
	if !l.lost {
		return ask(ctx)
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
		defer cancel()
		ask(ctx)()
	}()
	return func() {}
}

// of returns what is known of a namespace's list. The lock is held.
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
		if now.Sub(l.at) >= keepLists && !l.reading && l.polls == 0 {
			delete(o.lists, namespace)
		}
	}
	o.told.sweep(func(t telling) bool { return now.Sub(t.at) >= store.HeardLife })
}

// read reads a namespace's list if that has changed.
func (o *overrides) read(ctx context.Context, namespace string, l *list) {
	o.mu.Lock()
	known := l.version
	if !l.known {
		known = 0
	}
	at := o.now()
	o.mu.Unlock()
	bytes, version, err := o.store.Overrides(ctx, namespace, known)
	o.mu.Lock()
	defer o.mu.Unlock()
	l.lost = err != nil
	if l.reading = false; err != nil || l.known && l.at.After(at) {
		return // or somebody has changed it here meanwhile
	}
	if version == known {
		bytes = l.bytes
	}
	l.set(bytes, version, at)
}

// answer is the part of a push's answer that tells its sender of the list.
func (o *overrides) answer(p *wire.Push) wire.Overrides {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.lists[p.Namespace]
	if l == nil || !l.known {
		return wire.Overrides{}
	}
	return wire.Tell(p, l.bytes, l.version)
}

// Overrides are those of a namespace, and who knows of them.
type Overrides struct {
	// Version is that of the list, which has those that count, in the order of rules and values.
	Version uint64
	List    []wire.Override
	// Nodes have told of the namespace lately what they know. Knowing counts those that go by this
	// list, and Unfitting those that can't apply some of it.
	Nodes, Knowing, Unfitting int
	// Unfit is how many overrides nodes can't apply, all together, whichever list they have.
	Unfit uint64
}

// Overrides are those of a namespace, as the store has them now.
func (b *Backend) Overrides(ctx context.Context, namespace string) (o Overrides, err error) {
	o, err = b.overridden(ctx, namespace)
	o.List = slices.DeleteFunc(o.List, func(o wire.Override) bool {
		_, _, _, price := o.Price()
		return price
	})
	return o, err
}

// overridden is what the list of overrides has that is in force.
func (b *Backend) overridden(ctx context.Context, namespace string) (o Overrides, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	bytes, version, err := b.store.Overrides(ctx, namespace, 0)
	if err != nil {
		return o, err
	}
	if o.List, err = wire.DecodeList(bytes); err != nil {
		return o, fmt.Errorf("the list of overrides: %w", err)
	}
	o.Version, o.List = version, inForce(o.List, b.overrides.now())
	o.List = slices.DeleteFunc(o.List, func(o wire.Override) bool { return o.IsNotice() })
	told, err := b.store.Told(ctx, namespace)
	if err != nil {
		return o, err
	}
	for _, t := range told {
		o.Nodes++
		o.Unfit += t.Unfit
		if t.Version != version {
			continue
		}
		if o.Knowing++; t.Unfit > 0 {
			o.Unfitting++
		}
	}
	return o, nil
}

// inForce removes what counts no more, in place.
func inForce(list []wire.Override, now time.Time) []wire.Override {
	millis := uint64(max(0, now.UnixMilli()))
	return slices.DeleteFunc(list, func(o wire.Override) bool { return o.Until != 0 && o.Until <= millis })
}

// SetOverrides adds overrides to those of a namespace, in the place of those of the same keys. It
// returns the list's version then. If they are none, or too many, the error wraps
// [store.ErrInvalid].
func (b *Backend) SetOverrides(ctx context.Context, namespace string, set ...wire.Override) (version uint64, err error) {
	for i := range set {
		if err := checkOverride(&set[i]); err != nil {
			return 0, fmt.Errorf("%w: overrides[%d].%w", store.ErrInvalid, i, err)
		}
	}
	version, _, err = b.changeOverrides(ctx, namespace, func(list []wire.Override) ([]wire.Override, int) {
		for i := range set {
			at, found := slices.BinarySearchFunc(list, &set[i], compareTo)
			if !found {
				list = slices.Insert(list, at, wire.Override{})
			}
			list[at] = set[i]
		}
		return list, len(set)
	})
	return version, err
}

// UnsetOverrides removes the overrides of a namespace, or of its rules of a name, or of one key of
// such a rule. It returns how many there were, and the list's version then.
func (b *Backend) UnsetOverrides(ctx context.Context, namespace, rule string, values []string) (removed int, version uint64, err error) {
	version, removed, err = b.changeOverrides(ctx, namespace, func(list []wire.Override) ([]wire.Override, int) {
		before := len(list)
		list = slices.DeleteFunc(list, func(o wire.Override) bool {
			if _, _, _, price := o.Price(); price {
				return false
			}
			return !o.IsNotice() && (rule == "" || o.Rule == rule) && (values == nil || slices.Equal(o.Values, values))
		})
		return list, before - len(list)
	})
	return removed, version, err
}

func compareTo(o wire.Override, other *wire.Override) int { return o.Compare(other) }

// changeOverrides changes a namespace's list, which change may do in place. It says how many
// overrides it has changed: if none, the list stays as it is.
func (b *Backend) changeOverrides(ctx context.Context, namespace string, change func([]wire.Override) ([]wire.Override, int)) (version uint64, changed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	for {
		bytes, from, err := b.store.Overrides(ctx, namespace, 0)
		if err != nil {
			return 0, 0, err
		}
		decoded, err := wire.DecodeList(bytes)
		if err != nil {
			return 0, 0, fmt.Errorf("the list of overrides: %w", err)
		}
		now := b.overrides.now()
		next, changed := change(inForce(decoded, now))
		if changed == 0 {
			return from, 0, nil
		}
		if len(next) > wire.MaxOverrides {
			return 0, 0, fmt.Errorf("%w: overrides: want at most %d in a namespace, got %d", store.ErrInvalid, wire.MaxOverrides, len(next))
		}
		encoded := wire.List(next)
		version, err := b.store.SetOverrides(ctx, namespace, from, encoded)
		if errors.Is(err, store.ErrChanged) {
			continue // until the context ends
		}
		if err != nil {
			return 0, 0, err
		}
		b.overrides.changed(namespace, version, encoded)
		return version, changed, nil
	}
}

// changed notes a list that was set here.
func (o *overrides) changed(namespace string, version uint64, bytes []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.of(namespace)
	if l.known && l.version >= version {
		return // another change was faster
	}
	l.set(bytes, version, o.now())
}

// checkOverride tells what is wrong with an override, but for what only those know who have the rule.
func checkOverride(o *wire.Override) error {
	if err := checkKey(o); err != nil {
		return err
	}
	if len(o.Limits) == 0 || len(o.Limits) > wire.MaxOverrideLimits {
		return fmt.Errorf("limits: want 1 to %d, got %d", wire.MaxOverrideLimits, len(o.Limits))
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

// checkKey tells what is wrong with the key that an override, or a notice, is for.
func checkKey(o *wire.Override) error {
	if !validRule(o.Rule) {
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

func validRule(name string) bool {
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return name != "" && len(name) <= 64
}
