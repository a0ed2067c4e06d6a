package engine_test

import (
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/must"
	"weir/internal/wire"
)

// A report tells what came in the last ten seconds or so beside the minute, of rules and of keys, when
// generations turn, too.
func TestReportsTellWhatIsRecent(t *testing.T) {
	t.Parallel()
	w, f := alone(t, second, engine.Options{}, users(fixed(40)))
	// Requests of a user come at so many a second, second by second.
	rate := func(at int) int { return []int{2, 9, 1}[at/25%3] }
	checked, refused := 0, uint64(0)
	for at := range 200 {
		for range rate(at) {
			f.send("ann")
		}
		f.reports = nil
		often(10, w.advance, 100*time.Millisecond)
		for _, body := range f.reports {
			r := must.Get(wire.DecodeReport(body))(t)
			if len(r.Rules) == 0 {
				continue
			}
			p := &r.Rules[0]
			seconds := float64(p.RecentMillis) / 1000
			if seconds < 2 && at > 20 || seconds > 20 {
				t.Errorf("%d s: recent are %.1f s", at, seconds)
			}
			least, most := 0, 0 // what came from a second after it on, or before
			for s := range at + 1 {
				if float64(at-s) < seconds+1 {
					most += rate(s)
				}
				if float64(at-s) < seconds-2 {
					least += rate(s)
				}
			}
			must.Between(t, int(p.Recent.Requests), least, most, "%d s: requests in the last %.1f s", at, seconds)
			if len(p.Used.Keys) != 1 || p.Used.Keys[0].Recent != p.Recent.Hits || p.Recent.Hits != p.Recent.Requests {
				t.Errorf("%d s: %+v", at, p)
			}
			if len(p.Refused.Keys) > 0 && p.Refused.Keys[0].Recent != p.Recent.RefusedHits || p.Recent.RefusedRequests > p.Recent.Requests {
				t.Errorf("%d s: refused %+v", at, p)
			}
			refused += p.Recent.RefusedRequests
			checked++
		}
	}
	must.AtLeast(t, checked, 20, "reports")
	must.Equal(t, refused > 0, true, "requests were refused")
}
