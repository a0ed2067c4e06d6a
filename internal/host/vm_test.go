package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
)

// Each command runs in the request phase of a fresh stream of a VM whose shared data has been
// written once. The results are values and statuses as the guest saw them.
func TestHostCalls(t *testing.T) {
	for _, test := range []struct{ name, commands, want string }{
		{"first value", "get 0 X-TWO", "1 0"},
		{"missing header", "get 0 x-none", " 1"},
		{"pseudo header", "get 0 :path", "/a/b?c=d 0"},
		{"response headers are not there yet", "get 2 :status", " 2"},
		{"no such map", "get 9 a", " 2"},
		{"replace makes one of many", "set 0 X-Two 3;get 0 x-two", "0|3 0"},
		{"remove", "del 0 x-two;get 0 x-two", "0| 1"},
		{"all pairs", "del 0 :authority;del 0 :path;del 0 :scheme;del 0 x-two;del 0 x-request-id;set 0 x-do _;pairs 0",
			`0|0|0|0|0|0|"\x02\x00\x00\x00\a\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00\x01\x00\x00\x00` +
				`:method\x00GET\x00x-do\x00 \x00" 0`},

		{"missing key", "sdget none", " cas 0 1"},
		{"cas 0 overwrites", "sdset k one 0;sdset k two 0;sdget k", "0|0|two cas 3 0"},
		{"wrong cas", "sdset k one 0;sdset k two 7;sdget k", "0|8|one cas 2 0"},
		{"right cas", "sdset k one 0;sdset k two 2;sdget k", "0|0|two cas 3 0"},
		{"any cas creates", "sdset k one 2147483647;sdget k", "0|one cas 2 0"},
		{"create if absent", "sdset k one 2147483647;sdset k two 2147483647;sdget k", "0|8|one cas 2 0"},

		{"counter", "metric 0 c 2;metric 0 c 3;metric 0 c -1", "id 4 0|id 4 0|id 4 2"},
		{"gauge", "metric 1 g 2;metric 1 g -5;metric 1 g record 9", "id 4 0|id 4 0|id 4 0"},
		{"one kind a name", "metric 0 m 1;metric 1 m 1", "id 4 0|define 2"},
		{"no such kind", "metric 7 m 1", "define 2"},

		{"source", "property source address;port", "10.0.0.1:1234 0|1234 0"},
		{"destination", "property destination address", "[2001:db8::1]:80 0"},
		{"path", "property request path;property request url_path;property request query", "/a/b?c=d 0|/a/b 0|c=d 0"},
		{"request", "property request host;property request method;property request protocol;property request id",
			"example.com 0|GET 0|HTTP/1.1 0|rq 0"},
		{"plugin", "property plugin_name;property plugin_root_id;property node id;property metadata filter_metadata none", "plug 0|rid 0|node-1 0| 1"},
		{"no response yet", "property response code", " 1"},

		{"clock", "time", "1700000000000000001 0"},
		{"effective context", "effective 99;effective 1;get 0 :path;effective 0;get 0 :path", "2|0| 2|0|/a/b?c=d 0"},
		{"pointers are checked", "badpointer", "666"},
		{"plugin configuration only while configuring", "config", " 1"},
		{"body outside its callback", "bodystatus 0;bodystatus 99", "1|2"},
		{"done without on_done", "done", "1"},
		{"callout without path", "badcall known", "2"},
		{"callout to unknown cluster", "call unknown / 100", "2"},
		{"callout", "call known / 100", "0"},
		{"directions", "continue 7", "2"},
		{"exit returns", "exit", "went on"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := NewProcess(ProcessConfig{NodeID: "node-1", Clusters: map[string]string{"known": "127.0.0.1:1"},
				Clock: func() int64 { return 1_700_000_000_000_000_001 }})
			vm := newVM(t, p, VMConfig{ID: "vm", Logger: new(journal).logger()})
			r := newRoot(t, vm, "sdset first 1 0")
			// The test's own metrics come after the plugin's: created, configured … up to id 3.
			for _, name := range []string{"created", "configured", "x"} {
				p.metrics.define(Counter, name)
			}
			_, got := ask(t, r, test.commands)
			must.Equal(t, got, test.want, "%s", test.commands)
		})
	}
}

