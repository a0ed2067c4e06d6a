package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"
)

// TestVectors runs window/testdata/vectors.json, which package window's tests use too, through the
// plugin in a proxy: over two connections in turns, with the test's clock.
func TestVectors(t *testing.T) {
	onEach(t, 1, runVectors)
}

func runVectors(t *testing.T, d driver) {
	var vectors []struct {
		Name   string            `json:"name"`
		Limits []json.RawMessage `json:"limits"`
		// Nanoseconds means that a decision depends on parts of a microsecond.
		Nanoseconds bool `json:"nanoseconds"`
		Steps       []struct {
			At         string   `json:"at"`
			Key        string   `json:"key"`
			Cost       uint64   `json:"cost"`
			Allowed    bool     `json:"allowed"`
			Remaining  []uint64 `json:"remaining"`
			Next       []int64  `json:"t"`
			Reset      int64    `json:"reset"`
			RetryAfter int64    `json:"retry_after"`
		} `json:"steps"`
	}
	b, err := os.ReadFile("../window/testdata/vectors.json")
	if err == nil {
		err = json.Unmarshal(b, &vectors)
	}
	if err != nil || len(vectors) == 0 {
		t.Fatalf("%d vectors, %v", len(vectors), err)
	}
	clock := newClock()
	proxy := d.node(t, nodeConfig{clock: clock, configuration: perUser(`{"limit": 1, "window": "1s"}`)})
	for i, vector := range vectors {
		if vector.Nanoseconds && !d.nanoseconds() {
			continue
		}
		t.Run(vector.Name, func(t *testing.T) {
			limits, err := json.Marshal(vector.Limits)
			if err != nil {
				t.Fatal(err)
			}
			// Each vector has its own counters.
			if err := proxy.configure(fmt.Sprintf(`{"namespace": "v%d", "rules": [{"name": "r", "key": [{"header": "x-key"}], "cost": {"header": "x-cost", "least": 0}, "limits": %s}]}`,
				i, limits)); err != nil {
				t.Fatal(err)
			}
			clients := []*http.Client{client(t), client(t)}
			for i, step := range vector.Steps {
				at, err := time.ParseDuration(step.At)
				if err != nil {
					t.Fatal(err)
				}
				clock.set(t, monday.Add(at))
				r := ask(t, clients[i%2], proxy.url(), "x-key", step.Key, "x-cost", fmt.Sprint(step.Cost))
				if (r.status == http.StatusOK) != step.Allowed {
					t.Errorf("step %d: got status %d", i, r.status)
				}
				state := ""
				for j := range step.Remaining {
					name := `"r"`
					if j > 0 {
						name = fmt.Sprintf(`, "r.%d"`, j+1)
					}
					state += fmt.Sprintf("%s;r=%d;t=%d", name, step.Remaining[j], step.Next[j])
				}
				retry := ""
				if step.RetryAfter >= 0 {
					retry = fmt.Sprint(step.RetryAfter)
				}
				r.want(t, fmt.Sprintf("ratelimit: %s\nx-ratelimit-reset: %d\nretry-after: %s", state, step.Reset, retry))
			}
		})
	}
}
