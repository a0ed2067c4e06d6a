package ratelimit

import (
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/wire"
)

// A program's keys are texts, and those that are addresses can have limits by network.
func TestPatternsOfOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		n, err := NewNamespace(Options{Name: "shop", Backend: w, Rules: []Rule{{Name: "r", Limits: []Limit{FixedWindow(5000, 24*time.Hour)}}}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := n.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		l := limiter(t, n, "r")
		set := func(hits uint64, values ...string) wire.Override {
			return wire.Override{Rule: "r", Mode: wire.OfKeys, Values: values, Limits: []wire.OverrideLimit{{Max: hits, WidthMillis: 86_400_000}}}
		}
		if _, err := w.backend.By(nil).SetOverrides(t.Context(), "shop", set(1000, "^sk-"), set(2000, "=gold", "/10.0.0.0/8"), set(3000, "=gold", "/2001:db8::/32")); err != nil {
			t.Fatal(err)
		}
		<-time.After(defaultSyncRate)
		for _, test := range []struct {
			key  Key
			want uint64
		}{
			{Key{"sk-1"}, 1000}, {Key{"sk"}, 5000}, {Key{"sk-1", "x"}, 5000}, {Key{"gold", "10.1.2.3"}, 2000}, {Key{"gold", "::ffff:10.1.2.3"}, 2000}, {Key{"gold", "11.1.2.3"}, 5000},
			{Key{"gold", "2001:db8::1"}, 3000}, {Key{"gold", "2001:db9::1"}, 5000}, {Key{"silver", "10.1.2.3"}, 5000}, {Key{"gold"}, 5000}, {nil, 5000},
		} {
			if got := decide(t, l, 1, test.key...).Limit.Quota(); got != test.want {
				t.Errorf("%v: a limit of %d, want %d", test.key, got, test.want)
			}
		}
	})
}