func TestSharedDataSizesAndEnd(t *testing.T) {
	p := NewProcess(ProcessConfig{})
	data := p.SharedData("vm")
	must.Equal(t, data.Set("k", nil, 0), StatusBadArgument, "set without a VM: status")
	a := newVM(t, p, VMConfig{ID: "vm"})
	b := newVM(t, p, VMConfig{ID: "vm"})
	other := newVM(t, p, VMConfig{ID: "other"})
	ask(t, newRoot(t, a, ""), "sdset key longer_value 0;sdset key value 1")
	must.Equal(t, data.Set("empty", nil, 1), StatusOK, "create: status")
	must.Equal(t, [2]int{data.Len(), data.Bytes()}, [2]int{2, len("keyvalueempty")}, "keys, and bytes")
	_, _, s := data.Get("empty")
	must.Equal(t, s, StatusOK, "an empty value's status")
	_, got := ask(t, newRoot(t, other, ""), "sdget key")
	must.Equal(t, got, " cas 0 1", "of another vm_id")
	must.OK(t, a.Close())
	_, got = ask(t, newRoot(t, b, ""), "sdget key")
	must.Equal(t, got, "value cas 2 0", "after the first VM")
	must.OK(t, b.Close())
	must.Equal(t, data.Len(), 0, "keys outlive the last VM")
}

func TestMetricsAreOneForAllVMs(t *testing.T) {
	p := NewProcess(ProcessConfig{})
	var ids []string
	for range 2 {
		_, got := ask(t, newRoot(t, newVM(t, p, VMConfig{}), ""), "metric 0 shared 1;metric 1 level 7;metric 1 level record 3;metric 1 level -1")
		ids = append(ids, strings.Fields(got)[1])
	}
	must.Equal(t, ids[0], ids[1], "ids %q", ids)
	all := p.Metrics().Snapshot()
	must.Equal(t, all["shared"], 2, "shared")
	must.Equal(t, all["level"], 2, "level")
}

func TestInitializationTrapsHostCalls(t *testing.T) {
	setTick := []byte{constant, 1, call, 0, drop}
	for _, name := range []string{"_initialize", "_start"} {
		p := NewProcess(ProcessConfig{})
		_, err := startAssembled(t, p, abi, malloc, function{name, toNothing, setTick})
		var start *StartError
		if !errors.As(err, &start) || start.Step != "initialize" || !errors.Is(err, ErrFailed) ||
			!strings.Contains(err.Error(), "proxy_set_tick_period_milliseconds") {
			t.Errorf("%s: error %v", name, err)
		}
		must.Equal(t, len(p.spaces), 0, "a VM that did not start keeps its vm_id")
	}
	// In main, too, which runs after _initialize; and in the guest's allocation.
	p := NewProcess(ProcessConfig{})
	_, err := startAssembled(t, p, abi, malloc, function{"_initialize", toNothing, nil},
		function{"main", twoToI32, []byte{constant, 1, call, 0}})
	must.Is(t, err, ErrFailed, "main: error")
	vm := must.Get(startAssembled(t, p, abi, function{"malloc", i32ToI32, []byte{constant, 1, call, 0}},
		function{"proxy_on_configure", twoToI32, []byte{constant, 7, constant, 0, constant, 4, constant, 0, constant, 4, call, 1}}))(t)
	_, err = vm.NewRoot(Plugin{Configuration: []byte("x")})
	must.Is(t, err, ErrFailed, "allocation: error")
}

func TestCompileRefuses(t *testing.T) {
	for _, test := range []struct {
		wasm []byte
		want string
	}{
		{[]byte("text"), "compile module"},
		{assemble(malloc), "proxy_abi_version_"},
		{assemble(abi), "neither malloc nor proxy_on_memory_allocate"},
		{assemble(abi, function{"malloc", twoToI32, []byte{constant, 0}}), "want 1 parameters"},
	} {
		if _, err := Compile(t.Context(), test.wasm, Options{Interpreter: true}); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("want %q, got %v", test.want, err)
		}
	}
	_, err := startAssembled(t, NewProcess(ProcessConfig{}), abi, malloc,
		function{"proxy_on_tick", twoToI32, []byte{constant, 0}})
	must.Contains(t, fmt.Sprint(err), "proxy_on_tick: want 1 parameters, got 2", "callback")
}

