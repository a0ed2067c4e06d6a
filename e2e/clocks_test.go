package e2e

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/must"
)

// Nodes whose clocks are wrong by twenty minutes use the same windows of a quarter of an hour as
// the other nodes and the backend: they count together, and tell clients the same end.
func TestClocksThatAreOff(t *testing.T) {
	onEachByNight(t, 3, func(t *testing.T, d driver) {
		for _, rate := range []string{"0", "0.02"} {
			t.Run("sync_rate "+rate, func(t *testing.T) {
				d.beside(t)
				// If a window ends meanwhile, try again in the next.
				for range 3 {
					if inOneWindow(t, d, rate) {
						return
					}
				}
				t.Error("three windows have ended during the test")
			})
		}
	})
}

// inOneWindow reports whether no window ended meanwhile.
func inOneWindow(t *testing.T, d driver, rate string) bool {
	const width, limit, requests = 15 * time.Minute, 12, 36
	backend, offsets := serve(t, "memory"), []time.Duration{0, 20 * time.Minute, -20 * time.Minute}
	var addresses []string
	for _, offset := range offsets {
		addresses = append(addresses, d.node(t, nodeConfig{
			backend: backend, ahead: offset,
			configuration: `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": ` + rate + `, "x_ratelimit_reset": "epoch", ` +
				perUser(`{"limit": 12, "window": "15m", "algorithm": "fixed_window"}`)[1:],
		}).url())
	}
	start := time.Now().Truncate(width)
	end, f := fmt.Sprint(start.Add(width).Unix()), newTraffic(1, addresses...)
	var wrong []string
	for i := range requests {
		status, header, err := f.ask(t, client(t), i%len(offsets), "ann") // each client connects to the next worker
		must.OK(t, err)
		if reset := header.Get("x-ratelimit-reset"); reset != end {
			wrong = append(wrong, fmt.Sprintf("the clock is %v off: status %d, the window ends at %s, want %s", offsets[i%len(offsets)], status, reset, end))
		}
	}
	// The backend forgets the hits of a window that has ended.
	ended, counts := func() bool { return !time.Now().Truncate(width).Equal(start) }, int64(0)
	if !pushed.until(t, func() bool {
		counts = counted(t, backend, "default")
		return counts == f.total() || ended()
	}) {
		t.Fatalf("the backend has counted %d hits, want %d", counts, f.total())
	}
	var starts []time.Time // of windows with hits
	lines, _ := listed(t, backend, "default")
	for _, line := range lines {
		for _, w := range line.Windows {
			if w.Hits != 0 {
				starts = append(starts, w.Start)
			}
		}
	}
	if ended() {
		return false
	}
	for _, w := range wrong {
		t.Error(w)
	}
	if n := f.total(); n > limit || n == 0 || rate == "0" && n != limit {
		t.Errorf("admitted %d of %d, want %d", n, requests, limit)
	}
	if len(starts) != 1 || !starts[0].Equal(start) {
		t.Errorf("the backend has windows that start at %v, want %v", starts, start)
	}
	return true
}
