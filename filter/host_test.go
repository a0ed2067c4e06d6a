package filter_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/filter"
	"weir/internal/must"
	"weir/internal/proxywasm"
	"weir/sharedata"
)

// fakeProxy is a proxy process with several workers: what their VMs share, and a clock. It behaves
// as Envoy does, and allocates nothing where the filter must not either.
type fakeProxy struct {
	t       testing.TB
	shared  sharedata.Map
	value   []byte // that was got last
	setting []byte // the key that is to be set
	now     int64
	metrics map[string]proxywasm.Metric
	counts  []uint64
	// before runs ahead of each access to shared data, with the VM that makes it.
	before func(v *fakeVM, op string)
	calls  map[string]int
}

const (
	second = int64(1e9)
	minute = 60 * second
	monday = 1_767_571_200 * second
)

func newProxy(t testing.TB) *fakeProxy {
	return &fakeProxy{t: t, now: monday, metrics: map[string]proxywasm.Metric{}, calls: map[string]int{}}
}

type stream = filter.Stream

// pluginContext is the number of every plugin context.
const pluginContext = 1

// fakeVM is one worker's VM with one plugin context.
type fakeVM struct {
	*fakeProxy
	configuration []byte
	filter        *filter.VM
	plugin        *filter.Plugin
	tickMillis    uint32

	request  map[string][]byte
	lines    []byte // of a header, joined
	returned []byte
	source   []byte
	// properties are Envoy's attributes but the source's address, by their names with points.
	properties map[string][]byte
	state      map[string]string // properties of the stream that filters have set
	upstream   map[string]string // headers of its responses
	response   map[string]string
	piece      []byte // of a body
	reply      *fakeReply
	log        []string
	// headersOnly is Envoy's allow_on_headers_stop_iteration: the rest of a request whose headers
	// are paused comes to its callbacks, and a callback that lets it go on lets all go on.
	headersOnly bool

	streams uint32
	resumed bool
	context uint32         // the effective one
	ended   map[uint32]int // how often a paused stream was resumed or answered
	refuse  bool           // whether callouts fail at once
	last    *stream        // of pause
	// settle delivers the answers that a paused request waits for.
	settle func(v *fakeVM)

	callouts []callout
	status   string // of the answer being delivered
	foreign  bool   // whether refusals come from somebody else than the backend
	body     []byte
}

type fakeReply struct {
	status  uint32
	details string
	body    string
	grpc    int32
	headers map[string]string
}

type callout struct {
	cluster string
	headers map[string]string
	body    []byte
	done    func(ok bool)
}

// start makes a VM and configures it.
func (p *fakeProxy) start(configuration string) *fakeVM {
	p.t.Helper()
	v := p.vm(configuration)
	must.EqualOrEnd(p.t, v.configure(), types.OnPluginStartStatusOK, "configuration refused: %q", v.log)
	return v
}

func (p *fakeProxy) vm(configuration string) *fakeVM {
	return &fakeVM{fakeProxy: p, configuration: []byte(configuration), source: []byte("10.0.0.1:1234")}
}

// replace makes a plugin context with a new configuration in the same VM, and is done with the old
// one. It reports whether that is gone, or stays for a while.
func (v *fakeVM) replace(configuration string) (next *fakeVM, gone bool) {
	v.t.Helper()
	next = v.vm(configuration)
	next.filter, next.settle, next.streams = v.filter, v.settle, v.streams
	must.EqualOrEnd(v.t, next.configure(), types.OnPluginStartStatusOK, "configuration refused: %q", next.log)
	return next, v.done()
}

func (v *fakeVM) done() bool {
	defer proxywasm.Use(v)()
	defer v.asPlugin()()
	return v.plugin.OnPluginDone()
}

func (v *fakeVM) configure() types.OnPluginStartStatus {
	defer proxywasm.Use(v)()
	if v.filter == nil {
		v.filter = &filter.VM{}
	}
	v.plugin = v.filter.NewPluginContext(pluginContext).(*filter.Plugin)
	return v.plugin.OnPluginStart(len(v.configuration))
}