func TestRefusedConfigurationSaysWhy(t *testing.T) {
	p := NewProcess(ProcessConfig{})
	vm := newVM(t, p, VMConfig{})
	_, err := vm.NewRoot(Plugin{Configuration: []byte("refuse limits[0]: too large")})
	var start *StartError
	if !errors.As(err, &start) || start.Step != "configure" || start.Err != nil ||
		!slices.Contains(start.Log, "limits[0]: too large") {
		t.Errorf("error %v", err)
	}
	must.Equal(t, len(vm.contexts), 0, "contexts")
	must.OK(t, vm.Err())
}

func TestLogging(t *testing.T) {
	var j journal
	p := NewProcess(ProcessConfig{})
	vm := newVM(t, p, VMConfig{ID: "vm", Logger: j.logger()})
	newRoot(t, vm, "print")
	for _, want := range [][]string{
		{"level=INFO", "vm_start", "plugin=plug", "context=1"},
		{"level=INFO", "to stdout"},
		{"level=ERROR", "to stderr", "context=1"},
	} {
		must.Equal(t, j.has(want...), true, "not logged: %q in %q", want, j.lines)
	}
}

func TestResponsePhase(t *testing.T) {
	r := newRoot(t, newVM(t, NewProcess(ProcessConfig{}), VMConfig{}), "")
	s, _ := ask(t, r, "get 0 :path")
	h := NewHeaders(":status", "200", "x-do", "get 0 :path;set 0 a b;get 2 :status;set 2 x-new v;property response code")
	must.EqualOrEnd(t, must.Get(s.ResponseHeaders(h, false))(t), Continue, "action")
	must.Equal(t, h.Value("x-result"), " 2|2|200 0|0|\xc8\x00\x00\x00\x00\x00\x00\x00 0", "")
	must.Equal(t, h.Value("x-new"), "v", "the header was not set")
}

func TestLogPhaseReadsRequest(t *testing.T) {
	var j journal
	p := NewProcess(ProcessConfig{})
	r := newRoot(t, newVM(t, p, VMConfig{Logger: j.logger()}), "")
	s, _ := ask(t, r, "")
	s.Close()
	s.Close()
	must.Equal(t, j.has("log /a/b?c=d 0"), true, "logged %q", j.lines)
	for _, name := range []string{"logs", "dones", "deletes"} {
		must.Equal(t, p.Metrics().Snapshot()[name], 1, "%s", name)
	}
	_, err := s.RequestHeaders(&Headers{}, true)
	must.Is(t, err, ErrClosed, "after close")
}

func TestLocalReplyRunsResponsePhase(t *testing.T) {
	r := newRoot(t, newVM(t, NewProcess(ProcessConfig{}), VMConfig{}), "")
	s, got := ask(t, r, "reply 429 slow_down 8 x-why limit x-do get_0_:path;reply 500 ignored")
	must.Equal(t, got, "0|0", "statuses")
	l := s.LocalReply()
	must.EqualOrEnd(t, l != nil, true, "there is a local reply")
	want := NewHeaders(":status", "429", "x-why", "limit", "x-do", "get 0 :path", "content-length", "9",
		"content-type", "text/plain", "x-response-phases", "1", "x-result", " 2")
	must.Same(t, l.Headers.fields, want.fields, "headers")
	if l.Status != 429 || l.Details != "by_plugin" || string(l.Body) != "slow down" {
		t.Errorf("reply %+v", l)
	}
	must.Equal(t, [2]bool{s.Paused(Request), s.Paused(Response)}, [2]bool{}, "the reply is held back")
}

