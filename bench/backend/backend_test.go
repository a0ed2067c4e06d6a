package main

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/bench/page"
)

// All hits of a workload arrive, and all figures are there.
func TestMemory(t *testing.T) {
	o := &options{rounds: 2, senders: 2, block: time.Millisecond, only: regexp.MustCompile("")}
	var found *subject
	err := page.Hosted(func(t testing.TB) (err error) {
		found, err = stores[0].measure(context.Background(), t, o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range found.workloads {
		if w.name != workloads[i].name || len(w.perSecond) != o.rounds || w.perSecond[0] <= 0 || page.Quantile(w.waits, 0.5) <= 0 || w.ownMicros[0] <= 0 {
			t.Errorf("%+v", w)
		}
		if !strings.Contains(found.String(), "\n| "+w.name+" ") {
			t.Errorf("no line of %s in\n%s", w.name, found)
		}
	}
}

// An interrupted run ends with an error, and not with figures.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := &options{rounds: 1, senders: 1, block: time.Hour, only: regexp.MustCompile("")}
	if err := page.Hosted(func(t testing.TB) error {
		_, err := stores[0].measure(ctx, t, o)
		return err
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
