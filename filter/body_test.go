package filter_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/filter"
	"weir/internal/fields"
	"weir/internal/must"
	"weir/internal/proxywasm"
)

// ask begins a request whose body follows, and returns what becomes of its headers.
func (v *fakeVM) ask(headers ...string) (s *stream, action types.Action) {
	v.t.Helper()
	v.receive("POST", "/v1/chat", headers)
	v.resumed = false
	return v.begin(false)
}

// upload brings a piece of the request's body.
func (v *fakeVM) upload(s *stream, end bool, piece string) types.Action {
	v.piece, v.context = []byte(piece), s.ID()
	defer proxywasm.Use(v)()
	return s.OnHttpRequestBody(len(piece), end)
}

// uploadAll brings a body in pieces of a size, or whole if that is 0, until the request goes on, as it must
// by the bound of a request's body.
func (v *fakeVM) uploadAll(s *stream, action types.Action, body string, size int) {
	v.t.Helper()
	if size == 0 {
		size = max(1, len(body))
	}
	for start := 0; action != types.ActionContinue && start <= len(body); start += size {
		end := min(start+size, len(body))
		if action = v.upload(s, end == len(body), body[start:end]); action == types.ActionContinue && start > filter.MaxRequestBody {
			v.t.Errorf("it waited for %d bytes", end)
		}
	}
	must.EqualOrEnd(v.t, action, types.ActionContinue, "the request waits still")
}

// received is how much of a request the proxy has.
func (v *fakeVM) received(bytes uint64) {
	v.properties = map[string][]byte{"request\x00total_size": binary.LittleEndian.AppendUint64(nil, bytes)}
}

// leaves returns how many hits the key of a request that passed has left.
func (v *fakeVM) leaves(s *stream) string {
	v.respond(s, false)
	return v.response["x-ratelimit-remaining"]
}

const bodyReserve = `, "reserve": {"request_json": "max_tokens", "default": 50, "least": 5, "most": 200}`