// As Envoy's: a HEAD request gets no message and no body, and what a plugin makes of the request's
// type changes nothing.
func TestLocalReplyOf(t *testing.T) {
	r := newRoot(t, newVM(t, NewProcess(ProcessConfig{}), VMConfig{}), "")
	for _, test := range []struct {
		method, contentType, do string
		want                    string // headers
		body                    string
	}{
		{"POST", "application/grpc+proto", "reply 429 50%_é 8", ":status=200 content-type=application/grpc grpc-status=8 grpc-message=50%25 %C3%A9", ""},
		{"POST", "application/grpc+proto", "reply 429 x", ":status=200 content-type=application/grpc grpc-status=14 grpc-message=x", ""},
		{"POST", "application/grpc+proto", "reply 403 x", ":status=200 content-type=application/grpc grpc-status=7 grpc-message=x", ""},
		{"HEAD", "application/grpc", "reply 429 x 8 x-a 1", ":status=200 x-a=1 content-type=application/grpc grpc-status=8", ""},
		{"HEAD", "", "reply 429 x 8 x-a 1", ":status=429 x-a=1 content-length=1 content-type=text/plain", ""},
		{"POST", "application/grpc", "reply 429 x 8 content-type a/b", ":status=200 content-type=application/grpc grpc-status=8 grpc-message=x", ""},
		{"POST", "application/grpc", "set 0 content-type a/b;reply 429 x 8", ":status=200 content-type=application/grpc grpc-status=8 grpc-message=x", ""},
		{"POST", "a/b", "set 0 content-type application/grpc;reply 429 x 8", ":status=429 content-length=1 content-type=text/plain", "x"},
		{"POST", "application/grpc;a=b", "reply 429 x 8", ":status=429 content-length=1 content-type=text/plain", "x"},
	} {
		s := newStream(t, r)
		must.Get(s.RequestHeaders(NewHeaders(":method", test.method, "content-type", test.contentType, "x-do", test.do), true))(t)
		var got []string
		for name, value := range s.LocalReply().Headers.All() {
			if name != "x-response-phases" {
				got = append(got, name+"="+value)
			}
		}
		must.Equal(t, [2]string{strings.Join(got, " "), string(s.LocalReply().Body)}, [2]string{test.want, test.body}, "%s %s, %s: headers, and the body", test.method, test.contentType, test.do)
		s.Close()
	}
}

func TestTickActsOnPausedStream(t *testing.T) {
	p := NewProcess(ProcessConfig{})
	var periods []time.Duration
	vm := newVM(t, p, VMConfig{OnTickPeriod: func(_ *Root, d time.Duration) { periods = append(periods, d) }})
	r := newRoot(t, vm, "tick 50")
	must.Same(t, periods, []time.Duration{50 * time.Millisecond}, "periods")
	for _, test := range []struct {
		command string
		check   func(*Stream) bool
	}{
		{"continue 0", func(s *Stream) bool { return !s.Paused(Request) && s.LocalReply() == nil }},
		{"reply 503 busy", func(s *Stream) bool { return s.LocalReply().Headers.Value("x-response-phases") == "1" }},
		{"set 0 x-late 1", func(s *Stream) bool { return s.half[Request].headers.Value("x-late") == "1" }},
	} {
		s, _ := ask(t, r, "pause;wait "+test.command)
		changes := 0
		s.info.OnChange = func() { changes++ }
		must.EqualOrEnd(t, s.Paused(Request), true, "not paused")
		must.OK(t, vm.Tick(r))
		must.Equal(t, test.check(s), true, "%s had no effect", test.command)
		must.Equal(t, changes, len(strings.TrimPrefix(test.command[:3], "set"))/3, "%s: times told", test.command)
		s.Close()
	}
	// A stream that is gone can't be reached.
	s, _ := ask(t, r, "pause;wait continue 0")
	s.Close()
	must.OK(t, vm.Tick(r))
	must.Equal(t, p.Metrics().Snapshot()["wake_2"], 1, "times that it was not there")
}

