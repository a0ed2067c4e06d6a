package browser

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/playground/lane"
	"weir/ratelimit"
	"weir/ratelimit/limithttp"
)

// hits is how many requests of a trace each algorithm decides.
const hits = 10_000

// TestDecidesAsTheLibrary sends the same requests to the page's lanes, in the browser, and to the
// library behind its middleware. Decisions and header fields are equal.
func TestDecidesAsTheLibrary(t *testing.T) {
	t.Parallel()
	p := open(t, site, desktop)
	const limit, width, buckets = 10, 10 * time.Second, 10
	for i, kind := range lane.Kinds {
		if kind.Holds || kind.Waits {
			continue // requests of the library would have to last
		}
		t.Run(kind.Name, func(t *testing.T) {
			trace := traceOf(uint64(i), limit, width)
			want := library(t, kind.Name, []ratelimit.Limit{
				ratelimit.FixedWindow(limit, width),
				ratelimit.FirstHitWindow(limit, width),
				ratelimit.SlidingWindow(limit, width),
				ratelimit.SlidingBuckets(limit, width, width/buckets),
				ratelimit.SlidingLog(limit, width),
				ratelimit.TokenBucket(limit, width, limit),
			}[i], trace)
			times := must.Get(json.Marshal(trace))(t)
			p.t = t
			got := value[[]string](p, fmt.Sprintf(`(async () => {
				const { load } = await import("./engine.js");
				const engine = await load(await (await fetch("engine.wasm")).arrayBuffer());
				engine.set(%[1]d, %[2]d, %[3]dn, %[4]d);
				return %[5]s.map((now) => {
					const { allowed, headers } = engine.hit(%[1]d, BigInt(now));
					return (allowed ? "200\n" : "429\n") + headers;
				});
			})()`, i, limit, width.Nanoseconds(), buckets, times))
			must.EqualOrEnd(t, len(got), hits, "answers")
			refused := 0
			for j := range got {
				if got[j] != want[j] {
					t.Fatalf("request %d, at %s: the page has\n%s\nthe library\n%s", j, trace[j], got[j], want[j])
				}
				if strings.HasPrefix(got[j], "429") {
					refused++
				}
			}
			// Else the trace would show little.
			must.AtLeast(t, refused, hits/10, "refused of %d", hits)
			must.AtMost(t, refused, hits*9/10, "refused of %d", hits)
		})
	}
}

// traceOf is the times of requests, in Unix nanoseconds as text: bursts, pauses, and times exactly a
// window or a bucket apart.
func traceOf(seed, limit uint64, width time.Duration) []string {
	random := rand.New(rand.NewPCG(seed, 17))
	now := int64(1_767_225_600_000_000_000)
	times := make([]string, hits)
	for i := range times {
		even := int64(width) / int64(limit)
		switch random.IntN(20) {
		case 0:
			now += 2*int64(width) - random.Int64N(int64(width))
		case 1:
			now += int64(width)
		case 2:
			now = (now/even + 1) * even
		case 3:
			now = (now/int64(width)+1)*int64(width) - 1
		case 4, 5, 6, 7, 8, 9: // at the same time
		default:
			now += random.Int64N(even)
		}
		times[i] = fmt.Sprint(now)
	}
	return times
}

// library returns the library's answers to a trace: the status, and the fields, one to a line.
func library(t *testing.T, name string, limit ratelimit.Limit, trace []string) []string {
	t.Helper()
	var now time.Time
	namespace := must.Get(ratelimit.NewNamespace(ratelimit.Options{
		Name: "playground", Now: func() time.Time { return now }, Rules: []ratelimit.Rule{{Name: name, Limits: []ratelimit.Limit{limit}}},
	}))(t)
	limiter := must.Get(namespace.Limiter(name))(t)
	handler := limithttp.Middleware(func(*http.Request) []ratelimit.Demand {
		return []ratelimit.Demand{limiter.Demand(nil, 1)}
	}, limithttp.Options{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	answers := make([]string, len(trace))
	for i, at := range trace {
		var nanos int64
		must.Get(fmt.Sscan(at, &nanos))(t)
		now = time.Unix(0, nanos)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		answers[i] = fmt.Sprint(w.Code, "\n")
		// In the order in which they are sent.
		for _, field := range []string{"ratelimit-policy", "ratelimit", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after", "x-envoy-ratelimited"} {
			for _, value := range w.Header().Values(field) {
				answers[i] += field + ": " + value + "\n"
			}
		}
		for field := range w.Header() {
			if !slices.Contains([]string{"Content-Type", "Content-Length"}, field) && !strings.Contains(answers[i], strings.ToLower(field)+": ") {
				t.Fatalf("the library sends %s too", field)
			}
		}
	}
	return answers
}
