package filter_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"weir/internal/must"
)

const upstreamRule = `{"headers": ["ratelimit", "retry-after"], "rules": [{"name": "r", "key": [{"header": "x-key"}], "upstream": true,
	"limits": [{"limit": 100, "window": "1h", "algorithm": "fixed_window"}]}]}`

// told brings a key's request to an upstream, whose response has a status and fields, or which the proxy
// answers itself with certain details.
func (v *fakeVM) told(key, details, status string, fields ...string) {
	v.t.Helper()
	s := v.opened("x-key", key)
	must.EqualOrEnd(v.t, s != nil, true, "%s passes: %+v", key, v.reply)
	v.tell(s, details, append([]string{":status", status}, fields...)...)
}

// tell brings a response with certain details.
func (v *fakeVM) tell(s *stream, details string, headers ...string) {
	v.properties = map[string][]byte{"response\x00code_details": []byte(details)}
	v.finish(s, headers...)
	v.properties = nil
}

// passes is how many requests of a key pass in a row.
func (v *fakeVM) passes(key string, more ...string) (n int) {
	for s := v.opened(append([]string{"x-key", key}, more...)...); s != nil; s = v.opened(append([]string{"x-key", key}, more...)...) {
		v.reset(s)
		n++
	}
	return n
}

// A key waits until the time that the upstream has told, in all workers, but for a minute at most. What
// the proxy itself answers is none of the upstream's.
func TestUpstream(t *testing.T) {
	const via = "via_upstream"
	for _, c := range []struct {
		name, details, status string
		fields                []string
		waits                 string
	}{
		{"retry-after", via, "429", []string{"retry-after", "7"}, "7"},
		{"rounded up", via, "429", []string{"retry-after-ms", "1200"}, "2"},
		{"a minute at most", via, "429", []string{"retry-after", "86400"}, "60"},
		{"nothing remains", via, "200", []string{"x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "3s"}, "3"},
		{"some remains", via, "200", []string{"x-ratelimit-remaining-tokens", "1", "x-ratelimit-reset-tokens", "3s"}, ""},
		{"no word", via, "429", nil, ""},
		{"success", via, "200", []string{"retry-after", "7"}, ""},
		{"of another filter", "local_rate_limited", "429", []string{"retry-after", "7"}, ""},
		{"of the proxy", "", "503", []string{"retry-after", "7"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProxy(t)
			v, other := p.start(upstreamRule), p.start(upstreamRule)
			v.told("ann", c.details, c.status, c.fields...)
			other.wantRetry(t, "at once", "ann", c.waits)
			other.wantRetry(t, "another key", "bob", "")
			must.Equal(t, v.count("upstream_holds_total"), map[bool]uint64{true: 1}[c.waits != ""], "holds")
			if c.waits == "" {
				return
			}
			must.Equal(t, other.reply == nil, true, "bob passes: %+v", other.reply)
			p.now += 60 * second
			v.wantRetry(t, "when the time has come", "ann", "")
		})
	}
}

// A later word prolongs the wait, and an earlier one does not cut it short. Its own headers tell nothing of
// it, and each limit has a rule's room.
func TestUpstreamTellsAgain(t *testing.T) {
	v := newProxy(t).start(upstreamRule)
	first, second, third := v.opened("x-key", "ann"), v.opened("x-key", "ann"), v.opened("x-key", "ann")
	tell := func(s *stream, after string) { v.tell(s, "via_upstream", ":status", "429", "retry-after", after) }
	tell(first, "10")
	tell(second, "5")
	v.wantRetry(t, "an earlier time", "ann", "10")
	if got := v.reply.headers["ratelimit"]; !strings.HasPrefix(got, `"r";r=97;`) {
		t.Errorf("ratelimit: %s", got)
	}
	tell(third, "20")
	v.wantRetry(t, "a later time", "ann", "20")
	v.now += 19 * minute / 60
	v.wantRetry(t, "a second before it", "ann", "1")
	v.now += minute / 60
	v.wantRetry(t, "then", "ann", "")
	must.Equal(t, v.count("upstream_holds_total"), 1, "holds")
}

// A key's limit a minute is what the upstream tells, as long as it is the lower one and for a minute after its last word. Another
// key has its own. What fits no request, or is no number, refuses none for good.
func TestLimitFollowsUpstream(t *testing.T) {
	const rule = `{"headers": ["ratelimit"], "rules": [{"name": "r", "key": [{"header": "x-key"}], "upstream": true,
		"limits": [{"limit": 9, "window": "1m", "algorithm": "ALGORITHM"}, {"limit": 500, "window": "1h"}]}]}`
	for _, algorithm := range []string{"fixed_window", "token_bucket", "sliding_log"} {
		v := newProxy(t).start(strings.Replace(rule, "ALGORITHM", algorithm, 1))
		tell := func(fields ...string) { v.told("ann", "via_upstream", "200", fields...) }
		tell("x-ratelimit-limit-requests", "4", "anthropic-ratelimit-requests-limit", "5", "x-ratelimit-limit-tokens", "2")
		must.Equal(t, v.passes("ann"), 3, "%s: requests pass behind the first", algorithm)
		must.Equal(t, v.passes("bob"), 9, "%s: requests of another key pass", algorithm)
		v.now += 2 * minute
		must.Equal(t, v.passes("ann"), 9, "%s: requests pass long after the upstream's word", algorithm)
		for _, told := range []string{"0", "-1", "x", "99999999999999999999", "50"} {
			v.now += 2 * minute
			tell("x-ratelimit-limit-requests", told)
			must.Equal(t, v.passes("ann"), 8, "%s: requests pass behind the first, with the limit %s", algorithm, told)
		}
	}
}

// A rule follows the limit of what it counts: requests, or tokens. If it counts anything else, it follows none.
func TestFollowsWhatItCounts(t *testing.T) {
	for _, c := range []struct {
		more, window string
		want         int
	}{
		{``, "1m", 39}, {``, "2m", 999}, {`"cost": 10,`, "1m", 99}, {`"cost": {"header": "x-cost"},`, "1m", 999},
		{`"cost": {"request_json": "n", "default": 1},`, "1m", 999}, {`"charge_when": {"status": ["401"]},`, "1m", 1000},
		{`"cost_on_response": "openai", "reserve": 10,`, "1m", 59}, {`"cost_on_response": "auto",`, "1m", 599},
		{`"cost_on_response": "openai", "reserve": 10, "charge_when": {"status": ["200"]},`, "1m", 99},
		{`"cost_on_response": {"response_json": "bytes"}, "reserve": 10,`, "1m", 99},
		{`"cost_on_response": {"response_header": "x-tokens"}, "reserve": 10,`, "1m", 99},
	} {
		v := newProxy(t).start(`{"rules": [{"name": "r", "key": [{"header": "x-key"}], "upstream": true, ` + c.more + `"limits": [{"limit": 1000, "window": "` + c.window + `"}]}]}`)
		must.Equal(t, v.plugin.Varies(0), 0, "%+v: people are told of other limits", c)
		v.told("ann", "via_upstream", "200", "x-ratelimit-limit-requests", "40", "x-ratelimit-limit-tokens", "600", "x-tokens", "10")
		must.Equal(t, v.passes("ann"), c.want, "%+v: requests pass behind the first", c)
	}
}

// A bucket whose size a request sets has no more room than the upstream, either.
func TestBurstFollowsUpstream(t *testing.T) {
	v := newProxy(t).start(`{"rules": [{"name": "r", "key": [{"header": "x-key"}], "upstream": true, "limits": [
		{"limit": 100, "limit_from": {"header": "x-limit", "max": 100}, "window": "1m", "algorithm": "token_bucket", "burst": 50}]}]}`)
	v.tell(v.opened("x-key", "ann", "x-limit", "80"), "via_upstream", ":status", "200", "x-ratelimit-limit-requests", "4")
	must.Equal(t, v.passes("ann", "x-limit", "80"), 3, "requests pass behind the first")
	must.Equal(t, v.plugin.Varies(0) != 0, true, "people are told that requests set limits")
}

// What is known of keys takes no memory by their length, and requests for many keys with limits of their own allocate nothing.
func TestMemoryOfLimitsTold(t *testing.T) {
	v := newProxy(t).start(strings.NewReplacer("1h", "1m", `"limit": 100`, `"limit": 100000`, `"headers": ["ratelimit", "retry-after"], `, "").Replace(upstreamRule))
	const keys = 128
	name := func(i int) string { return fmt.Sprint(strings.Repeat("k", 60_000), i) }
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	v.told(name(0), "via_upstream", "200")
	before := heap()
	open := make([]*stream, keys)
	for i := range open {
		open[i] = v.opened("x-key", name(i))
	}
	for i, s := range open {
		v.tell(s, "via_upstream", ":status", "200", "x-ratelimit-limit-requests", fmt.Sprint(5000+i))
	}
	must.AtMost(t, heap()-before, keys*60_000/4, "bytes that are kept")
	var known []string
	for i := range 2 * keys { // of the second half nothing was told
		s := v.opened("x-key", name(i))
		v.respond(s, true)
		if policy := v.headers()["ratelimit-policy"]; i < keys && strings.Contains(policy, fmt.Sprint("q=", 5000+i)) {
			known = append(known, name(i))
		} else if !strings.Contains(policy, "q=100000;") {
			t.Errorf("key %d has another's limit: %s", i, policy)
		}
		v.reset(s)
	}
	must.Between(t, len(known), 33, 64, "keys whose limits are known")
	request := func(key string) float64 {
		return testing.AllocsPerRun(len(known), func() { v.reset(v.opened("x-key", key)) })
	}
	usual, at := request("nobody"), 0
	must.AtMost(t, testing.AllocsPerRun(2*len(known), func() { v.reset(v.opened("x-key", known[at%len(known)])); at++ }), usual, "allocations with a limit told")
}