func TestCalloutAnswers(t *testing.T) {
	p := NewProcess(ProcessConfig{Clusters: map[string]string{"known": "x"}})
	var calls []Callout
	vm := newVM(t, p, VMConfig{OnCallout: func(c Callout) { calls = append(calls, c) }})
	r := newRoot(t, vm, "")
	for i, test := range []struct {
		answer CalloutResponse
		want   string
	}{
		{CalloutResponse{NewHeaders(":status", "200"), []byte("pong")}, `200 "pong" 1`},
		{localAnswer(504, "upstream request timeout"), `504 "upstream request timeout" 1`},
		{CalloutResponse{}, ` "" 0`},
	} {
		s, _ := ask(t, r, "call known /p 250;pause")
		c := calls[i]
		if c.Cluster != "known" || c.Headers.Value(":path") != "/p" || string(c.Body) != "ping" || c.Root != r ||
			c.Timeout != 250*time.Millisecond {
			t.Errorf("callout %+v", c)
		}
		must.OK(t, vm.HTTPCallResponse(c.ID, test.answer))
		_, got := ask(t, r, "last")
		must.Equal(t, got, test.want, "answer")
		must.Equal(t, !s.Paused(Request) && s.LocalReply() == nil, i == 0, "answer %d: continued", i)
		must.Is(t, vm.HTTPCallResponse(c.ID, test.answer), ErrNoCallout, "second answer")
	}
	// The stream is gone when the answer comes.
	s, _ := ask(t, r, "call known / 1;pause")
	s.Close()
	must.OK(t, vm.HTTPCallResponse(calls[3].ID, CalloutResponse{}))
	// The root context is gone.
	next := newRoot(t, vm, "")
	s, _ = ask(t, next, "call known / 1;pause")
	s.Close()
	next.Close()
	must.Is(t, vm.HTTPCallResponse(calls[4].ID, CalloutResponse{}), ErrNoCallout, "root is gone")
}

// A new configuration makes a second root context; the first ends when its last stream has.
func TestRootsSideBySide(t *testing.T) {
	p := NewProcess(ProcessConfig{})
	vm := newVM(t, p, VMConfig{})
	old := newRoot(t, vm, "property plugin_name")
	s, _ := ask(t, old, "pause")
	next := newRoot(t, vm, "")
	if next.ID() <= s.ID() || s.ID() <= old.ID() {
		t.Errorf("ids %d, %d, %d", old.ID(), s.ID(), next.ID())
	}
	old.Close()
	_, err := old.NewStream(StreamInfo{})
	must.Is(t, err, ErrClosed, "new stream in a closing root")
	must.Equal(t, old.Closed(), false, "the old root went before its stream")
	_, got := ask(t, next, "ids")
	must.Equal(t, got, "2", "root contexts in the guest")
	must.Equal(t, must.Get(s.ResponseHeaders(NewHeaders(":status", "200"), true))(t), Continue, "action")
	s.Close()
	must.Equal(t, [2]bool{old.Closed(), next.Closed()}, [2]bool{true, false}, "closed are the old and the next")
	_, got = ask(t, next, "ids")
	must.Equal(t, got, "1", "root contexts in the guest")
}

// A root that answers false to on_done lives until it calls done.
func TestDoneLater(t *testing.T) {
	vm := newVM(t, NewProcess(ProcessConfig{}), VMConfig{})
	r := newRoot(t, vm, "delaydone;tick 10")
	next := newRoot(t, vm, "")
	r.Close()
	must.EqualOrEnd(t, r.Closed(), false, "gone at once")
	must.OK(t, vm.Tick(r))
	s, got := ask(t, next, fmt.Sprintf("effective %d;done;effective 0", r.ID()))
	if got != "0|0|0" || !r.Closed() || r.TickPeriod() != 10*time.Millisecond { // which only the guest sets
		t.Errorf("statuses %s, closed %v, period %v", got, r.Closed(), r.TickPeriod())
	}
	must.Is(t, vm.Tick(r), ErrClosed, "tick")
	s.Close()
}

func TestTrapFailsTheVMForGood(t *testing.T) {
	p := NewProcess(ProcessConfig{Clusters: map[string]string{"c": "x"}})
	var id uint32
	vm := newVM(t, p, VMConfig{ID: "vm", OnCallout: func(c Callout) { id = c.ID }})
	other := newVM(t, p, VMConfig{ID: "vm"})
	r := newRoot(t, vm, "")
	waiting, _ := ask(t, r, "call c / 5;pause")
	s := newStream(t, r)
	_, err := s.RequestHeaders(NewHeaders("x-do", "panic"), true)
	if !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "on_request_headers") {
		t.Errorf("error %v", err)
	}
	if err := vm.HTTPCallResponse(id, CalloutResponse{}); !errors.Is(err, ErrFailed) || !waiting.Paused(Request) {
		t.Errorf("an answer reached a failed VM: %v", err)
	}
	_, err = r.NewStream(StreamInfo{})
	must.Is(t, err, ErrFailed, "new stream")
	must.Is(t, vm.Tick(r), ErrFailed, "tick")
	waiting.Close()
	s.Close()
	_, got := ask(t, newRoot(t, other, ""), "ids")
	must.Equal(t, got, "1", "the other VM")
}

