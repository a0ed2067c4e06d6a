package filter_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"weir/internal/model"
	"weir/internal/proxywasm"
)

// modelRequests is the number that a test run under the race detector has the time for.
var (
	modelRequests = flag.Int("requests", 100_000, "requests to compare with the model's decisions and headers")
	modelFrom     = flag.Int("models-from", 0, "number of the first world of them")
)

// TestAgainstModel compares what two workers of a proxy answer, whether a request passes and all
// headers, with the model: at times and with costs that are chosen to hurt. A world is a
// configuration; its number is all that it takes to repeat it.
func TestAgainstModel(t *testing.T) {
	const requestsPerWorld = 400
	passed, refused := 0, 0
	for number := *modelFrom; (number-*modelFrom)*requestsPerWorld < *modelRequests; number++ {
		w := newModelWorld(t, uint64(number))
		for i := range requestsPerWorld {
			got, want := w.request()
			if got != want {
				t.Fatalf("world %d, request %d, %s\ngot  %s\nwant %s\n%s\nagain, as which races are lost is by chance: go test ./filter -run TestAgainstModel -count 100 -args -models-from %d -requests %d",
					number, i, w.asked, got, want, w.configuration, number, requestsPerWorld)
			}
			if want.refusedBy == "" {
				passed++
			} else {
				refused++
			}
			w.pause()
		}
	}
	t.Logf("%d requests passed, %d were refused", passed, refused)
}

// modelWorld is a proxy with two workers, and what the model knows of its counters.
type modelWorld struct {
	t             *testing.T
	random        *rand.Rand
	proxy         *fakeProxy
	workers       [2]*fakeVM
	configuration string
	rules         []modelRule
	unit          string
	open          []openStream // whose responses are still to come
	asked         string       // what the last request was
}

type modelRule struct {
	name          string
	prefix        string // of the paths that it is for
	keyed         bool
	cost          int // -1 if the request says it
	least, most   uint64
	countRejected bool
	costsLater    bool
	limits        []model.Limit
	counters      map[string][]*model.Counter
}

// openStream is a request that has passed.
type openStream struct {
	worker  *fakeVM
	stream  *stream
	matched []int
	user    string
	want    modelAnswer
}

// modelAnswer is an answer as a client sees it. Headers are "name: value", one a line.
type modelAnswer struct {
	refusedBy string
	headers   string
}

func (a modelAnswer) String() string {
	if a.refusedBy == "" {
		return "passed\n" + a.headers
	}
	return "refused by " + a.refusedBy + "\n" + a.headers
}

func pick[T any](random *rand.Rand, of ...T) T { return of[random.IntN(len(of))] }

func newModelWorld(t *testing.T, number uint64) *modelWorld {
	w := &modelWorld{t: t, random: rand.New(rand.NewPCG(number, 5)), proxy: newProxy(t)}
	w.proxy.calls = nil
	w.unit = pick(w.random, "seconds", "epoch", "milliseconds")
	var rules []string
	for i := range 1 + w.random.IntN(3) {
		rule, text := w.newRule(fmt.Sprint("rule-", i))
		w.rules, rules = append(w.rules, rule), append(rules, text)
	}
	w.configuration = fmt.Sprintf(`{"x_ratelimit_reset": %q, "rules": [%s]}`, w.unit, strings.Join(rules, ",\n"))
	for i := range w.workers {
		w.workers[i] = w.proxy.start(w.configuration)
	}
	w.proxy.now += w.random.Int64N(3600 * second)
	return w
}

func (w *modelWorld) newRule(name string) (r modelRule, text string) {
	r = modelRule{name: name, cost: -1, counters: map[string][]*model.Counter{}}
	text = fmt.Sprintf(`{"name": %q`, name)
	if w.random.IntN(4) == 0 {
		r.prefix = "/api"
		text += `, "match": {"path": {"prefix": "/api"}}`
	}
	if r.keyed = w.random.IntN(3) > 0; r.keyed {
		text += `, "key": [{"header": "x-user"}]`
	}
	if w.random.IntN(4) == 0 {
		r.cost = w.random.IntN(4)
		text += fmt.Sprint(`, "cost": `, r.cost)
	} else {
		r.least, r.most = 1, math.MaxUint64
		switch w.random.IntN(3) {
		case 0:
			r.least = 0
			text += `, "cost": {"header": "x-cost", "least": 0}`
		case 1:
			r.least = w.random.Uint64N(3)
			r.most = max(1, r.least) + w.random.Uint64N(5)
			text += fmt.Sprintf(`, "cost": {"most": %d, "least": %d, "header": "x-cost"}`, r.most, r.least)
		default:
			text += `, "cost": {"header": "x-cost"}`
		}
	}
	if r.countRejected = w.random.IntN(5) == 0; r.countRejected {
		text += `, "count_rejected": true`
	}
	if r.costsLater = w.random.IntN(5) == 0; r.costsLater {
		text += `, "cost_on_response": {"response_header": "x-later"}`
	}
	var limits []string
	for range 1 + w.random.IntN(3) {
		limit, text := w.newLimit()
		r.limits, limits = append(r.limits, limit), append(limits, text)
	}
	return r, text + `, "limits": [` + strings.Join(limits, ", ") + `]}`
}

