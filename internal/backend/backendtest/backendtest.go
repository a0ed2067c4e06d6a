// Package backendtest has what the worlds of tests have in common: a store that is asked as a backend
// asks it, and looked at.
package backendtest

import (
	"testing"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
)

// Push brings a push to a store.
func Push(t testing.TB, s store.Store, body []byte) (*wire.Push, store.Outcome) {
	t.Helper()
	push := must.Get(wire.DecodePush(body))(t)
	nodes := must.Get(store.Join(t.Context(), s, push.Namespace, push.Node))(t)
	return push, must.Get(s.Push(t.Context(), push, nodes))(t)
}

// Tell returns what a backend tells the sender of a push of overrides.
func Tell(t testing.TB, s store.Store, push *wire.Push) wire.Overrides {
	t.Helper()
	list, version, err := s.Overrides(t.Context(), push.Namespace, 1)
	if err == nil {
		applied := store.AppliedList{Node: push.Node, Version: push.Known.Version, Unfit: push.Known.Unfit}
		_, err = s.Note(t.Context(), store.AppliedLists, push.Namespace, applied.Note())
	}
	must.OK(t, err)
	return wire.OverridesFor(push, list, version)
}

// Answer brings a message to a store, and returns its answer; none to a report.
func Answer(t testing.TB, s store.Store, body []byte) []byte {
	t.Helper()
	if wire.IsReport(body) {
		return nil
	}
	if wire.IsUsed(body) {
		used, err := wire.DecodeUsed(body)
		if err == nil {
			_, err = s.Account(t.Context(), used)
		}
		must.OK(t, err)
		return wire.AppendUsedAnswer(nil, used.Sequence)
	}
	push, outcome := Push(t, s, body)
	outcome.Answer.Overrides = Tell(t, s, push)
	return wire.AppendAnswer(nil, &outcome.Answer)
}

// Set replaces the list of a namespace: overrides, or what else [wire.List] has.
func Set(t testing.TB, s store.Store, namespace string, list []byte) {
	t.Helper()
	_, version, err := s.Overrides(t.Context(), namespace, 0)
	if err == nil {
		_, err = s.SetOverrides(t.Context(), namespace, version, list)
	}
	must.OK(t, err)
}

// Sum is all hits that a store has of a namespace.
func Sum(t testing.TB, s store.Store, namespace string) (sum int64) {
	t.Helper()
	must.OK(t, s.Counters(t.Context(), namespace, nil, func(c store.LimitCounter) error {
		for _, window := range c.Windows {
			sum += window.Hits
		}
		return nil
	}))
	return sum
}

// WantSum wants a store to have so many hits of the namespace default.
func WantSum(t testing.TB, s store.Store, want int64, when string) {
	t.Helper()
	must.Equal(t, Sum(t, s, "default"), want, "%s: hits that the backend has", when)
}

// Used visits the usage that a store has of a namespace, with the names of keys: their values, one after
// the other.
func Used(t testing.TB, s store.Store, namespace string, visit func(l wire.UsedLabel, name string, day uint32, hits int64)) {
	t.Helper()
	names := map[wire.ID]string{{}: "others"}
	rows := func(visit func(r wire.UsedRow, l wire.UsedLabel)) {
		must.OK(t, s.Used(t.Context(), namespace, 0, wire.MaxUsedDay, func(r wire.UsedRow) error {
			l, ok := wire.DecodeUsedLabel(r.Label)
			must.Equal(t, ok, true, "a label that can't be read: %q", r.Label)
			visit(r, l)
			return nil
		}))
	}
	// A row may have outlived its sender's memory of the key's name.
	rows(func(_ wire.UsedRow, l wire.UsedLabel) {
		name := ""
		for rest := l.Name; len(rest) > 0; {
			value, cut, after, ok := wire.NextValue(rest)
			must.EqualOrEnd(t, ok, true, "a name that can't be read: %q", l.Name)
			if name += string(value); cut {
				name += "…"
			}
			if rest = after; len(rest) > 0 {
				name += " "
			}
		}
		if name != "" {
			names[l.ID] = name
		}
	})
	rows(func(r wire.UsedRow, l wire.UsedLabel) { visit(l, names[l.ID], r.Day, r.Hits) })
}
