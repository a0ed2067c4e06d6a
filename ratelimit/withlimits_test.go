package ratelimit

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/must"
)

func TestWithLimits(t *testing.T) {
	t.Parallel()
	clock := newFakeClock()
	n := define(t, clock, Options{Rules: []Rule{{Name: "r", Limits: []Limit{FixedWindow(2, time.Minute)}}}})
	free := limiter(t, n, "r")
	gold := must.Get(free.WithLimits(FixedWindow(5, time.Minute)))(t)
	// All limits use the same counter.
	for i, want := range []struct {
		of        *Limiter
		allowed   bool
		remaining uint64
	}{
		{free, true, 1}, {free, true, 0}, {free, false, 0}, {gold, true, 2}, {gold, true, 1}, {free, false, 0}, {gold, true, 0}, {gold, false, 0},
	} {
		if d := decide(t, want.of, 1, "ann"); d.Allowed != want.allowed || d.Remaining != want.remaining {
			t.Errorf("decision %d: %v with %d remaining, want %v with %d", i, d.Allowed, d.Remaining, want.allowed, want.remaining)
		}
	}
	if limits := gold.Limits(); len(limits) != 1 || limits[0].Quota() != 5 {
		t.Errorf("the limits are %v", limits)
	}
	_, err := Decide(t.Context(), free.Demand(Key{"ann"}, 1), gold.Demand(Key{"ann"}, 1))
	must.Contains(t, fmt.Sprint(err), `want a single demand of rule "r"`, "a key of a rule is demanded twice")
}

func TestWithOtherShapes(t *testing.T) {
	t.Parallel()
	berlin := func(limit uint64) Limit { return CalendarWindow(limit, Month, "Europe/Berlin", Anchor{Day: 15}) }
	n := define(t, newFakeClock(), Options{Rules: []Rule{
		{Name: "fixed", Limits: []Limit{FixedWindow(2, time.Minute)}},
		{Name: "log", Limits: []Limit{SlidingLog(10, time.Minute)}},
		{Name: "calendar", Limits: []Limit{berlin(10)}},
	}})
	for rule, cases := range map[string][]struct {
		limits []Limit
		want   string
	}{
		"fixed": {
			{nil, "limits: want 1 to 8"},
			{[]Limit{FixedWindow(2, time.Minute), FixedWindow(2, time.Hour)}, "limits: want 1, got 2"},
			{[]Limit{FixedWindow(2, time.Hour)}, "limits[0]: want the algorithm and window of the rule's own limit"},
			{[]Limit{SlidingWindow(2, time.Minute)}, "limits[0]: want the algorithm and window of the rule's own limit"},
			{[]Limit{FixedWindow(1<<60, time.Minute)}, "limits[0].limit: want 0 to"},
			{[]Limit{FixedWindow(0, time.Minute)}, "<nil>"},
		},
		"log": {
			{[]Limit{SlidingLog(11, time.Minute)}, "limits[0]: want a sliding log of at most the rule's 10"},
			{[]Limit{SlidingLog(9, time.Minute)}, "<nil>"},
		},
		"calendar": {
			{[]Limit{berlin(20)}, "<nil>"},
			{[]Limit{CalendarWindow(20, Month, "Europe/Berlin", Anchor{})}, "limits[0]: want the algorithm and window of the rule's own limit"},
			{[]Limit{CalendarWindow(20, Month, "America/New_York", Anchor{Day: 15})}, "limits[0]: want the algorithm and window of the rule's own limit"},
		},
	} {
		for _, c := range cases {
			_, err := limiter(t, n, rule).WithLimits(c.limits...)
			must.Contains(t, fmt.Sprint(err), c.want, "%s", rule)
		}
	}
}
