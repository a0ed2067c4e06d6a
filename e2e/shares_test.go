package e2e

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/host"
	"weir/internal/nightly"
)

// A flood of one rule's keys does not reset another rule's counters, whether each of its keys is at
// its limit, or above it because rejected hits count.
func TestFloodOfAnotherRule(t *testing.T) {
	onWazeroAlone(t, floodOfAnotherRule)
}

func floodOfAnotherRule(t *testing.T) {
	const limit, each, floods = 5, 4, 6
	keys := nightly.Or(400_000, 40_000)
	for _, test := range []struct {
		name, rejected string
		hits           int // for each key of the flood
	}{
		{"full keys", "false", 1},
		{"keys above their limit", "true", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			w := newWorker(t, host.NewProcess(host.ProcessConfig{Clock: clock.now}), fmt.Sprintf(`{"rules": [
				{"name": "login", "match": {"methods": ["POST"]}, "key": ["client_ip"], "limits": [{"limit": %d, "window": "1h"}]},
				{"name": "per-user", "match": {"methods": ["GET"]}, "key": [{"header": "x-user"}], "count_rejected": %s,
					"limits": [{"limit": 1, "window": "1h"}]}]}`, limit, test.rejected))
			sent, passed, flooded := 0, 0, 0
			for flood := range floods {
				for range each {
					if sent++; w.send(":method", "POST").passed {
						passed++
					}
				}
				// The first half fills the table.
				for end := keys/2 + keys/2*flood/(floods-1); flooded < end; flooded++ {
					for range test.hits {
						w.send("x-user", fmt.Sprint("random-", flooded))
					}
				}
				clock.advance(t, 2*time.Second) // past what the VM remembers of refusals
			}
			t.Logf("after %d keys of another rule %d of %d requests passed, of a limit of %d", keys, passed, sent, limit)
			if passed != limit {
				t.Errorf("%d of %d requests passed, want %d", passed, sent, limit)
			}
		})
	}
}