// The number in a request's body is reserved before the request passes.
func TestReserveOfBody(t *testing.T) {
	for _, c := range []struct {
		name    string
		body    string
		headers []string
		size    int // of pieces; 0 for the whole
		left    string
		unread  uint64
	}{
		{name: "whole", body: `{"model":"m","messages":[{"content":"\"max_tokens\":1"}],"max_tokens":100}`, left: "900"},
		{name: "bytes", body: `{"model":"m","messages":[{"max_tokens":1}],"max_tokens" : 100 }`, size: 1, left: "900"},
		{name: "any type", body: `{"max_tokens":100}`, headers: []string{"content-type", "text/plain"}, left: "900"},
		{name: "twice", body: `{"max_tokens":100,"max_tokens":7}`, left: "900"},
		{name: "twice, the last is larger", body: `{"max_tokens":7,"max_tokens":100}`, left: "900"},
		{name: "twice, with an escape", body: `{"max_tokens":7,"max\u005ftokens":100}`, left: "900"},
		{name: "twice, in capitals", body: `{"max_tokens":7,"MAX_TOKENS":100}`, left: "900"},
		{name: "twice, null", body: `{"max_tokens":7,"max_tokens":null}`, left: "950"},
		{name: "in capitals alone", body: `{"MAX_TOKENS":7}`, left: "950"},
		{name: "string", body: `{"max_tokens":"100"}`, left: "900"},
		{name: "point", body: `{"max_tokens":100.00}`, left: "900"},
		{name: "few", body: `{"max_tokens":0}`, left: "995"},
		{name: "many", body: `{"max_tokens":201}`, left: "800"},
		{name: "more than a number can be", body: `{"max_tokens":99999999999999999999999}`, left: "800"},
		{name: "missing", body: `{"messages":[]}`, left: "950"},
		{name: "null", body: `{"max_tokens":null}`, left: "950"},
		{name: "negative", body: `{"max_tokens":-1}`, left: "950", unread: 1},
		{name: "fraction", body: `{"max_tokens":1.5}`, left: "950", unread: 1},
		{name: "power", body: `{"max_tokens":1e2}`, left: "900"},
		{name: "large power", body: `{"max_tokens":1e999}`, left: "800"},
		{name: "power in a string", body: `{"max_tokens":"1e2"}`, left: "900"},
		{name: "byte order mark", body: "\ufeff{\"max_tokens\":7}", left: "950", unread: 1},
		{name: "UTF-16", body: "\xff\xfe{\x00}\x00", left: "950", unread: 1},
		{name: "UTF-7", body: `{"max+AF8-tokens":100,"max_tokens":7}`, headers: []string{"content-type", "application/json; charset=UTF-7"}, left: "950", unread: 1},
		{name: "UTF-8", body: `{"max_tokens":100}`, headers: []string{"content-type", `application/json; Charset="UTF-8"`}, left: "900"},
		{name: "two documents", body: `{"max_tokens":7}{"max_tokens":100}`, left: "950", unread: 1},
		{name: "form behind a document", body: `{"max_tokens":7}=&max_tokens=100`, headers: []string{"content-type", "application/x-www-form-urlencoded"}, left: "950", unread: 1},
		{name: "multipart", body: "--b\r\n\r\n{\"max_tokens\":7}\r\n--b--\r\n", headers: []string{"content-type", "multipart/form-data; boundary=b"}, left: "950", unread: 1},
		{name: "white space around", body: "\r\n\t {\"max_tokens\":100} \n", left: "900"},
		{name: "boolean", body: `{"max_tokens":true}`, left: "950", unread: 1},
		{name: "object", body: `{"max_tokens":{}}`, left: "950", unread: 1},
		{name: "word", body: `{"max_tokens":"many"}`, left: "950", unread: 1},
		{name: "long", body: `{"max_tokens":"` + strings.Repeat("1", 5000) + `"}`, left: "950", unread: 1},
		{name: "form", body: "max_tokens=100", left: "950", unread: 1},
		{name: "cut off", body: `{"max_tokens":100`, left: "950", unread: 1},
		{name: "cut off behind it", body: `{"max_tokens":100,`, left: "900", unread: 1},
		{name: "empty", left: "950"},
		{name: "at the bound", body: `{"x":"` + strings.Repeat("x", filter.MaxRequestBody-26) + `","max_tokens":100}`, size: 1000, left: "900"},
		{name: "behind the bound", body: `{"x":"` + strings.Repeat("x", filter.MaxRequestBody) + `","max_tokens":100}`, size: 1000, left: "950", unread: 1},
		{name: "behind the bound, in one piece", body: `{"x":"` + strings.Repeat("x", filter.MaxRequestBody) + `","max_tokens":100}`, left: "950", unread: 1},
		{name: "behind the bound again", body: `{"max_tokens":7,"x":"` + strings.Repeat("x", filter.MaxRequestBody) + `","max_tokens":100}`, left: "950", unread: 1},
		{name: "before the bound, and larger", body: `{"max_tokens":100,"x":"` + strings.Repeat("x", filter.MaxRequestBody) + `"}`, left: "900", unread: 1},
		{name: "identity", body: `{"max_tokens":100}`, headers: []string{"content-encoding", "identity"}, left: "900"},
		{name: "gzip", body: "\x1f\x8b", headers: []string{"content-encoding", "gzip"}, left: "950", unread: 1},
		{name: "expects", body: `{"max_tokens":100}`, headers: []string{"expect", "100-continue"}, left: "950", unread: 1},
		{name: "upgrade", body: `{"max_tokens":100}`, headers: []string{"upgrade", "websocket"}, left: "950", unread: 1},
		{name: "gRPC", body: `{"max_tokens":100}`, headers: []string{"content-type", "application/grpc"}, left: "950", unread: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newProxy(t).start(fmt.Sprintf(tokensRule, `"openai"`, bodyReserve))
			s, action := v.ask(append(c.headers, "x-key", "ann")...)
			v.uploadAll(s, action, c.body, c.size)
			// The rest is none of its business.
			must.Equal(t, v.upload(s, false, `{"max_tokens":1}`), types.ActionContinue, "the rest of the body is held back")
			must.Equal(t, v.leaves(s), c.left, "are left")
			v.bring(s, true, `{"usage":{"total_tokens":7}}`)
			v.reset(s)
			must.Equal(t, v.count("unread_bodies_total"), c.unread, "bodies were not read")
			must.Equal(t, v.plugin.Bodies(), 0, "requests wait")
		})
	}
}

