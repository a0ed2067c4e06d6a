package ratelimit

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/clientip"
	"weir/internal/must"
	"weir/internal/wire"
)

// daily is the limiter of a rule r of 5,000 hits a day in a namespace of its own, which ends with the test.
func daily(t *testing.T, b Backend) *Limiter {
	t.Helper()
	n := must.Get(NewNamespace(Options{Name: "shop", Backend: b, Rules: []Rule{{Name: "r", Limits: []Limit{FixedWindow(5000, 24*time.Hour)}}}}))(t)
	t.Cleanup(func() { must.Report(t, n.Close(context.WithoutCancel(t.Context()))) })
	return limiter(t, n, "r")
}

// A program's keys are texts, and those that are addresses can have limits by network.
func TestPatternsOfOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		l := daily(t, w)
		set := func(hits uint64, values ...string) wire.Override {
			return wire.Override{Rule: "r", Mode: wire.OfKeys, Values: values, Limits: []wire.OverrideLimit{{Max: hits, WidthMillis: 86_400_000}}}
		}
		must.Get(w.backend.By(nil).SetOverrides(t.Context(), "shop", set(1000, "^sk-"), set(2000, "=gold", "/10.0.0.0/8"), set(3000, "=gold", "/2001:db8::/32")))(t)
		<-time.After(defaultSyncRate)
		for _, test := range []struct {
			key  Key
			want uint64
		}{
			{Key{"sk-1"}, 1000}, {Key{"sk"}, 5000}, {Key{"sk-1", "x"}, 5000}, {Key{"gold", "10.1.2.3"}, 2000}, {Key{"gold", "::ffff:10.1.2.3"}, 2000}, {Key{"gold", "11.1.2.3"}, 5000},
			{Key{"gold", "2001:db8::1"}, 3000}, {Key{"gold", "2001:db9::1"}, 5000}, {Key{"silver", "10.1.2.3"}, 5000}, {Key{"gold"}, 5000}, {nil, 5000},
		} {
			must.Equal(t, decide(t, l, 1, test.key...).Limit.Quota(), test.want, "%v: a limit of", test.key)
		}
	})
}

// Keys with addresses as of limithttp.ClientIP have the overrides of these addresses and of their networks, as keys with
// their texts have.
func TestOverridesOfAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		l := daily(t, w)
		set := func(hits uint64, mode wire.Mode, values ...string) wire.Override {
			return wire.Override{Rule: "r", Mode: mode, Values: values, Limits: []wire.OverrideLimit{{Max: hits, WidthMillis: 86_400_000}}}
		}
		client := func(address string, ipv4, ipv6 int) string {
			var memory [16]byte
			return string(clientip.Network([]byte(address), ipv4, ipv6, &memory))
		}
		must.Get(w.backend.By(nil).SetOverrides(t.Context(), "shop",
			set(1000, wire.OfKey, "203.0.113.7"), set(1001, wire.OfKey, "gold", "2001:db8:1:2::7"),
			set(2000, wire.OfKeys, "/203.0.112.0/22"), set(2001, wire.OfKeys, "=gold", "/2001:db8::/33"), set(2002, wire.OfKeys, "/58.58.0.0/16")))(t)
		<-time.After(defaultSyncRate)
		for _, test := range []struct {
			address      string
			ipv4, ipv6   int
			alone, plans uint64 // the limits of the address alone, and behind "gold"
		}{
			{"203.0.113.7", 32, 64, 1000, 5000}, {"203.0.113.8", 32, 64, 2000, 5000}, {"203.0.113.7", 24, 64, 2000, 5000}, {"203.0.116.1", 32, 64, 5000, 5000},
			{"2001:db8:1:2::7", 32, 64, 5000, 1001}, {"2001:db8:1:2::7", 32, 128, 5000, 1001}, {"2001:db8:1:2::8", 32, 64, 5000, 1001},
			{"2001:db8:1:2::8", 32, 128, 5000, 2001}, {"2001:db8:1:3::7", 32, 64, 5000, 2001}, {"2001:db8:8000::7", 32, 64, 5000, 5000},
			{"58.58.49.50", 32, 64, 2002, 5000}, // its bytes are the text ::12
		} {
			part := client(test.address, test.ipv4, test.ipv6)
			must.Equal(t, decide(t, l, 1, part).Limit.Quota(), test.alone, "%+v: a limit of", test)
			must.Equal(t, decide(t, l, 1, "gold", part).Limit.Quota(), test.plans, "%+v: with a plan, a limit of", test)
		}
		must.Equal(t, decide(t, l, 1, "203.0.113.7").Limit.Quota(), 1000, "a text has a limit of")
		must.Equal(t, decide(t, l, 1, "gold", "2001:db8:1:2::7").Limit.Quota(), 1001, "a text has a limit of")
		<-time.After(defaultSyncRate)
		if known, err := w.backend.Overrides(t.Context(), "shop"); err != nil || known.Knowing != 1 || known.Unfitting != 0 {
			t.Errorf("known: %+v, %v", known, err)
		}
	})
}

// A change in a list of megabytes is told without the rest of the list.
func TestChangeOfALongList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		counted := &counting{Backend: w}
		l := daily(t, counted)
		list := make([]wire.Override, 30_000)
		for i := range list {
			list[i] = wire.Override{Rule: "r", Values: []string{fmt.Sprintf("user-%030d", i)}, Limits: []wire.OverrideLimit{{Max: uint64(i + 10), WidthMillis: 86_400_000}}}
		}
		size := int64(len(wire.List(list)))
		set := func(least, most int64, set ...wire.Override) {
			t.Helper()
			before := counted.bytes.Load()
			must.Get(w.backend.By(nil).SetOverrides(t.Context(), "shop", set...))(t)
			<-time.After(5 * defaultSyncRate)
			for _, o := range set[max(0, len(set)-3):] {
				must.Equal(t, decide(t, l, 1, o.Values...).Limit.Quota(), o.Limits[0].Max, "%s has a limit of", o.Values)
			}
			must.Between(t, counted.bytes.Load()-before, least, most, "bytes of answers for a change of %d; the list has %d", len(set), size)
		}
		set(size, 2*size, list...)
		for i := range 5 {
			list[i*5000].Limits[0].Max = 7
			set(1, 2000, list[i*5000])
		}
	})
}
