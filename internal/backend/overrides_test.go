package backend

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// Keys that nodes count as one have one override, however they are written: the last that was set and that nodes can
// apply. It is removed in any form. What nodes read as another key, and what they hear of changed counters, stays.
func TestFormsOfAKey(t *testing.T) {
	ctx := t.Context()
	b := New(memory.New(memory.Options{}))
	c := b.By(nil)
	rule := exampleRule("per-user", 100)
	rule.Key = []byte{0, 0, 24, 64}
	n := newTeller(t, 1, 1, rule)
	n.say(b, n.told)
	like := func(limit uint64, values ...string) wire.Override {
		o := overrideTo(limit, values...)
		o.Mode = wire.OfKeys
		return o
	}
	must.Get(c.ForceOverrides(ctx, "shop", overrideTo(1, "ann", "10.0.0.1"), overrideTo(2, "ann", "10.0.0.2")))(t)
	_, _, err := c.ChangeCounter(ctx, "shop", &Change{ID: wire.ID{1}, Rule: "per-user", Values: []string{"ann", "10.0.0.3"}})
	must.OK(t, err)
	unfit := overrideTo(3, "ann", "10.0.0.4")
	unfit.Limits[0].WidthMillis++
	must.Get(c.ForceOverrides(ctx, "shop", unfit))(t)
	must.Get(c.SetOverrides(ctx, "shop", overrideTo(4, "ann", "2001:db8::1"), overrideTo(5, "bob", "2001:db8::1"), like(6, "^b", "=10.0.0.1"), like(7, "^b", "=10.0.0.2"), like(8, "^c", "=10.0.0.1")))(t)
	must.Get(c.SetOverrides(ctx, "shop", overrideTo(9, "ann", "2001:DB8:0:0:9::2")))(t)
	must.Get(c.ForceOverrides(ctx, "shop", overrideTo(10, "ann", "10.0.0.0/24")))(t) // no address
	has := func(want string) {
		t.Helper()
		s := must.Get(b.inForce(ctx, "shop"))(t)
		got := ""
		for _, o := range s.overrides {
			if got += strings.Join(o.Values, " "); !o.IsNotice() {
				got += fmt.Sprint(": ", o.Limits[0].Max)
			}
			got += "; "
		}
		must.Equal(t, got, want, "the list has")
	}
	const first, last = "^c =10.0.0.1: 8; ann 10.0.0.0/24: 10; ann 10.0.0.2: 2; ann 10.0.0.3; ann 10.0.0.4: 3; ", "bob 2001:db8::1: 5; "
	has("^b =10.0.0.2: 7; " + first + "ann 2001:DB8:0:0:9::2: 9; " + last)
	removed := func(mode wire.Mode, values ...string) {
		t.Helper()
		n, _, err := c.UnsetOverrides(ctx, "shop", "per-user", mode, values)
		must.OK(t, err)
		must.Equal(t, n, 1, "removed of %q", values)
	}
	removed(wire.OfKey, "ann", "2001:db8::")
	removed(wire.OfKeys, "^b", "=10.0.0.9")
	has(first + last)
}

// A list that has no bytes left for overrides of keys has some for nodes to hear of changed counters, and behind those
// some for rules to be switched off. What does not make it longer goes on.
func TestFullList(t *testing.T) {
	ctx := t.Context()
	c := New(memory.New(memory.Options{})).By(nil)
	key := func(n, values, size int) []string {
		return append(slices.Repeat([]string{strings.Repeat("x", size)}, values-1), fmt.Sprintf("%0*d", size, n))
	}
	var full []wire.Override
	left := wire.MaxOverridesSize - roomForAll
	for _, of := range []struct{ values, size int }{{wire.MaxOverrideValues, wire.MaxOverrideValue}, {1, wire.MaxOverrideValue}, {1, 8}} {
		for {
			o := overrideTo(1, key(len(full), of.values, of.size)...)
			n := len(wire.AppendOverride(nil, &o))
			if n > left {
				break
			}
			full, left = append(full, o), left-n
		}
	}
	off := func(rule string) wire.Override { return wire.Override{Rule: rule, Mode: wire.Off} }
	set := func(all ...wire.Override) error {
		_, err := c.SetOverrides(ctx, "shop", all...)
		return err
	}
	must.OK(t, set(full...))
	last, next := key(len(full)-1, 1, 8), overrideTo(1, key(len(full), 1, 8)...)
	must.Is(t, set(next), store.ErrInvalid, "another key")
	must.OK(t, set(off("per-user")))
	must.OK(t, set(overrideTo(2, last...)))
	must.Is(t, set(off("other"), next), store.ErrInvalid, "another key beside a rule")
	_, err := c.SetPrices(ctx, "shop", "l", pricesOf("m"), false)
	must.Is(t, err, store.ErrInvalid, "prices")
	must.Contains(t, fmt.Sprint(err), "want a list of at most 8388608 bytes, 65536 of them for whole rules and counters that were changed, got", "")
	told := 0
	for err = nil; err == nil; told++ {
		_, _, err = c.ChangeCounter(ctx, "shop", &Change{ID: wire.ID{1}, Rule: "per-user", Values: key(told, 4, wire.MaxOverrideValue)})
	}
	must.Is(t, err, ErrUnannounced, "too many counters")
	must.Equal(t, told-1, 7, "counters of 4 KiB that nodes hear of")
	c.overrides.now = func() time.Time { return time.Now().Add(2 * noticeLife) }
	must.Is(t, set(next), store.ErrInvalid, "another key in the room of notices that have ended")
	must.OK(t, set(overrideTo(3, last...)))
	must.OK(t, set(off("other"), off(wire.AllRules)))
	if removed, _, err := c.UnsetOverrides(ctx, "shop", "per-user", wire.OfKey, last); removed != 1 || err != nil {
		t.Errorf("%d are removed, %v", removed, err)
	}
	notices := settings{overrides: append(slices.Repeat([]wire.Override{{Rule: "r", Notice: wire.Notice{Reset: 1}}}, freeNotices+1), off("r")), prices: pricesOf("m")}
	must.Equal(t, notices.count(), 2, "overrides, beside free notices and a rule")
}

