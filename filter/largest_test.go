package filter_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// The largest configurations by which the backend decides every request: all rules match, the
// backend takes the push, and the plugin takes its answer. The configuration's tests show that one
// limit more is refused.
func TestLargestTakes(t *testing.T) {
	for _, test := range []struct {
		name   string
		limits int
		limit  string
		had    int // hits, each at a time of its own
		passes int
		answer int // bytes of the largest, at least
	}{
		{"as many limits as a take has rooms", 1024, `{"limit": 5, "window": "1h", "algorithm": "fixed_window"}`, 0, 5, 5 << 10},
		{"token buckets", 1024, `{"limit": 5, "window": "1h", "algorithm": "token_bucket", "burst": 3}`, 0, 3, 10 << 10},
		{"sub-buckets", 810, `{"limit": 64, "window": "6400ms", "precision": "100ms"}`, 59, 5, 90 << 10},
		{"logs", 103, `{"limit": 505, "window": "1m", "algorithm": "sliding_log"}`, 500, 5, 300 << 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newProxy(t)
			counters := memory.New(memory.Options{Now: func() time.Time { return time.Unix(0, p.now) }})
			handler := server.Handler(counters, server.Options{})
			v := p.start(manyLimits(test.limits, test.limit))
			p.now += int64(test.had) * second / 10
			v.had(counters, test.had)
			largest := 0
			v.settle = func(v *fakeVM) {
				for _, c := range v.dispatched() {
					r := httptest.NewRequest(http.MethodPost, wire.PushPath, bytes.NewReader(c.body))
					r.Header.Set("Content-Type", wire.ContentType)
					answer := httptest.NewRecorder()
					handler.ServeHTTP(answer, r)
					must.Equal(t, answer.Code, http.StatusOK, "the backend's status: %s", answer.Body)
					largest = max(largest, answer.Body.Len())
					v.answer(c, answer.Code, answer.Body.Bytes())
				}
			}
			v.tick()
			v.settle(v)
			passed := 0
			for range 2 * test.passes {
				if v.send() {
					passed++
				}
				p.now += second / 1000
			}
			must.Equal(t, passed, test.passes, "passed")
			must.Equal(t, v.count("decided_alone_total"), 0, "requests were decided alone")
			must.Between(t, largest, test.answer, wire.MaxAnswer, "bytes of the largest answer")
		})
	}
}

// had has a store count hits for all limits of rules without a key, the newest of them now.
func (v *fakeVM) had(counters store.Store, hits int) {
	v.t.Helper()
	for i := 0; i < len(v.plugin.Rules()) && hits > 0; i++ {
		push := wire.Push{Namespace: "default", Sender: 1, Sequence: uint64(i + 1), Floor: uint64(i + 1)}
		for _, l := range v.plugin.Rules()[i].Limits {
			item := wire.Item{LimitCounter: wire.LimitCounter{
				ID: new(counter.Identities).Of(v.plugin.Rules()[i].Prefix), Kind: uint8(l.Kind), Ordinal: l.Ordinal,
				WidthMillis: uint64(l.Width) / 1e6, Precision: uint64(l.Precision),
			}, Limit: l.Max, Newest: uint64(v.now / l.Precision)}
			for j := range hits {
				item.Hits, item.Ages = append(item.Hits, 1), append(item.Ages, uint64(int64(j)*second/10/l.Precision))
			}
			push.Items = append(push.Items, item)
		}
		must.Get(counters.Push(v.t.Context(), &push, 1))(v.t)
	}
}

// manyLimits is a configuration of rules with so many limits that all requests match.
func manyLimits(count int, limit string) string {
	var rules []string
	for ; count > 0; count -= 8 {
		limits := strings.Repeat(", "+limit, min(count, 8))[2:]
		rules = append(rules, fmt.Sprintf(`{"name": "r%d", "limits": [%s]}`, len(rules), limits))
	}
	return synced("0", strings.Join(rules, ", "))
}