// A request without a body is decided at once, and one with trailers when they come.
func TestReserveOfNoBody(t *testing.T) {
	v := newProxy(t).start(fmt.Sprintf(tokensRule, `"openai"`, bodyReserve))
	s := v.open("x-key", "ann")
	must.EqualOrEnd(t, s != nil, true, "a request without a body passes")
	must.Equal(t, v.leaves(s), "950", "a request without a body leaves")
	s, action := v.ask("x-key", "bob")
	must.Equal(t, action, types.ActionPause, "a request does not wait for its body")
	defer proxywasm.Use(v)()
	must.Equal(t, s.OnHttpRequestTrailers(1), types.ActionContinue, "a request with trailers: action")
	must.Equal(t, v.leaves(s), "950", "a request with trailers leaves")
	s, _ = v.ask("x-key", "cid")
	v.upload(s, false, `{"max_tokens":10}`)
	must.Equal(t, s.OnHttpRequestTrailers(1), types.ActionContinue, "a request with a body and trailers: action")
	must.Equal(t, v.leaves(s), "990", "a request with a body and trailers leaves")
	must.Equal(t, v.count("unread_bodies_total"), 0, "bodies were not read")
}

// Only rules that apply have a say, each with its own number; a shadow rule, too.
func TestReserveOfBodyByRules(t *testing.T) {
	const limits = `"limits": [{"limit": 1000, "window": "1h", "algorithm": "fixed_window"}], "cost_on_response": "openai"`
	v := newProxy(t).start(`{"headers": ["ratelimit"], "rules": [
		{"name": "a", ` + limits + `, "reserve": {"request_json": "a", "default": 1}},
		{"name": "b", ` + limits + `, "reserve": {"request_json": "n.b", "default": 2}, "match": {"headers": {"x-b": {"present": true}}}},
		{"name": "c", "mode": "shadow", ` + limits + `, "reserve": {"request_json": "c", "default": 3}},
		{"name": "d", "limits": [{"limit": 10, "window": "1h", "algorithm": "fixed_window"}], "cost": {"header": "x-cost"}, "match": {"headers": {"x-d": {"present": true}}}}]}`)
	for _, c := range []struct {
		headers []string
		body    string
		want    string
	}{
		{nil, `{"n":{"b":20},"a":10,"c":30}`, `"a";r=990;t=3600`},
		{[]string{"x-b", "1"}, `{"a":10,"c":30,"n":{"b":20}}`, `"a";r=980;t=3600, "b";r=980;t=3600`},
		{[]string{"x-b", "1"}, `{"a":"x"}`, `"a";r=979;t=3600, "b";r=978;t=3600`},
		{[]string{"x-d", "1", "x-cost", "none"}, `{"a":9}`, `"a";r=970;t=3600, "d";r=9;t=3600`},
	} {
		s, action := v.ask(c.headers...)
		if action != types.ActionPause || v.upload(s, true, c.body) != types.ActionContinue {
			t.Fatalf("%s: action %d", c.body, action)
		}
		v.leaves(s)
		must.Equal(t, v.response["ratelimit"], c.want, "%s", c.body)
	}
	must.Equal(t, v.count("bad_costs_total"), 1, "bad costs")
}