// A change whose answer is lost, so that the store finds the new list when it sets it again, is told as it was made.
func TestAnswerToAChangeIsLost(t *testing.T) {
	now, s := time.Unix(1_767_225_600, 0), &broken{Store: memory.New(memory.Options{}), lost: true}
	b := New(s)
	b.overrides.now = func() time.Time { now = now.Add(time.Millisecond); return now }
	version := must.Get(b.By(by("one")).SetOverrides(t.Context(), "shop", overrideTo(1, "ann")))(t)
	must.Equal(t, version, must.Get(b.Overrides(t.Context(), "shop"))(t).Version, "the version of the list")
	s.lost = true
	removed, _, err := b.By(by("two")).UnsetOverrides(t.Context(), "shop", "per-user", wire.OfKey, []string{"ann"})
	must.OK(t, err)
	must.Equal(t, removed, 1, "removed")
	wantTold(t, b, "set override ann/one per-user[]:  -> 1/1m;", "remove override ann/two per-user[]: 1/1m -> ;")
}

// A list is kept while it is used: read lately, or read now, or waited for.
func TestListsAreForgotten(t *testing.T) {
	now := time.Unix(1_767_225_600, 0)
	before := now.Add(-keepLists)
	o := overrides{lists: map[string]*list{"unused": {at: before}, "read": {at: before.Add(1)}, "reading": {at: before, reading: true}, "waited": {at: before, polls: 1}}}
	o.sweep(now)
	must.Same(t, slices.Sorted(maps.Keys(o.lists)), []string{"read", "reading", "waited"}, "lists")
	o.sweep(now.Add(keepLists - 1))
	must.Equal(t, len(o.lists), 3, "lists before it is looked again")
	o.sweep(now.Add(keepLists))
	must.Same(t, slices.Sorted(maps.Keys(o.lists)), []string{"reading", "waited"}, "lists later")
}

// While the store of lists is away, nodes hear of the list that was known, as long as some ask for it and an hour
// longer.
func TestListsOutliveTheirStore(t *testing.T) {
	now := time.Unix(1_767_225_600, 0)
	clock := func() time.Time { return now }
	kept := &broken{Store: memory.New(memory.Options{Now: clock})}
	b := New(kept)
	b.overrides.now = clock
	version := must.Get(b.By(nil).ForceOverrides(t.Context(), "shop", overrideTo(10, "ann")))(t)
	hears(t, b)
	kept.unread = errAway
	for _, after := range []time.Duration{time.Second, keepLists} {
		now = now.Add(after)
		must.Equal(t, hears(t, b).Version, version, "the version that nodes hear of")
	}
	before := now.Add(-keepLost)
	o := overrides{lists: map[string]*list{
		"lost": {at: before.Add(1), known: true, lost: true}, "asked for": {at: before, used: before.Add(2), known: true, lost: true}, "never known": {at: before, lost: true},
	}}
	o.sweep(now)
	must.Same(t, slices.Sorted(maps.Keys(o.lists)), []string{"asked for", "lost"}, "lists")
	o.sweep(now.Add(keepLists))
	must.Equal(t, len(o.lists), 0, "lists later")
}

// hears pushes to a backend as a node of the namespace "shop", and returns what the answer says about its list.
func hears(t *testing.T, b *Backend) wire.Overrides {
	t.Helper()
	push := wire.Push{Namespace: "shop", Node: 1, Sender: 1, Sequence: 1, Floor: 1, Known: wire.Known{Asks: true}}
	return must.Get(b.Push(t.Context(), wire.AppendPush(nil, &push)))(t).Answer.Overrides
}

// Nodes of a namespace hear of its list, too, if the backend keeps those of as many others as it may.
func TestListsOfManyNamespaces(t *testing.T) {
	b := New(memory.New(memory.Options{}))
	for i := range maxLists {
		b.overrides.lists[fmt.Sprint(i)] = &list{at: time.Now()}
	}
	version := must.Get(b.By(nil).ForceOverrides(t.Context(), "shop", overrideTo(10, "ann")))(t)
	if told := hears(t, b); !told.Known || told.Version != version || len(told.Part) == 0 {
		t.Errorf("a node is told %+v, want version %d", told, version)
	}
	must.Equal(t, len(b.overrides.lists), maxLists, "lists that are kept")
}
