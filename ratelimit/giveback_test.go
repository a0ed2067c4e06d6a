package ratelimit

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestGiveBack(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	n, err := NewNamespace(Options{Name: "n", Now: func() time.Time { return now }, Rules: []Rule{
		{Name: "window", Limits: []Limit{FixedWindow(10, time.Minute)}},
		{Name: "bucket", Limits: []Limit{TokenBucket(10, time.Minute, 10)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []string{"window", "bucket"} {
		l, err := n.Limiter(rule)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			take, back, left uint64
		}{
			{7, 4, 7},
			{5, 0, 2},
			// No more than was counted.
			{0, 100, 10},
			{0, 1, 10},
			{10, 3, 3},
		} {
			if _, err := l.Decide(t.Context(), Key{"ann"}, step.take); err != nil {
				t.Fatal(err)
			}
			if err := l.GiveBack(t.Context(), Key{"ann"}, step.back); err != nil {
				t.Fatal(err)
			}
			if d, err := l.Decide(t.Context(), Key{"ann"}, 0); err != nil || d.Remaining != step.left {
				t.Errorf("%s: %+v leaves %d, %v", rule, step, d.Remaining, err)
			}
		}
	}
	l, _ := n.Limiter("window")
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.GiveBack(t.Context(), nil, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A node gives back hits that others have counted, also those that it has not heard of, and each node
// gets them.
func TestGiveBackOfOthers(t *testing.T) {
	t.Parallel()
	for kind, l := range kinds(100) {
		for _, exact := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				var nodes [2]*Limiter
				for i := range nodes {
					nodes[i] = limiter(t, w.node(t, Options{Rules: rule(l), Exact: exact}), "r")
				}
				want := func(what string, node int, cost uint64, allowed bool) {
					t.Helper()
					if d := decide(t, nodes[node], cost, "k"); d.Allowed != allowed {
						t.Errorf("%s, exact %v, %s: %d hits of node %d: allowed %v, %d left", kind, exact, what, cost, node, d.Allowed, d.Remaining)
					}
					pause(time.Millisecond)
				}
				want("at first", 1, 10, true)
				want("at first", 0, 45, true)
				want("at first", 0, 45, true)
				want("full", 0, 1, false)
				if err := nodes[1].GiveBack(t.Context(), Key{"k"}, 60); err != nil {
					t.Fatal(err)
				}
				want("60 are back", 1, 30, true)
				pause(2 * time.Second)
				want("30 are left", 0, 30, true)
				pause(2 * time.Second)
				want("none is left", 0, 1, false)
				want("none is left", 1, 1, false)
			})
		}
	}
}