// send sends a request through a whole stream, and reports whether it passed. Headers are name,
// value, name, value …
func (v *fakeVM) send(headers ...string) (passed bool) {
	v.receive("GET", "/", headers)
	return v.stream()
}

// headers are those that the client gets, by a response or a refusal.
func (v *fakeVM) headers() map[string]string {
	if v.reply != nil {
		return v.reply.headers
	}
	return v.response
}

// receive makes a request the current one.
func (v *fakeVM) receive(method, path string, headers []string) {
	v.request = map[string][]byte{":method": []byte(method), ":path": []byte(path), ":authority": []byte("shop.example")}
	for i := 0; i < len(headers); i += 2 {
		v.request[headers[i]] = []byte(headers[i+1])
	}
	v.response, v.reply = map[string]string{}, nil
}

func (v *fakeVM) stream() (passed bool) {
	defer proxywasm.Use(v)()
	v.streams++
	v.resumed, v.context = false, v.streams
	var s types.HttpContext
	var action types.Action
	if v.streams%2 == 0 { // the native form's host has every other stream
		s, action = v.plugin.OnRequest(v.streams, false)
	} else {
		s = v.plugin.NewHttpContext(v.streams)
		action = s.OnHttpRequestHeaders(len(v.request), false)
	}
	if passed = action == types.ActionContinue; s == nil {
		if passed == (v.reply != nil) {
			v.t.Fatalf("continue is %v after the reply %+v, and the stream is over", passed, v.reply)
		}
		return passed
	}
	rested := passed || v.headersOnly
	if rested {
		passed = v.rest(s)
	}
	for rounds := 0; !passed && v.reply == nil && v.settle != nil; rounds++ {
		if v.settle(v); rounds == 100 {
			v.t.Fatal("a request waits for nothing")
		}
		passed = v.resumed
	}
	if passed && !rested && !v.rest(s) {
		v.t.Fatal("a request that goes on is held back")
	}
	if passed == (v.reply != nil) {
		v.t.Fatalf("continue is %v after the reply %+v", passed, v.reply)
	}
	request := v.request
	v.request = nil // as in Envoy's response phase
	s.OnHttpResponseHeaders(1, true)
	s.OnHttpStreamDone()
	v.request = request
	return passed
}

// rest brings a request's body and trailers, and reports whether one of them went on.
func (v *fakeVM) rest(s types.HttpContext) (passed bool) {
	for _, action := range []types.Action{s.OnHttpRequestBody(1000, false), s.OnHttpRequestBody(10, false), s.OnHttpRequestTrailers(1)} {
		passed = passed || action == types.ActionContinue
	}
	return passed
}

// pause begins a request, and returns its stream if it is paused.
func (v *fakeVM) pause(headers ...string) *stream {
	v.t.Helper()
	v.receive("GET", "/", headers)
	if v.ended == nil {
		v.ended = map[uint32]int{}
	}
	if s, action := v.begin(true); action != types.ActionContinue && v.reply == nil {
		return s
	}
	return nil
}

// begin begins a stream for the current request. end means that the request has no body.
func (v *fakeVM) begin(end bool) (s *stream, action types.Action) {
	defer proxywasm.Use(v)()
	v.streams++
	v.context = v.streams
	s = v.plugin.NewHttpContext(v.streams).(*stream)
	v.last = s
	if action = s.OnHttpRequestHeaders(len(v.request), end); v.context != s.ID() {
		v.t.Fatalf("stream %d left the context of %d", s.ID(), v.context)
	}
	return s, action
}

// reset ends a stream whose client is gone.
func (v *fakeVM) reset(s *stream) {
	defer proxywasm.Use(v)()
	s.OnHttpStreamDone()
}

func (v *fakeVM) tick() {
	defer proxywasm.Use(v)()
	defer v.asPlugin()()
	v.plugin.OnTick()
}

// asPlugin makes the plugin's context the current one, and checks that it is at the end.
func (v *fakeVM) asPlugin() (check func()) {
	v.context = pluginContext
	return func() {
		must.Equal(v.t, v.context, pluginContext, "the context that a callback of the plugin left")
	}
}

func (v *fakeVM) end() {
	if v.ended != nil {
		v.ended[v.context]++
	}
}

