package simulate

import (
	"testing"
	"time"

	"weir/internal/must"
)

// Whatever time a log spans, its timeline has all requests, each in a step that covers its time.
func TestTimeline(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	for _, test := range []struct {
		every time.Duration
		n     int
		steps int
		width time.Duration
	}{
		{0, 10, 1, time.Second},
		{time.Second, 120, 120, time.Second},
		{time.Second, 121, 61, 2 * time.Second},
		{time.Minute, 1440, 48, 30 * time.Minute},
		{time.Hour, 24, 47, 30 * time.Minute},
		{24 * time.Hour, 3, 97, 30 * time.Minute},
		{240 * time.Hour, 30, 73, 4 * 24 * time.Hour},
	} {
		var line timeline
		for i := range test.n {
			line.add(start+int64(i)*int64(test.every), i%3 == 0)
		}
		line.add(start-int64(time.Second), false)
		steps := line.report()
		must.Equal(t, len(steps), test.steps, "%d requests every %v: steps", test.n, test.every)
		must.Equal(t, steps[0].Seconds, test.width.Seconds(), "%d requests every %v: seconds of a step", test.n, test.every)
		want := make([]Step, len(steps))
		copy(want, steps)
		for i := range want {
			want[i].Requests, want[i].Refused = 0, 0
		}
		want[0].Requests++
		for i := range test.n {
			s := &want[int64(i)*int64(test.every)/int64(test.width)]
			if s.Requests++; i%3 == 0 {
				s.Refused++
			}
		}
		for i := range want {
			must.Equal(t, steps[i], want[i], "%d requests every %v: step %d is", test.n, test.every, i)
		}
	}
}