func TestBodies(t *testing.T) {
	r := newRoot(t, newVM(t, NewProcess(ProcessConfig{}), VMConfig{}), "")
	s, _ := ask(t, r, "")
	for _, step := range []struct {
		in, out string
		end     bool
		action  Action
	}{
		{"plain", "plain", false, Continue},
		{"mark me", "MARK ME", false, Continue},
		{"hold ", "", false, Pause},
		{"on", "hold on", true, Continue},
	} {
		out, action, err := s.Body(Request, []byte(step.in), step.end)
		if err != nil || string(out) != step.out || action != step.action {
			t.Errorf("%q: got %q, %d, %v", step.in, out, action, err)
		}
	}
	trailers := NewHeaders("a", "b")
	if a, err := s.Trailers(Request, trailers); a != Continue || err != nil || trailers.Value("x-trailers") != "1" {
		t.Errorf("trailers %v, %d, %v", trailers, a, err)
	}
	must.Get(s.ResponseHeaders(NewHeaders(":status", "200"), false))(t)
	if out, _, err := s.Body(Response, []byte("mark it"), true); err != nil || string(out) != "MARK IT" {
		t.Errorf("response body %q, %v", out, err)
	}
	must.Equal(t, must.Get(s.Trailers(Response, trailers))(t), Continue, "action")
}

// pausedWith is a stream whose headers are paused, in a plugin with the option or without; a tick
// continues it.
func pausedWith(t *testing.T, vm *VM, headersOnly bool) (*Root, *Stream) {
	t.Helper()
	r := must.Get(vm.NewRoot(Plugin{AllowOnHeadersStopIteration: headersOnly}))(t)
	s, _ := ask(t, r, "pause;wait continue 0")
	must.EqualOrEnd(t, [2]bool{s.Paused(Request), s.Stopped(Request)}, [2]bool{true, !headersOnly}, "paused, and stopped")
	return r, s
}

// Headers that pause stop the body and trailers with them, until the plugin continues the stream.
func TestHeadersStopEverything(t *testing.T) {
	vm := newVM(t, NewProcess(ProcessConfig{}), VMConfig{})
	r, s := pausedWith(t, vm, false)
	if out, action, err := s.Body(Request, []byte("plain"), false); out != nil || action != Pause || !errors.Is(err, ErrStopped) {
		t.Errorf("body: got %q, %v, %v", out, action, err)
	}
	if action, err := s.Trailers(Request, NewHeaders("a", "b")); action != Pause || !errors.Is(err, ErrStopped) {
		t.Errorf("trailers: got %v, %v", action, err)
	}
	must.OK(t, vm.Tick(r))
	if out, action, err := s.Body(Request, []byte("mark it"), true); string(out) != "MARK IT" || action != Continue || err != nil {
		t.Errorf("continued: got %q, %v, %v", out, action, err)
	}
}

