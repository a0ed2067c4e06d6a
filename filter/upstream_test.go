package filter_test

import (
	"strings"
	"testing"

	"weir/internal/proxywasm"
)

const upstreamRule = `{"headers": ["ratelimit", "retry-after"], "rules": [{"name": "r", "key": [{"header": "x-key"}], "upstream": true,
	"limits": [{"limit": 100, "window": "1h", "algorithm": "fixed_window"}]}]}`

// told brings a key's request to an upstream, whose response has a status and fields, or which the proxy
// answers itself with certain details.
func (v *fakeVM) told(key, details, status string, fields ...string) {
	v.t.Helper()
	s := v.opened("x-key", key)
	if s == nil {
		v.t.Fatalf("%s is refused: %+v", key, v.reply)
	}
	v.tell(s, details, append([]string{":status", status}, fields...)...)
}

// tell brings a response with certain details.
func (v *fakeVM) tell(s *stream, details string, headers ...string) {
	v.properties = map[string][]byte{"response\x00code_details": []byte(details)}
	v.respond(s, true, headers...)
	v.reset(s)
	v.properties = nil
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
			if want := map[bool]uint64{true: 1}[c.waits != ""]; v.count("upstream_holds_total") != want {
				t.Errorf("%d holds, want %d", v.count("upstream_holds_total"), want)
			}
			if c.waits == "" {
				return
			}
			if got := other.reply; got != nil {
				t.Errorf("bob: %+v", got)
			}
			p.now += 60 * second
			v.wantRetry(t, "when the time has come", "ann", "")
		})
	}
}

// A later word prolongs the wait, and an earlier one does not cut it short. Its own headers tell nothing of
// it, and each limit has a rule's room.
func TestUpstreamTellsAgain(t *testing.T) {
	p := newProxy(t)
	v := p.start(upstreamRule)
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
	p.now += 19 * minute / 60
	v.wantRetry(t, "a second before it", "ann", "1")
	p.now += minute / 60
	v.wantRetry(t, "then", "ann", "")
	if got := v.count("upstream_holds_total"); got != 1 {
		t.Errorf("%d holds, want 1", got)
	}
}

// refusing has an upstream that refuses.
type refusing struct{ *fakeVM }

var heeded, viaUpstream = map[string][]byte{":status": []byte("429"), "retry-after": []byte("0.000000001")}, []byte("via_upstream")

func (refusing) ResponseHeader(name string) ([]byte, bool) {
	value, ok := heeded[name]
	return value, ok
}

func (v refusing) Property(path string) ([]byte, bool) {
	if path == "response\x00code_details" {
		return viaUpstream, true
	}
	return v.fakeVM.Property(path)
}

func TestUpstreamAllocatesNothing(t *testing.T) {
	v := newProxy(t).start(strings.Replace(strings.Replace(upstreamRule, "100", "100000", 1), `"ratelimit", "retry-after"`, "", 1))
	defer proxywasm.Use(refusing{v})()
	v.receive("GET", "/", nil)
	v.calls = nil
	s := v.plugin.NewHttpContext(1).(*stream)
	if allocated := testing.AllocsPerRun(100, func() {
		s.OnHttpRequestHeaders(1, true)
		s.OnHttpResponseHeaders(1, true)
		s.OnHttpStreamDone()
		v.now += second
	}); allocated > 0 {
		t.Errorf("%v allocations", allocated)
	}
}

// A key's limit a minute is what the upstream tells, as long as it is the lower one and for a minute after its last word. Another
// key has its own. What fits no request, or is no number, refuses none for good.
func TestLimitFollowsUpstream(t *testing.T) {
	const rule = `{"headers": ["ratelimit"], "rules": [{"name": "r", "key": [{"header": "x-key"}], "upstream": true,
		"limits": [{"limit": 9, "window": "1m", "algorithm": "ALGORITHM"}, {"limit": 500, "window": "1h"}]}]}`
	for _, algorithm := range []string{"fixed_window", "token_bucket", "sliding_log"} {
		p := newProxy(t)
		v := p.start(strings.Replace(rule, "ALGORITHM", algorithm, 1))
		passes := func(key string) (n int) {
			for s := v.opened("x-key", key); s != nil; s = v.opened("x-key", key) {
				v.reset(s)
				n++
			}
			return n
		}
		tell := func(fields ...string) { v.told("ann", "via_upstream", "200", fields...) }
		tell("x-ratelimit-limit-requests", "4", "anthropic-ratelimit-requests-limit", "5", "x-ratelimit-limit-tokens", "2")
		if got := passes("ann"); got != 3 {
			t.Errorf("%s: %d requests pass behind the first, want 3", algorithm, got)
		}
		if got := passes("bob"); got != 9 {
			t.Errorf("%s: %d requests of another key pass", algorithm, got)
		}
		p.now += 2 * minute
		if got := passes("ann"); got != 9 {
			t.Errorf("%s: %d requests pass long after the upstream's word", algorithm, got)
		}
		for _, told := range []string{"0", "-1", "x", "99999999999999999999", "50"} {
			p.now += 2 * minute
			tell("x-ratelimit-limit-requests", told)
			if got := passes("ann"); got != 8 {
				t.Errorf("%s: %d requests pass behind the first, with the limit %s", algorithm, got, told)
			}
		}
	}
}

// A rule that counts tokens follows a limit of tokens.
func TestTokensFollowUpstream(t *testing.T) {
	v := newProxy(t).start(`{"headers": ["tokens"], "rules": [{"name": "r", "key": [{"header": "x-key"}], "upstream": true, "cost_on_response": "openai", "reserve": 100,
		"limits": [{"limit": 1000, "window": "1m", "algorithm": "fixed_window"}]}]}`)
	v.told("ann", "via_upstream", "200", "x-ratelimit-limit-requests", "1", "x-ratelimit-limit-tokens", "350")
	passed := 0
	for s := v.opened("x-key", "ann"); s != nil; s = v.opened("x-key", "ann") {
		passed++
	}
	if passed != 2 {
		t.Errorf("%d requests pass behind the first, want 2", passed)
	}
}