// A request that has no room for what its body says is refused, and its body held back.
func TestReserveOfBodyRefused(t *testing.T) {
	v := newProxy(t).start(fmt.Sprintf(tokensRule, `"openai"`, `, "reserve": {"request_json": "max_tokens", "default": 50}`))
	s, _ := v.ask("x-key", "ann")
	must.EqualOrEnd(t, v.upload(s, false, `{"max_tokens":1001,`), types.ActionPause, "before all of the body has come: action")
	must.EqualOrEnd(t, v.reply == nil, true, "before all of the body has come: no reply")
	if v.upload(s, true, `"x":1}`) != types.ActionPause || v.reply == nil || v.reply.status != 429 {
		t.Fatalf("got %+v", v.reply)
	}
	must.Equal(t, v.upload(s, true, ""), types.ActionPause, "the body of a refused request goes on")
	v.reset(s)
	must.Equal(t, v.remaining("ann"), "950", "are left")
}

// A request whose body has told waits for the backend like any other.
func TestReserveOfBodyAtTheBackend(t *testing.T) {
	w := joined(t, 2, 1, `{"backend": {"cluster": "b"}, "sync_rate": 0, "rules": [{"name": "r", "limits": [{"limit": 100, "window": "1h", "algorithm": "fixed_window"}],
		"cost_on_response": "openai", "reserve": {"request_json": "max_tokens", "default": 50}}]}`)
	for i, want := range []bool{true, false} {
		v := w.vms[i]
		s, _ := v.ask()
		must.EqualOrEnd(t, v.upload(s, true, `{"max_tokens":60}`), types.ActionPause, "action")
		must.EqualOrEnd(t, s.Waits(), true, "the request waits for the backend")
		w.deliver(v)
		must.Equal(t, [2]bool{v.resumed, v.reply == nil}, [2]bool{want, want}, "node %d: resumed, and not refused", i)
	}
	w.wantSum(60, "afterwards")
}

// A client that goes away while its request waits for the body takes nothing.
func TestResetBeforeBody(t *testing.T) {
	v := newProxy(t).start(fmt.Sprintf(tokensRule, `"openai"`, bodyReserve))
	var streams []*stream
	for i := range 5 {
		s, _ := v.ask("x-key", "ann")
		if i%2 == 0 {
			v.upload(s, false, `{"max_tokens":1`)
		}
		streams = append(streams, s)
	}
	for _, i := range []int{2, 0, 4, 1} {
		v.reset(streams[i])
	}
	if n := v.plugin.Bodies(); n != 1 || v.upload(streams[3], true, `{"max_tokens":10}`) != types.ActionContinue || v.leaves(streams[3]) != "990" {
		t.Errorf("%d requests waited, and %s are left", n, v.response["x-ratelimit-remaining"])
	}
}

// A proxy that keeps the bodies of paused requests is found out at a tick, and again by one request after a minute. No request hangs.
func TestBodiesAreKept(t *testing.T) {
	v := newProxy(t).start(fmt.Sprintf(tokensRule, `"openai"`, bodyReserve))
	v.ended = map[uint32]int{}
	v.received(300)
	first, action := v.ask("x-key", "ann")
	second, _ := v.ask("x-key", "ann")
	must.EqualOrEnd(t, action, types.ActionPause, "the first request does not wait for its body")
	v.now += filter.KeptAfter
	v.tick()
	must.EqualOrEnd(t, v.plugin.Bodies(), 2, "a request is decided before anything of its body has come")
	v.received(500)
	v.tick()
	must.EqualOrEnd(t, [3]int{v.plugin.Bodies(), v.ended[first.ID()], v.ended[second.ID()]}, [3]int{0, 1, 1}, "requests that wait, and times that two were resumed")
	// The body comes when the headers have gone on.
	must.Equal(t, v.upload(first, true, `{"max_tokens":200}`), types.ActionContinue, "the body is held back")
	third, action := v.ask("x-key", "ann")
	must.Equal(t, action, types.ActionContinue, "a later request: action")
	must.Equal(t, v.leaves(third), "850", "a later request leaves")
	must.Equal(t, v.count("unread_bodies_total"), 3, "bodies were not read")
	v.now += filter.KeptFor
	_, action = v.ask("x-key", "ann")
	must.Equal(t, action, types.ActionPause, "a request when that is to be found out again: action")
	_, action = v.ask("x-key", "ann")
	must.Equal(t, action, types.ActionContinue, "a request beside it: action")
	v.received(700)
	v.now += filter.KeptAfter
	v.tick()
	must.Equal(t, v.plugin.Bodies(), 0, "requests that wait once it has been found out again")
	_, action = v.ask("x-key", "ann")
	must.Equal(t, action, types.ActionContinue, "a later request: action")
}

