package filter_test

import (
	"testing"

	"weir/internal/engine"
	"weir/internal/must"
)

// Each metric of the namespace says what it is called for, and only what has been added since.
func TestMetricsOfTheEngine(t *testing.T) {
	v := newProxy(t).start(oneRule(`{"limit": 5, "window": "1h"}`))
	for _, times := range []uint64{1, 2} {
		v.plugin.Node().Tallies = engine.Tallies{
			LostRaces: 1 * times, GivenUp: 2 * times, Lost: 3 * times, Evicted: 4 * times, Corrupt: 5 * times, Pushed: 6 * times,
			Failed: 7 * times, Waited: 8 * times, Alone: 9 * times, Crowded: 10 * times,
		}
		for i, name := range []string{
			"lost_races", "given_up", "lost_hits", "evicted_counters", "corrupt_entries", "pushed_hits", "failed_pushes", "waited_requests",
			"decided_alone", "crowded_requests",
		} {
			must.Equal(t, v.count(name+"_total"), uint64(i+1)*times, "%s", name)
		}
	}
}