// answer delivers an answer to a callout. Status 0 stands for no answer at all.
func (v *fakeVM) answer(c callout, status int, body []byte) {
	defer proxywasm.Use(v)()
	defer v.asPlugin()()
	v.status, v.body = fmt.Sprint(status), body
	c.done(status != 0)
}

// count is a metric of the namespace default.
func (v *fakeVM) count(name string) uint64 {
	v.tick()
	m, ok := v.metrics["weir.weir_namespace=.=default;.;"+name]
	if !ok {
		v.t.Errorf("no metric %s", name)
		return 0
	}
	return v.counts[m]
}

func (v *fakeVM) called(name string) {
	if v.calls != nil {
		v.calls[name]++
	}
}

func (v *fakeVM) Log(_ proxywasm.LogLevel, message string) { v.log = append(v.log, message) }

func (v *fakeVM) Now() int64 {
	v.called("now")
	return v.now
}

func (v *fakeVM) SetTickPeriod(milliseconds uint32) { v.tickMillis = milliseconds }

func (v *fakeVM) PluginConfiguration() ([]byte, bool) { return v.configuration, true }

// The fake has a header of several lines with line feeds between them.
func (v *fakeVM) RequestHeader(name string) ([]byte, bool) {
	v.called("request header")
	value, ok := v.request[name]
	first, _, _ := bytes.Cut(value, []byte("\n"))
	clear(v.returned) // the host writes the next value there
	v.returned = append(v.returned[:0], first...)
	return v.returned, ok
}

func (v *fakeVM) RequestLines(name, separator string) (values []byte, lines int) {
	v.called("request lines")
	value, ok := v.request[name]
	if !ok {
		return nil, 0
	}
	v.lines = v.lines[:0]
	for lines, ok = 0, true; ok; lines++ {
		if lines > 0 {
			v.lines = append(v.lines, separator...)
		}
		var line []byte
		line, value, ok = bytes.Cut(value, []byte("\n"))
		v.lines = append(v.lines, line...)
	}
	return v.lines, lines
}

func (v *fakeVM) ResponseHeader(name string) ([]byte, bool) {
	value, ok := v.upstream[name]
	return []byte(value), ok
}

func (v *fakeVM) RequestBody(start, size int) ([]byte, bool) { return v.ResponseBody(start, size) }

func (v *fakeVM) ResponseBody(start, size int) ([]byte, bool) {
	if start >= len(v.piece) {
		return nil, false
	}
	return v.piece[start:min(start+size, len(v.piece))], true
}

func (v *fakeVM) ReplaceRequestBody(size int, piece []byte) { v.ReplaceResponseBody(size, piece) }

func (v *fakeVM) ReplaceResponseBody(size int, piece []byte) {
	must.Equal(v.t, size, len(v.piece), "bytes that are replaced")
	v.piece = append([]byte(nil), piece...)
}

func (v *fakeVM) ReplaceResponseHeader(name string, value []byte) {
	v.called("replace header")
	if v.response != nil {
		v.response[name] = string(value)
	}
}

func (v *fakeVM) ReplaceRequestHeader(name string, value []byte) {
	v.called("replace request header")
	v.request[name] = append([]byte(nil), value...)
}

func (v *fakeVM) RemoveRequestHeader(name string) {
	v.called("remove request header")
	delete(v.request, name)
}

func (v *fakeVM) ClearRouteCache() { v.called("clear route cache") }

func (v *fakeVM) SendLocalResponse(r *proxywasm.LocalResponse) bool {
	v.called("reply")
	v.end()
	if v.response == nil {
		v.reply = &fakeReply{}
		return true
	}
	v.reply = &fakeReply{status: r.Status, details: r.Details, body: r.Body, grpc: r.GRPCStatus, headers: map[string]string{}}
	r.Headers.Visit(func(name, value string) { v.reply.headers[name] = value })
	if !noHits.Match(v.configuration) {
		v.reply.compare(v.t)
	}
	return true
}

var (
	fullLimit = regexp.MustCompile(`;r=0;t=([0-9]+)`)
	noHits    = regexp.MustCompile(`"(cost|least)": 0|"mark"`)
)