// A filter before that holds a body back until it is whole does not look like a proxy that keeps bodies, however slow the
// client is.
func TestBodyThatAnotherFilterHolds(t *testing.T) {
	for _, c := range []struct {
		length string
		come   uint64
		waits  int
	}{
		{"1000", 999, 1},
		{"1000", 1000, 0},
		{"1000000", filter.MaxRequestBody - 1, 1},
		{"1000000", filter.MaxRequestBody, 0}, // the proxy may take no more
	} {
		v := newProxy(t).start(fmt.Sprintf(tokensRule, `"openai"`, bodyReserve))
		v.ended = map[uint32]int{}
		v.received(300)
		s, _ := v.ask("x-key", "ann", "content-length", c.length)
		v.received(300 + c.come)
		v.now += filter.KeptAfter
		v.tick()
		must.Equal(t, v.plugin.Bodies(), c.waits, "%d bytes of %s: requests that wait", c.come, c.length)
		if c.waits > 0 {
			must.Equal(t, v.upload(s, true, `{"max_tokens":200}`), types.ActionContinue, "%s bytes: action of the body", c.length)
			must.Equal(t, v.leaves(s), "800", "%s bytes: left", c.length)
		}
	}
}

// A client that is slow has its request decided when it has waited long enough, and others wait for
// their bodies still.
func TestSlowBody(t *testing.T) {
	for _, sized := range []bool{true, false} {
		v := newProxy(t).start(fmt.Sprintf(tokensRule, `"openai"`, bodyReserve))
		v.ended = map[uint32]int{}
		if sized {
			v.received(300)
		}
		known, _ := v.ask("x-key", "ann")
		if sized {
			v.upload(known, true, `{"max_tokens":10}`)
		}
		slow, _ := v.ask("x-key", "ann")
		v.now += filter.BodyWait - 1
		v.tick()
		must.EqualOrEnd(t, v.ended[slow.ID()], 0, "a request is decided too early")
		v.now++
		v.tick()
		must.Equal(t, v.ended[slow.ID()], 1, "a request hangs")
		// A proxy that does not tell its abilities is taken to keep bodies.
		_, action := v.ask("x-key", "ann")
		must.Equal(t, action == types.ActionPause, sized, "sized %v: the next one waits", sized)
	}
	// A clock that is set back makes no request wait for longer.
	v := newProxy(t).start(fmt.Sprintf(tokensRule, `"openai"`, bodyReserve))
	v.ended = map[uint32]int{}
	s, _ := v.ask("x-key", "ann")
	v.now -= 2 * filter.BodyWait
	v.tick()
	must.Equal(t, v.ended[s.ID()], 1, "a request when the clock was set back: times it went on")
}

// A plugin context that is done lets no request hang.
func TestBodyOfReplacedPlugin(t *testing.T) {
	v := newProxy(t).start(fmt.Sprintf(tokensRule, `"openai"`, bodyReserve))
	v.ended = map[uint32]int{}
	s, _ := v.ask("x-key", "ann")
	v.replace(fmt.Sprintf(tokensRule, `"openai"`, bodyReserve))
	must.Equal(t, v.ended[s.ID()], 1, "a request hangs")
}

