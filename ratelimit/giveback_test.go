package ratelimit

import (
	"errors"
	"testing"
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
