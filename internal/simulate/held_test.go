package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
)

// Requests hold their places for as long as the log says: the plugin, and each limit, refuse as a
// count of the requests that are there says.
func TestPlacesOfLogs(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var all []request
	at := int64(1_767_366_000_000)
	for range 400 {
		at += 1 + random.Int64N(40) // or the order of lines would count
		lasts := random.Int64N(400)
		if random.IntN(40) == 0 {
			lasts = 20_000 + random.Int64N(25_000) // which a proxy has to renew
		}
		all = append(all, request{at, lasts, []string{"/a", "/b"}[random.IntN(2)]})
	}
	refused := func(limit int) (n uint64) {
		held := map[string][]int64{}
		for _, r := range all {
			held[r.path] = slices.DeleteFunc(held[r.path], func(end int64) bool { return end <= r.at })
			if len(held[r.path]) >= limit {
				n++
			} else {
				held[r.path] = append(held[r.path], r.at+r.lasts)
			}
		}
		return n
	}
	utc := func(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
	for name, line := range map[string]func(r request) (ends int64, line string){
		"envoy": func(r request) (int64, string) {
			return r.at, fmt.Sprintf(`[%s] "GET %s HTTP/1.1" 200 - 0 0 %d 1 "-" "-" "-" "a" "1.1.1.1:1"`, utc(r.at), r.path, r.lasts)
		},
		"nginx": func(r request) (int64, string) {
			return r.at + r.lasts, fmt.Sprintf(`{"time": "%s", "path": "%s", "request_time": "%d.%03d"}`, utc(r.at+r.lasts), r.path, r.lasts/1000, r.lasts%1000)
		},
	} {
		type written struct {
			ends int64
			line string
		}
		var lines []written
		for _, r := range all {
			ends, line := line(r)
			lines = append(lines, written{ends, line})
		}
		slices.SortStableFunc(lines, func(a, b written) int { return int(a.ends - b.ends) })
		var log strings.Builder
		for _, l := range lines {
			log.WriteString(l.line + "\n")
		}
		r := simulated(t, `{"rules": [{"name": "f", "key": ["path"], "limits": [{"limit": 4, "algorithm": "in_flight"}]},
			{"name": "w", "limits": [{"limit": 1000000, "window": "1m"}], "charge_when": {"status": ["401"]}}]}`, strings.NewReader(log.String()))
		if want := refused(4); r.Rules[0].RefusedByRule != want || want == 0 {
			t.Errorf("%s: %d were refused, want %d", name, r.Rules[0].RefusedByRule, want)
		}
		limit := r.Rules[0].Limits[0]
		if limit.Window != "" || len(limit.Algorithms) != 1 || !strings.HasPrefix(limit.String(), "4, in_flight") {
			t.Errorf("%s: %+v", name, limit.LimitSpec)
		}
		for _, p := range limit.Curve {
			must.Equal(t, p.Refused, refused(int(p.Limit)), "%s: a limit of %d refuses", name, p.Limit)
		}
		if least := *limit.Least[0].Limit; refused(int(least)) > uint64(len(all)/100) || refused(int(least)-1) <= uint64(len(all)/100) {
			t.Errorf("%s: the least limit is %d", name, least)
		}
	}
}

// A rule that reads bodies is left out, as no log has them.
func TestBodiesAreMissing(t *testing.T) {
	for _, rule := range []string{
		`"key": [{"request_json": "model"}]`, `"match": {"request_json": {"model": {"present": true}}}`, `"except": [{"request_json": {"model": {"present": true}}}]`,
		`"overrides": {"by": {"request_json": "model"}, "values": {"a": [{"limit": 2, "window": "1s"}]}}`,
	} {
		r := simulated(t, `{"rules": [{"name": "r", "limits": [{"limit": 1, "window": "1s"}], `+rule+`}, `+perClient+`]}`, lines("10.0.0.1", "10.0.0.1"))
		if missing := r.Rules[0].Missing; !slices.Contains(missing, "property request.body") || r.Rules[0].Requests != 0 {
			t.Errorf("%s: %+v", rule, r.Rules[0])
		}
	}
}
