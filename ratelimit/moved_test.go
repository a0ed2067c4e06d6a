package ratelimit

import (
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/must"
	"weir/internal/wire"
)

// A rule that an operator moves while programs run passes uncounted, counts without refusing, or has other
// limits, for each key and for limiters with other limits. Demands on other rules are decided as before.
func TestMovedRule(t *testing.T) {
	for _, exact := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			n := must.Get(NewNamespace(Options{Name: "shop", Backend: w, Exact: exact, Rules: []Rule{
				{Name: "per-user", Limits: []Limit{FixedWindow(3, 24*time.Hour)}},
				{Name: "all", Limits: []Limit{FixedWindow(20, 24*time.Hour)}},
				{Name: "places", Limits: []Limit{InFlight(1)}},
			}}))(t)
			defer func() { must.Report(t, n.Close(t.Context())) }()
			users, all, places := limiter(t, n, "per-user"), limiter(t, n, "all"), limiter(t, n, "places")
			plan := must.Get(users.WithLimits(FixedWindow(5, 24*time.Hour)))(t)
			move := func(set ...wire.Override) {
				t.Helper()
				_, _, err := w.backend.By(nil).ResetRule(t.Context(), "shop", "per-user")
				must.OK(t, err)
				must.Get(w.backend.By(nil).SetOverrides(t.Context(), "shop", set...))(t)
				<-time.After(defaultSyncRate)
			}
			both := func() Decision {
				t.Helper()
				d, err := Decide(t.Context(), users.Demand(Key{"ann"}, 1), all.Demand(nil, 1), plan.Demand(Key{"bob"}, 1))
				if err != nil || len(d.Standings) != 3 || d.Standings[0].Limiter != users || d.Standings[1].Limiter != all || d.Standings[2].Limiter != plan {
					t.Fatalf("%+v, %v", d, err)
				}
				return d
			}
			passes := func(l *Limiter, of int) (passed int) {
				for range of {
					if decide(t, l, 1, "ann").Allowed {
						passed++
					}
				}
				return passed
			}
			want := func(when string, got, want any) {
				t.Helper()
				must.Equal(t, got, want, "exact %v, %s", exact, when)
			}
			want("as configured", passes(users, 4), 3)
			move(wire.Override{Rule: "per-user", Mode: wire.Off}, wire.Override{Rule: "places", Mode: wire.Shadow})
			want("off", passes(users, 4), 4)
			want("off, another plan", passes(plan, 4), 4)
			want("off, a cost above the limit", decide(t, users, 1000, "ann").Allowed, true)
			want("off, and another rule", both().Remaining, uint64(19))
			want("off, what is left", both().Standings[0].Remaining, uint64(3))
			for range 3 {
				if release, acquired, err := places.Acquire(t.Context()); !acquired || err != nil {
					t.Errorf("a place in shadow mode: %v, %v", acquired, err)
				} else {
					defer release()
				}
			}
			want("off", n.Stats().OffRequests, uint64(4+4+1+2*2+3))
			move(wire.Override{Rule: "per-user", Mode: wire.Shadow, Limits: []wire.OverrideLimit{{Max: 6, WidthMillis: 86_400_000}}})
			for range 5 {
				want("shadow", passes(users, 1), 1)
				<-time.After(time.Second) // it is decided meanwhile
			}
			want("shadow", n.Stats().WouldReject, uint64(2))
			want("shadow, and another rule", both().Remaining, uint64(17))
			<-time.After(time.Second)
			want("shadow, and another rule", n.Stats().WouldReject, uint64(3))
			must.Report(t, users.WaitN(t.Context(), Key{"ann"}, 1))
			move(wire.Override{Rule: "per-user", Mode: wire.Enforce, Limits: []wire.OverrideLimit{{Max: 8, WidthMillis: 86_400_000}}})
			want("another limit", passes(plan, 4), 2)
			move()
			want("as configured", passes(users, 2)+passes(plan, 2), 0)
		})
	}
}

// A decision by a moved rule allocates nothing, once the key is known.
func TestMovedRuleAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		n := must.Get(NewNamespace(Options{Name: "shop", Backend: w, Rules: []Rule{{Name: "r", Limits: []Limit{FixedWindow(1_000_000_000, 24*time.Hour)}}}}))(t)
		defer func() { must.Report(t, n.Close(t.Context())) }()
		l, key, ctx := limiter(t, n, "r"), Key{"ann"}, t.Context()
		for _, mode := range []wire.Mode{wire.Off, wire.Shadow} {
			must.Get(w.backend.By(nil).SetOverrides(ctx, "shop", wire.Override{Rule: "r", Mode: mode}))(t)
			decide := func() {
				if d, err := l.Decide(ctx, key, 1); err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
			}
			for range 5 {
				<-time.After(defaultSyncRate)
				for range 2000 { // so that much is leased
					decide()
				}
			}
			must.Equal(t, testing.AllocsPerRun(50, decide), 0, "mode %v: allocations", mode)
		}
		must.Equal(t, n.Stats().OffRequests, 10_051, "requests while it is off")
		must.Equal(t, n.Stats().WouldReject, 0, "requests that it would reject")
	})
}