// compare wants no limit without room to say a later t than Retry-After. A request that needs no hit of it may
// pass before.
func (r *fakeReply) compare(t testing.TB) {
	after, err := strconv.Atoi(r.headers["retry-after"])
	if err != nil {
		return
	}
	for _, match := range fullLimit.FindAllStringSubmatch(r.headers["ratelimit"], -1) {
		if next, _ := strconv.Atoi(match[1]); next > after {
			t.Errorf("retry after %d, but %s", after, r.headers["ratelimit"])
		}
	}
}

func (v *fakeVM) Property(path string) ([]byte, bool) {
	v.called("property")
	if value, ok := v.state[path]; ok {
		return []byte(value), true
	}
	if value, ok := v.properties[path]; ok || path != "source\x00address" {
		return value, ok
	}
	return v.source, v.source != nil
}

func (v *fakeVM) SetProperty(name string, value []byte) {
	v.called("set property")
	if v.state == nil {
		v.state = map[string]string{}
	}
	if v.state[name] != string(value) { // it allocates nothing for the same again
		v.state[name] = string(value)
	}
}

func (v *fakeVM) GetSharedData(key []byte) ([]byte, uint32, bool) {
	v.called("get")
	if v.before != nil {
		v.before(v, "get")
	}
	var cas uint32
	var found bool
	v.value, cas, found = v.shared.Get(key, v.value)
	return v.value, cas, found
}

func (v *fakeVM) SetSharedData(key, data []byte, cas uint32) bool {
	v.called("set")
	v.setting = key
	if v.before != nil {
		v.before(v, "set")
	}
	return v.shared.Set(key, data, cas)
}

// race has another worker write what is to be set, if it is there, so that its compare-and-set
// fails.
func (p *fakeProxy) race() {
	if value, _, found := p.shared.Get(p.setting, nil); found {
		p.shared.Set(p.setting, value, 0)
	}
}

func (v *fakeVM) SetContext(id uint32) { v.context = id }

func (v *fakeVM) ResumeRequest() {
	v.resumed = true
	v.end()
}

func (v *fakeVM) Dispatch(c *proxywasm.Callout) bool {
	if v.refuse || c.Cluster == "missing" {
		return false
	}
	sent := callout{cluster: c.Cluster, headers: map[string]string{}, body: append([]byte(nil), c.Body...), done: c.Done}
	c.Headers.Visit(func(name, value string) { sent.headers[name] = value })
	v.callouts = append(v.callouts, sent)
	return true
}

// dispatched takes the callouts that are out.
func (v *fakeVM) dispatched() []callout {
	callouts := v.callouts
	v.callouts = nil
	return callouts
}

func (v *fakeVM) CalloutHeader(name string) ([]byte, bool) {
	if name == "content-type" {
		if v.foreign {
			return []byte("text/plain"), true
		}
		return []byte("application/problem+json"), true
	}
	return []byte(v.status), name == ":status"
}

func (v *fakeVM) CalloutBody(int) ([]byte, bool) { return v.body, true }

func (v *fakeVM) DefineMetric(name string, _ bool) proxywasm.Metric {
	if _, ok := v.metrics[name]; !ok {
		v.metrics[name] = proxywasm.Metric(len(v.counts))
		v.counts = append(v.counts, 0)
	}
	return v.metrics[name]
}

func (v *fakeVM) AddMetric(m proxywasm.Metric, n uint64) { v.counts[m] += n }

func (v *fakeVM) PluginDone() { v.called("done") }

func (v *fakeVM) SetMetric(m proxywasm.Metric, n uint64) { v.counts[m] = n }

// oneRule is a configuration of one rule, keyed by x-user.
func oneRule(limits string) string {
	return `{"rules": [{"name": "per-user", "key": [{"header": "x-user"}], "limits": [` + limits + `]}]}`
}

// want compares response headers with some given as lines of "name: value".
func want(t *testing.T, got map[string]string, lines string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name != "" && got[name] != value {
			t.Errorf("%s: got %q, want %q", name, got[name], value)
		}
	}
}
