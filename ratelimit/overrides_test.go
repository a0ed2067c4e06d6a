package ratelimit

import (
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/must"
	"weir/internal/wire"
)

// An override set while a program runs decides its key, which keeps its counter. The decision has
// its limit.
func TestOverride(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		n := must.Get(NewNamespace(Options{
			Name: "shop", Backend: w, Rules: []Rule{{Name: "per-user", Limits: []Limit{FixedWindow(3, 24*time.Hour)}}},
		}))(t)
		defer func() { must.Report(t, n.Close(t.Context())) }()
		l := limiter(t, n, "per-user")
		for i := range 4 {
			if d := decide(t, l, 1, "ann"); d.Allowed != (i < 3) || d.Limit.Quota() != 3 {
				t.Errorf("request %d: %+v", i, d)
			}
		}
		o := wire.Override{Rule: "per-user", Values: []string{"ann"}, Limits: []wire.OverrideLimit{{Max: 5, WidthMillis: 86_400_000}}}
		must.Get(w.backend.By(nil).SetOverrides(t.Context(), "shop", o))(t)
		if known, err := w.backend.Overrides(t.Context(), "shop"); err != nil || known.Knowing != 0 || len(known.List) != 1 {
			t.Errorf("at once: %+v, %v", known, err)
		}
		<-time.After(defaultSyncRate)
		for i := range 3 {
			if d := decide(t, l, 1, "ann"); d.Allowed != (i < 2) || d.Limit.Quota() != 5 {
				t.Errorf("request %d after the change: %+v", i, d)
			}
		}
		if d := decide(t, l, 1, "bob"); !d.Allowed || d.Limit.Quota() != 3 {
			t.Errorf("another key: %+v", d)
		}
		<-time.After(defaultSyncRate)
		if known, err := w.backend.Overrides(t.Context(), "shop"); err != nil || known.Nodes != 1 || known.Knowing != 1 || known.Unfitting != 0 {
			t.Errorf("a little later: %+v, %v", known, err)
		}
	})
}
