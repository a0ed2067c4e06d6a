package e2e

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/envoytest"
	"weir/internal/nightly"
)

// stay is the period in which a request was decided: between its arrival and its answer.
type stay struct{ from, to time.Time }

// overdrawn returns the least by which admitted requests have overdrawn a bucket, for any moments
// of their decisions in their stays.
func overdrawn(passed []stay, burst, perSecond float64) (most float64) {
	slices.SortFunc(passed, func(a, b stay) int { return a.to.Compare(b.to) })
	for _, first := range passed {
		within := 0.0
		for _, s := range passed {
			if !s.from.Before(first.from) {
				within++
				most = max(most, within-burst-1-perSecond*s.to.Sub(first.from).Seconds())
			}
		}
	}
	return most
}

// Three of ten callouts are lost, so tokens of requests that were not admitted go back late. No
// token exists twice.
func TestTokensGoBackLate(t *testing.T) {
	onEachByNight(t, 2, tokensGoBackLate)
}

func tokensGoBackLate(t *testing.T, d driver) {
	const burst, perSecond = 50, 1000
	configuration := `{"backend": {"cluster": "weir"}, "sync_rate": 0, "on_backend_failure": "deny", ` +
		perUser(`{"limit": 1000, "window": "1s", "algorithm": "token_bucket", "burst": 50}`)[1:]
	transport := &faults{random: rand.New(rand.NewPCG(5, 6)), share: 0.3}
	_, addresses := nodes(t, d, 2, nodeConfig{configuration: configuration, backend: through(t, transport, serve(t, "memory"))})
	var mu sync.Mutex
	var passed []stay
	var enough atomic.Bool
	var group sync.WaitGroup
	for worker := range 64 {
		group.Go(func() {
			for !enough.Load() {
				s := stay{from: time.Now()}
				status, _, err := get(envoytest.Client, addresses[worker%2], "ann")
				if s.to = time.Now(); err != nil {
					t.Error(err)
					enough.Store(true)
				}
				if status == http.StatusOK {
					mu.Lock()
					passed = append(passed, s)
					enough.Store(len(passed) > nightly.Or(2000, 1000))
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	if by := overdrawn(passed, burst, perSecond); by > 0 {
		t.Errorf("%d passed, and the bucket of %d was overdrawn by %.1f", len(passed), burst, by)
	}
}
