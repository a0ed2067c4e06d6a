package main

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
)

// All hits of a workload arrive, and all figures are there.
func TestMemory(t *testing.T) {
	o := &options{rounds: 2, senders: 2, block: time.Millisecond, only: regexp.MustCompile("")}
	var found *subject
	err := hosted(func(t testing.TB) (err error) {
		found, err = stores[0].measure(context.Background(), t, o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range found.workloads {
		if w.name != workloads[i].name || len(w.perSecond) != o.rounds || w.perSecond[0] <= 0 || w.wait(0.99) < w.wait(0.5) || w.wait(0.5) <= 0 {
			t.Errorf("%+v", w)
		}
		if c := found.ceilings[i]; c.of != w.name || len(c.perSecond) != o.rounds || c.perSecond[0] <= 0 {
			t.Errorf("%+v", c)
		}
		if !strings.Contains(found.String(), "\n"+w.name+" ") {
			t.Errorf("no line of %s in\n%s", w.name, found)
		}
	}
}

// A host ends everything that it has started, in turn, and reports all failures.
func TestHosted(t *testing.T) {
	var ends []string
	err := hosted(func(t testing.TB) error {
		t.Cleanup(func() { ends = append(ends, "first") })
		t.Cleanup(func() {
			ends = append(ends, "last")
			t.Error("not tidy")
		})
		t.Fatalf("server: %v", errors.New("gone"))
		return errors.New("went on")
	})
	if got := strings.Join(ends, " "); got != "last first" {
		t.Errorf("ended %q", got)
	}
	if err == nil || err.Error() != "server: gone\nnot tidy" {
		t.Errorf("got %v", err)
	}
}

// The parsers find the figures that the stores' benchmarks print, and reject other text.
func TestParse(t *testing.T) {
	for _, test := range []struct {
		parse    func(string) (float64, error)
		out, bad string
		want     float64
	}{
		{parseRedisBenchmark, "\"test\",\"rps\",\"avg_latency_ms\"\n\"HINCRBY key:__rand_int__ 1 1\",\"123456.78\",\"0.5\"\n", "ERR unknown\n", 123456.78},
		{parsePgbench, "latency average = 1.2 ms\ninitial connection time = 9 ms\ntps = 4488.5 (without initial connection time)\n", "tps = ?\n", 4488.5},
	} {
		if got, err := test.parse(test.out); err != nil || got != test.want {
			t.Errorf("got %g, %v of %q", got, err, test.out)
		}
		if _, err := test.parse(test.bad); err == nil {
			t.Errorf("no error of %q", test.bad)
		}
	}
}

// A ratio compares figures of the same round.
func TestRatio(t *testing.T) {
	middle, low, high := ratio([]float64{10, 40, 90, 8}, []float64{100, 200, 300, 40})
	if middle != 0.2 || low != 0.1 || high != 0.3 {
		t.Errorf("got %g, %g to %g", middle, low, high)
	}
}

// An interrupted run ends with an error, and not with figures.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := &options{rounds: 1, senders: 1, block: time.Hour, only: regexp.MustCompile("")}
	if err := hosted(func(t testing.TB) error {
		_, err := stores[0].measure(ctx, t, o)
		return err
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