func (w *modelWorld) newLimit() (l model.Limit, text string) {
	const millisecond = second / 1000
	millis := pick[int64](w.random, 1, 7, 100, 1000, 1500, 2000, 7000, 60_000, 60_000, 3_600_000)
	l = model.Limit{Max: pick[uint64](w.random, 1, 1, 2, 3, 4, 5, 7, 10, 30, 100), Window: millis * millisecond}
	if w.random.IntN(30) == 0 {
		l.Max = 0
	}
	text = fmt.Sprintf(`{"limit": %d, "window": "%dms", "algorithm": `, l.Max, millis)
	switch w.random.IntN(7) {
	case 0:
		l.Algorithm = model.FixedWindow
		text += `"fixed_window"`
	case 1:
		l.Algorithm = model.FirstHit
		text += `"fixed_window", "start": "first_hit"`
	case 2:
		l.Algorithm = model.SlidingWindow
		text += `"sliding_window"`
	case 3:
		l.Algorithm, l.Precision = model.SubBuckets, 1
		text += `"sliding_log"`
	case 4:
		buckets := pick[int64](w.random, 2, 4, 5, 10, 50)
		if millis%buckets != 0 {
			return w.newLimit()
		}
		l.Algorithm, l.Precision = model.SubBuckets, l.Window/buckets
		text += fmt.Sprintf(`"sliding_window", "precision": "%dms"`, millis/buckets)
	case 5:
		l.Algorithm, l.Burst = model.TokenBucket, l.Max
		text += `"token_bucket"`
	default:
		l.Algorithm, l.Burst = model.TokenBucket, 1+w.random.Uint64N(2*l.Max+3)
		text += fmt.Sprintf(`"token_bucket", "burst": %d`, l.Burst)
	}
	return l, text + "}"
}

// any is one of the limits.
func (w *modelWorld) any() *model.Limit {
	limits := w.rules[w.random.IntN(len(w.rules))].limits
	return &limits[w.random.IntN(len(limits))]
}

// pause lets time pass, often none.
func (w *modelWorld) pause() {
	l := w.any()
	switch w.random.IntN(12) {
	case 0:
		w.proxy.now += 1 + w.random.Int64N(3)
	case 1:
		w.proxy.now += w.random.Int64N(second)
	case 2:
		w.proxy.now += w.random.Int64N(second / 50)
	case 3: // to the edge of a window, or a nanosecond beside it
		w.proxy.now += max(0, l.Window-w.proxy.now%l.Window+w.random.Int64N(3)-1)
	case 4: // until one more token is there, or a nanosecond beside it
		w.proxy.now += max(0, l.Window/int64(max(l.Max, 1))+w.random.Int64N(3)-1)
	case 5:
		w.proxy.now += w.random.Int64N(l.Window/10 + 1)
	case 6:
		if w.random.IntN(3) == 0 {
			w.proxy.now += w.random.Int64N(3 * l.Window)
		}
	}
	for len(w.open) > 0 && w.random.IntN(3) > 0 {
		w.respond(w.random.IntN(len(w.open)))
	}
}

// request sends one to any worker. The headers that a passed request is to get are compared when
// its response is there.
func (w *modelWorld) request() (got, want modelAnswer) {
	v := pick(w.random, w.workers[:]...)
	user, path := pick(w.random, "ann", "bob", "sue"), pick(w.random, "/", "/api/x")
	cost, most := uint64(1), w.any().Quota()
	switch w.random.IntN(10) {
	case 0:
		cost = 0
	case 1, 2, 3:
		cost = 1 + w.random.Uint64N(3)
	case 4:
		cost = w.random.Uint64N(most + 2)
	case 5:
		cost = most
	case 6:
		cost = pick(w.random, most+1, math.MaxUint64)
	}
	w.asked = fmt.Sprintf("worker %v, %s %s, cost %d, at %d", v == w.workers[1], user, path, cost, w.proxy.now)
	matched, want := w.decide(user, path, cost)
	v.pause("x-user", user, ":path", path, "x-cost", strconv.FormatUint(cost, 10))
	if v.reply == nil {
		w.open = append(w.open, openStream{v, v.last, matched, user, want})
		return modelAnswer{headers: want.headers}, want
	}
	v.reset(v.last)
	return modelAnswer{strings.TrimPrefix(v.reply.details, "weir_rate_limited:"), headersIn(v.reply.headers)}, want
}

// respond ends an open stream with a response.
func (w *modelWorld) respond(i int) {
	o := w.open[i]
	w.open[i] = w.open[len(w.open)-1]
	w.open = w.open[:len(w.open)-1]
	later := w.random.Uint64N(3)
	if w.random.IntN(4) == 0 {
		later = w.random.Uint64N(w.any().Max + 3)
	}
	for _, i := range o.matched {
		if r := &w.rules[i]; r.costsLater {
			for _, c := range r.countersOf(o.user) {
				c.Take(w.proxy.now, later)
			}
		}
	}
	defer proxywasm.Use(o.worker)()
	o.worker.response, o.worker.upstream = map[string]string{}, map[string]string{"x-later": fmt.Sprint(later)}
	o.stream.OnHttpResponseHeaders(1, true)
	o.stream.OnHttpStreamDone()
	if got := (modelAnswer{headers: headersIn(o.worker.response)}); got != o.want {
		w.t.Fatalf("a request of %s\ngot  %s\nwant %s\n%s", o.user, got, o.want, w.configuration)
	}
}

