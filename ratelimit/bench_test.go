package ratelimit

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkHotKey lets goroutines decide for the same key: a single goroutine and eight take turns
// of some fifty milliseconds. The metrics are the medians of the turns, and of their ratios.
func BenchmarkHotKey(b *testing.B) {
	l := benchLimiter(b)
	var one, eight, ratios []float64
	for b.Loop() {
		one, eight = append(one, decideTogether(b, l, 1)), append(eight, decideTogether(b, l, 8))
		ratios = append(ratios, eight[len(eight)-1]/one[len(one)-1])
	}
	median := func(of []float64) float64 { return slices.Sorted(slices.Values(of))[len(of)/2] }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(one), "decisions/s-of-1-goroutine")
	b.ReportMetric(median(eight), "decisions/s-of-8-goroutines")
	b.ReportMetric(median(ratios), "8-goroutines/1")
}

// benchLimiter returns a limiter that refuses nothing.
func benchLimiter(b *testing.B) *Limiter {
	n, err := NewNamespace(Options{
		Name: "bench", Rules: []Rule{{Name: "r", Limits: []Limit{SlidingWindow(1<<40, time.Minute)}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	l, err := n.Limiter("r")
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// decideTogether lets goroutines make enough decisions together, and returns the decisions per
// second.
func decideTogether(b *testing.B, l *Limiter, goroutines int) (perSecond float64) {
	const enough, batch = 100_000, 50
	var begun atomic.Int64
	var group sync.WaitGroup
	start := time.Now()
	for range goroutines {
		group.Go(func() {
			for begun.Add(batch) <= enough {
				for range batch {
					if d, err := l.Decide(b.Context(), Key{"key"}, 1); err != nil || !d.Allowed {
						b.Error("refused below the limit")
					}
				}
			}
		})
	}
	group.Wait()
	return enough / time.Since(start).Seconds()
}