// A body that can't be read costs the configuration's number, or its request is refused, and then
// takes nothing of any rule.
func TestUnread(t *testing.T) {
	const large, json = 2 * filter.MaxRequestBody, `{"max_tokens":7}`
	for name, c := range map[string]struct {
		headers []string
		body    string
		read    bool
	}{
		"what says it":      {nil, `{"max_tokens":7}`, true},
		"what says nothing": {nil, `{}`, true},
		"no body":           {nil, ``, true},
		"padded":            {nil, `{"x":"` + strings.Repeat("x", large) + `","max_tokens":100}`, false},
		"padded behind":     {nil, `{"max_tokens":7,"x":"` + strings.Repeat("x", large) + `","max_tokens":100}`, false},
		"compressed":        {[]string{"content-encoding", "gzip"}, json, false},
		"another charset":   {[]string{"content-type", "application/json;charset=utf-16"}, json, false},
		"no JSON":           {nil, "max_tokens=100", false},
		"negative":          {nil, `{"max_tokens":-5}`, false},
		"cut off":           {nil, `{"max_tokens":7`, false},
		"gRPC":              {[]string{"content-type", "application/grpc"}, json, false},
		"slow":              {nil, `{"max_tokens":7,`, false},
		"kept":              {nil, json, false},
	} {
		for unread, want := range map[string]string{"default": "950", "most": "800", "refuse": "1000"} {
			t.Run(name+", "+unread, func(t *testing.T) {
				v := newProxy(t).start(fmt.Sprintf(`{"headers": ["x-ratelimit"], "rules": [{"name": "tokens", "key": [{"header": "x-key"}],
					"limits": [{"limit": 1000, "window": "1h", "algorithm": "fixed_window"}], "cost_on_response": "openai",
					"reserve": {"request_json": "max_tokens", "default": 50, "most": 200, "unread": %q}},
					{"name": "shadow", "mode": "shadow", "limits": [{"limit": 1000, "window": "1h", "algorithm": "fixed_window"}], "cost_on_response": "openai",
					"reserve": {"request_json": "max_tokens", "default": 50, "most": 200, "unread": %[1]q}},
					{"name": "other", "headers": [], "limits": [{"limit": 1, "window": "1h"}]}]}`, unread))
				v.ended = map[uint32]int{}
				v.received(300)
				s, action := v.ask(append(c.headers, "x-key", "ann")...)
				switch waits := action == types.ActionPause && v.reply == nil; {
				case !waits:
				case name == "slow":
					action = v.upload(s, false, c.body)
					for range 2 {
						v.now += filter.BodyWait
						v.tick()
					}
				case name == "kept":
					v.received(500)
					v.now += filter.KeptAfter
					v.tick()
				default:
					action = v.upload(s, true, c.body)
				}
				passed := action == types.ActionContinue || v.resumed
				refused := !c.read && unread == "refuse"
				must.EqualOrEnd(t, [2]bool{passed, v.reply != nil}, [2]bool{!refused, refused}, "it passes, or is refused: %+v", v.reply)
				switch {
				case refused:
					if r := v.reply; r.status != 400 || r.details != "weir_unread_body:tokens" || r.grpc != 3 || r.headers["x-ratelimit-remaining"] != "1000" ||
						r.headers["retry-after"] != "" || r.headers["x-envoy-ratelimited"] != "" || (name == "gRPC") != (r.body == fields.Unread) {
						t.Errorf("reply %+v", r)
					}
					must.Equal(t, v.upload(s, true, ""), types.ActionPause, "the body goes on")
				case c.read && name == "what says it":
					want = "993"
				case c.read:
					want = "950"
				}
				if !refused {
					must.Equal(t, v.leaves(s), want, "are left")
				}
				v.reset(s)
				unreads := uint64(1)
				if c.read {
					unreads = 0
				}
				must.Equal(t, v.count("unread_bodies_total"), unreads, "bodies were not read")
				must.Equal(t, [2]uint64{v.outcome("other", "allowed"), v.outcome("other", "rejected_by_other")} == [2]uint64{0, 1}, refused, "the other rule was rejected by this one")
				// A refused request leaves the other rule its only hit.
				v.ended = nil
				must.Equal(t, v.open("x-key", "bob") != nil, refused, "the other rule has its only hit left")
			})
		}
	}
	// A shadow rule refuses nothing.
	v := newProxy(t).start(`{"rules": [{"name": "shadow", "mode": "shadow", "limits": [{"limit": 1000, "window": "1h", "algorithm": "fixed_window"}], "cost_on_response": "openai",
		"reserve": {"request_json": "max_tokens", "default": 50, "unread": "refuse"}}]}`)
	s, _ := v.ask()
	must.Equal(t, v.upload(s, true, "none"), types.ActionContinue, "a shadow rule refuses a body")
	v.wantShadow("shadow", 0, 1)
}

