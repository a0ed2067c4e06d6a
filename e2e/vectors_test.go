package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"weir/e2e/host"
)

// TestVectors runs window/testdata/vectors.json, which the algorithms are tested with alone too, through the compiled plugin:
// two workers in turns, on a clock of the test's.
func TestVectors(t *testing.T) {
	t.Parallel()
	var vectors []struct {
		Name   string            `json:"name"`
		Limits []json.RawMessage `json:"limits"`
		Steps  []struct {
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
	for _, vector := range vectors {
		limits, err := json.Marshal(vector.Limits)
		if err != nil {
			t.Fatal(err)
		}
		configuration := fmt.Sprintf(`{"rules": [{"name": "r", "key": [{"header": "x-key"}], "cost": {"header": "x-cost"}, "limits": %s}]}`, limits)
		clock := newClock()
		process := host.NewProcess(host.ProcessConfig{Clock: clock.now})
		workers := []*worker{newWorker(t, process, configuration), newWorker(t, process, configuration)}
		for i, step := range vector.Steps {
			at, err := time.ParseDuration(step.At)
			if err != nil {
				t.Fatal(err)
			}
			clock.nanos.Store(monday.Add(at).UnixNano())
			r := workers[i%2].send("x-key", step.Key, "x-cost", fmt.Sprint(step.Cost))
			if r.passed != step.Allowed {
				t.Errorf("%s\nstep %d: passed %v", vector.Name, i, r.passed)
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
	}
}