// With the option headers alone wait. A callback of the rest that answers Continue lets them go on,
// what else it answers says what is kept, and the plugin's continuing lets all of that go on.
func TestHeadersStopAlone(t *testing.T) {
	vm := newVM(t, NewProcess(ProcessConfig{}), VMConfig{})
	for _, test := range []struct {
		chunks   []string
		paused   bool
		released string // by the callbacks, or by continuing the stream
	}{
		{[]string{"plain"}, false, "plain"},
		{[]string{"hold ", "mark"}, true, "hold mark"},
		{[]string{"wait ", "wait for it"}, true, "wait wait for it"},
		{[]string{"wait ", "mark"}, false, "wait MARK"}, // it sees the second part alone
	} {
		r, s := pausedWith(t, vm, true)
		var released []byte
		for _, c := range test.chunks {
			out, _, err := s.Body(Request, []byte(c), false)
			must.OK(t, err)
			released = append(released, out...)
		}
		if s.Paused(Request) != test.paused || test.paused && len(released) > 0 {
			t.Errorf("%q: paused %v, and %q went on", test.chunks, s.Paused(Request), released)
		}
		must.OK(t, vm.Tick(r))
		if released = append(released, s.TakeBody(Request)...); s.Paused(Request) || string(released) != test.released {
			t.Errorf("%q: paused %v, and %q went on, want %q", test.chunks, s.Paused(Request), released, test.released)
		}
		s.Close()
	}
	_, s := pausedWith(t, vm, true)
	must.Equal(t, must.Get(s.Trailers(Request, NewHeaders("a", "b")))(t), Continue, "trailers: action")
	must.Equal(t, s.Paused(Request), false, "trailers: paused")
}

// The host keeps a part of a body only. Then it answers 413, or reads no more, whichever the plugin
// chose.
func TestBodyAboveTheBuffer(t *testing.T) {
	vm := newVM(t, NewProcess(ProcessConfig{}), VMConfig{})
	half := strings.Repeat(".", bufferLimit/2)
	for _, test := range []struct {
		first         string
		status        uint32
		full, replied bool
	}{{"hold", 413, false, true}, {"wait", 0, true, false}} {
		_, s := pausedWith(t, vm, true)
		for i := range 2 {
			if s.Full(Request) || s.LocalReply() != nil {
				t.Fatalf("%s: full or answered after %d parts", test.first, i)
			}
			if out, action, err := s.Body(Request, []byte(test.first+half), false); out != nil || action != Pause || err != nil {
				t.Fatalf("%s: got %d bytes, %v, %v", test.first, len(out), action, err)
			}
		}
		l := s.LocalReply()
		if s.Full(Request) != test.full || (l != nil) != test.replied || l != nil && l.Status != test.status {
			t.Errorf("%s: full %v, reply %+v", test.first, s.Full(Request), l)
		}
	}
}

// A module without a callback for the body lets a request go on whose headers wait.
func TestNoBodyCallback(t *testing.T) {
	vm := must.Get(startAssembled(t, NewProcess(ProcessConfig{}), abi, malloc,
		function{"proxy_on_request_headers", threeToI32, []byte{constant, 1}}))(t)
	r := must.Get(vm.NewRoot(Plugin{AllowOnHeadersStopIteration: true}))(t)
	s := newStream(t, r)
	must.EqualOrEnd(t, must.Get(s.RequestHeaders(NewHeaders(), false))(t), Pause, "action")
	if out, action, err := s.Body(Request, []byte("body"), true); string(out) != "body" || action != Continue || err != nil || s.Paused(Request) {
		t.Errorf("got %q, %v, %v", out, action, err)
	}
}

func TestMemorySize(t *testing.T) {
	vm := newVM(t, NewProcess(ProcessConfig{}), VMConfig{})
	r := newRoot(t, vm, "")
	before := vm.MemorySize()
	ask(t, r, "grow 20000000")
	must.AtLeast(t, vm.MemorySize(), before+20_000_000, "memory")
	must.Equal(t, before > 0, true, "memory before")
}

func FuzzPairs(f *testing.F) {
	f.Add(appendPairs(nil, NewHeaders(":path", "/", "x", "")))
	f.Add([]byte{1, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := parsePairs(b)
		if !ok {
			return
		}
		again, ok := parsePairs(appendPairs(nil, h))
		must.Equal(t, ok, true, "%v is read again", h.fields)
		must.Same(t, again.fields, h.fields, "fields")
	})
}

func TestHeaders(t *testing.T) {
	h := NewHeaders("A", "1", "b", "2", "a", "3", "c")
	must.Same(t, h.Values("A"), []string{"1", "3"}, "values")
	h.Set("A", "4")
	h.Set("d", "5")
	h.Del("B")
	var got []string
	for name, value := range h.All() {
		got = append(got, name+"="+value)
		if name == "d" {
			break
		}
	}
	must.Same(t, got, []string{"a=4", "c=", "d=5"}, "")
}