// A prompt whose length is not known reserves what unread says: by default no less than it may cost. A
// bound on what a request may reserve holds for it, too.
func TestPromptsOfUnknownLength(t *testing.T) {
	const limit = 10_000_000
	large := `{"max_tokens":7,"x":"` + strings.Repeat("x", 4*filter.MaxRequestBody) + `"}`
	const piece = 8 << 10
	short := "-" + strings.Repeat("x", 3*piece-2) + "}"
	length := fmt.Sprint(len(large))
	prompt := (len(large) + 3) / 4
	const most = 2_000_000 // tokens of a prompt
	// How much is taken: 0 for a refusal. A body that is not whole can't be read.
	type takes struct{ silent, unbound, byDefault, byMost, byRefusal int }
	known := takes{50 + prompt, 50 + prompt, 50 + prompt, 200 + prompt, 0}
	unknown := takes{200 + most, 0, 50 + filter.MaxRequestBody/4, 200 + most, 0}
	unseen := takes{200 + most, 0, 50, 200 + most, 0}
	for name, c := range map[string]struct {
		headers []string
		body    string
		want    takes
	}{
		"with a length":                {[]string{"content-length", length}, large, known},
		"short and chunked":            {nil, `{"max_tokens":7}`, takes{11, 11, 11, 11, 11}},
		"no JSON, short and chunked":   {nil, short, takes{50 + len(short)/4, 50 + len(short)/4, 50 + len(short)/4, 200 + len(short)/4, 0}},
		"no JSON, chunked":             {nil, "-" + large, unknown},
		"chunked":                      {nil, large, unknown},
		"a length that is no number":   {[]string{"content-length", "1x"}, large, unknown},
		"compressed":                   {[]string{"content-length", "400", "content-encoding", "gzip"}, large, takes{200 + most, 0, 150, 200 + most, 0}},
		"compressed and chunked":       {[]string{"content-encoding", "br"}, large, unseen},
		"compressed, in a second line": {[]string{"content-encoding", "identity\ngzip"}, large, unseen},
		"not compressed":               {[]string{"content-encoding", "identity", "content-length", length}, large, known},
		"slow":                         {nil, large[:400], takes{200 + most, 0, 150, 200 + most, 0}},
		"slow, with a length":          {[]string{"content-length", length}, large[:400], known},
		"kept":                         {nil, "", unseen},
		"gRPC":                         {[]string{"content-type", "application/grpc"}, large, unseen},
		"WebSocket":                    {[]string{":method", "GET", "upgrade", "websocket"}, "", takes{50, 50, 50, 200, 0}},
		"upgrade of a POST":            {[]string{":method", "POST", "upgrade", "websocket"}, large, unseen},
		"CONNECT":                      {[]string{":method", "CONNECT"}, "", takes{50, 50, 50, 200, 0}},
	} {
		for unread, want := range map[string]int{
			`"most": 200`: c.want.silent, `"least": 1`: c.want.unbound, `"most": 200, "unread": "default"`: c.want.byDefault,
			`"most": 200, "unread": "most"`: c.want.byMost, `"unread": "refuse"`: c.want.byRefusal,
		} {
			for _, bound := range []int{limit, 1000} {
				v := newProxy(t).start(fmt.Sprintf(`{"headers": ["x-ratelimit"], "rules": [{"name": "tokens", "key": [{"header": "x-key"}],
					"limits": [{"limit": %d, "window": "1h", "algorithm": "fixed_window"}], "cost_on_response": "openai", "most_per_request": %d,
					"reserve": {"request_json": "max_tokens", "default": 50, %s, "prompt": {"bytes_per_token": 4}}}]}`, limit, bound, unread))
				s, action := v.ask(append(c.headers, "x-key", "ann")...)
				for rest := c.body; action == types.ActionPause && v.reply == nil && len(rest) > 0; {
					n := min(len(rest), piece)
					action = v.upload(s, strings.HasSuffix(rest[:n], "}") && n == len(rest), rest[:n])
					rest = rest[n:]
				}
				if action == types.ActionPause && v.reply == nil {
					v.now += filter.BodyWait
					v.tick()
				}
				taken := 0
				if v.reply == nil {
					left := 0
					must.Get(fmt.Sscan(v.leaves(s), &left))(t)
					taken = limit - left
				} else if v.reply.status != 400 {
					t.Errorf("%s, %s: refused with %d", name, unread, v.reply.status)
				}
				want := want
				if want > bound {
					want = 0
				}
				must.Equal(t, taken, want, "%s, %s, at most %d for each request: taken", name, unread, bound)
				v.reset(s)
			}
		}
	}
}