func (r *modelRule) countersOf(user string) []*model.Counter {
	if !r.keyed {
		user = ""
	}
	if r.counters[user] == nil {
		for _, l := range r.limits {
			r.counters[user] = append(r.counters[user], &model.Counter{Limit: l})
		}
	}
	return r.counters[user]
}

// decide returns what the definitions say of a request.
func (w *modelWorld) decide(user, path string, asked uint64) (matched []int, a modelAnswer) {
	now := w.proxy.now
	costs, refuses := map[int]uint64{}, map[int]bool{}
	for i := range w.rules {
		r := &w.rules[i]
		if !strings.HasPrefix(path, r.prefix) {
			continue
		}
		matched = append(matched, i)
		if costs[i] = min(max(asked, r.least), r.most); r.cost >= 0 {
			costs[i] = uint64(r.cost)
		}
		for _, c := range r.countersOf(user) {
			refuses[i] = refuses[i] || !c.Fits(now, costs[i])
		}
		if refuses[i] && a.refusedBy == "" {
			a.refusedBy = r.name
		}
	}
	for _, i := range matched {
		counters := w.rules[i].countersOf(user)
		switch {
		case a.refusedBy == "":
			for _, c := range counters {
				c.Take(now, costs[i])
			}
		case refuses[i] && w.rules[i].countRejected:
			takeRejected(counters, now, costs[i])
		}
	}
	a.headers = w.describe(matched, user, costs, a.refusedBy != "")
	return matched, a
}

// takeRejected takes the hits of a rejected request, unless they could never pass.
func takeRejected(counters []*model.Counter, now int64, cost uint64) {
	for _, c := range counters {
		if cost > c.Quota() {
			return
		}
	}
	for _, c := range counters {
		if c.Algorithm == model.TokenBucket {
			c.Take(now, min(cost, c.Remaining(now)))
		} else {
			c.Take(now, cost)
		}
	}
}

// describe is the headers of an answer.
func (w *modelWorld) describe(matched []int, user string, costs map[int]uint64, refused bool) string {
	if len(matched) == 0 {
		return ""
	}
	now := w.proxy.now
	var policies, states []string
	var tightest *model.Counter
	var remaining uint64
	var next, retry int64 = 0, 1
	helps := true
	for _, i := range matched {
		for j, c := range w.rules[i].countersOf(user) {
			name := w.rules[i].name
			if j > 0 {
				name += fmt.Sprint(".", j+1)
			}
			r, t := c.Remaining(now), int64(0)
			if r < c.Quota() {
				t, _ = c.Wait(now, r+1, second)
			}
			policies = append(policies, policy(name, &c.Limit))
			states = append(states, fmt.Sprintf(`"%s";r=%d;t=%d`, name, r, t))
			if tightest == nil || r < remaining || r == remaining && t > next {
				tightest, remaining, next = c, r, t
			}
			wait, ok := c.Wait(now, costs[i], second)
			retry, helps = max(retry, wait), helps && ok
		}
	}
	reset := tightest.Reset(now)
	switch w.unit {
	case "seconds":
		reset = (reset + second - 1) / second
	case "epoch":
		reset = (now + reset + second - 1) / second
	default:
		reset = (reset + 1e6 - 1) / 1e6
	}
	all := map[string]string{
		"ratelimit-policy": strings.Join(policies, ", "), "ratelimit": strings.Join(states, ", "),
		"x-ratelimit-limit": fmt.Sprint(tightest.Quota()), "x-ratelimit-remaining": fmt.Sprint(remaining), "x-ratelimit-reset": fmt.Sprint(reset),
	}
	if refused {
		all["x-envoy-ratelimited"] = "true"
		if helps {
			all["retry-after"] = fmt.Sprint(retry)
		}
	}
	return headersIn(all)
}

func policy(name string, l *model.Limit) string {
	text := fmt.Sprintf(`"%s";q=%d`, name, l.Quota())
	span, rate := uint64(l.Window), uint64(1)
	if l.Algorithm == model.TokenBucket {
		span, rate = l.Burst*uint64(l.Window), l.Max
	}
	if l.Max > 0 && span%(rate*uint64(second)) == 0 {
		text += fmt.Sprint(";w=", span/(rate*uint64(second)))
	}
	return text
}

// headersIn lists the rate limit headers of an answer.
func headersIn(all map[string]string) string {
	var b strings.Builder
	for _, name := range []string{
		"ratelimit-policy", "ratelimit", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after", "x-envoy-ratelimited",
	} {
		if value, ok := all[name]; ok {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	return b.String()
}