// Requests name how many tokens they want in several ways, and how many answers.
func TestReserveOfSeveralNumbers(t *testing.T) {
	const either, both = `["max_completion_tokens", "max_tokens"]`, `{"sum": ["max_tokens", "thinking.budget_tokens"]}`
	for _, c := range []struct{ from, body, left string }{
		{either, `{"max_tokens":100}`, "900"},
		{either, `{"max_tokens":100,"max_completion_tokens":7}`, "900"},
		{either, `{"max_completion_tokens":100,"max_tokens":null}`, "900"},
		{either, `{"n":2}`, "900"}, // twice the default
		{either, `{"max_tokens":70,"n":3}`, "790"},
		{either, `{"max_tokens":70,"n":3,"n":1}`, "790"},
		{either, `{"max_tokens":70,"n":0}`, "930"},
		{either, `{"max_tokens":70,"n":null}`, "930"},
		{either, `{"max_tokens":300,"n":4}`, "200"}, // 200 is most of each
		{both, `{"max_tokens":70,"thinking":{"budget_tokens":40}}`, "890"},
		{both, `{"max_tokens":70}`, "930"},
		{both, `{}`, "950"},
		{both, `{"max_tokens":18446744073709551615,"thinking":{"budget_tokens":18446744073709551615}}`, "800"},
	} {
		v := newProxy(t).start(ofResponse(`"auto", "reserve": {"request_json": ` + c.from + `, "times": "n", "default": 50, "least": 5, "most": 200}`))
		s, _ := v.ask("x-key", "ann")
		v.upload(s, true, c.body)
		must.Equal(t, v.leaves(s), c.left, "%s of %s leaves", c.from, c.body)
	}
	v := newProxy(t).start(ofResponse(`"auto", "reserve": {"request_json": "max_tokens", "times": "n", "default": 50}`))
	s, _ := v.ask("x-key", "ann")
	v.upload(s, true, `{"max_tokens":2,"n":18446744073709551615}`)
	must.Equal(t, v.reply != nil, true, "more than any limit is refused")
}

// ofResponse is a rule of a thousand a minute with such a cost_on_response.
func ofResponse(cost string) string {
	return `{"rules": [{"name": "r", "key": [{"header": "x-key"}], "cost_on_response": ` + cost + `, "limits": [{"limit": 1000, "window": "1m", "algorithm": "fixed_window"}]}]}`
}
