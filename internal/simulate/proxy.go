package simulate

import (
	"fmt"
	"math"
	"strings"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/filter"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/heap"
	"weir/internal/proxywasm"
	"weir/internal/simulate/accesslog"
	"weir/sharedata"
	"weir/window"
)

// proxy runs the plugin on the requests of logs. Its clock is that of the logs.
type proxy struct {
	plugin   types.PluginContext
	document []byte
	data     sharedata.Map
	page     []byte // the last page that was read from data
	request  *accesslog.Request
	stream   uint32
	refused  bool
	// decided and measured receive decisions, with the request if it waited for room.
	decided  func(demands []engine.Check, refused bool, waited *delayed)
	measured func(demand []engine.Check, waited *delayed)
	charged  func(rule int, hits int64)
	// asked are the parts that rules have asked for.
	asked   []asked
	asking  bool
	value   []byte // the last value that was asked for
	log     []string
	metrics map[string]uint64
	names   []string // of metrics

	now int64
	// holds says that requests take as long as in the log, and hold places meanwhile. open are
	// these requests, and tickedAt is when the plugin last renewed their places. asks and answered
	// keep their keys.
	holds    bool
	open     heap.Of[*openStream]
	tickedAt int64
	asks     func() []int32
	answered func(keys []int32)

	// waiting are requests that wait for room, by their streams. settled are requests that a tick
	// has let pass or refused. While any request waits, a tick is due at tickAt.
	waiting        map[uint32]*delayed
	settled        []*delayed
	context        uint32
	period, tickAt int64
}

// delayed is a request that waits for room.
type delayed struct {
	request accesslog.Request
	stream  types.HttpContext
	keys    []int32
	// waited is the time that it has waited, in nanoseconds. refused says that it did not get room.
	waited  int64
	refused bool
}

// openStream is a request under way.
type openStream struct {
	ends    int64
	request accesslog.Request
	stream  types.HttpContext
	keys    []int32
}

// Before has the request first that ends first.
func (o *openStream) Before(other *openStream) bool { return o.ends < other.ends }

// Placed does nothing.
func (*openStream) Placed(int) {}

// finish lets all requests end.
func (p *proxy) finish() {
	defer proxywasm.Use(p)()
	for len(p.open)+len(p.waiting) > 0 {
		p.until(p.next())
	}
}

// next returns the time at which a request ends, or a tick is due.
func (p *proxy) next() int64 {
	at := int64(math.MaxInt64)
	if len(p.open) > 0 {
		at = min(p.open[0].ends, p.tickedAt+window.RenewEvery/2)
	}
	if len(p.waiting) > 0 {
		at = min(at, p.tickAt)
	}
	return at
}

// tick runs the plugin's tick, then completes the waiting requests that it has let pass or refused.
func (p *proxy) tick() {
	p.tickedAt, p.tickAt, p.asking = p.now, p.now+p.period, false
	p.plugin.OnTick()
	for _, d := range p.settled {
		p.request, p.refused = &d.request, d.refused
		if d.refused {
			d.stream.OnHttpStreamDone()
		} else {
			p.answer(d.stream, d.keys)
		}
	}
	p.settled = p.settled[:0]
}

// answer answers a request that passes, now or at the end that the log has.
func (p *proxy) answer(s types.HttpContext, keys []int32) {
	if lasts, _ := p.request.Lasted(); p.holds && lasts > 0 {
		heap.Push(&p.open, &openStream{p.now + lasts, *p.request, s, keys})
		return
	}
	p.asking = true
	s.OnHttpResponseHeaders(1, true)
	s.OnHttpStreamDone()
}

// until moves the time forward, and ends the requests that end meanwhile.
func (p *proxy) until(now int64) {
	for len(p.open)+len(p.waiting) > 0 {
		next := p.next()
		if next > now {
			break
		}
		if p.now = max(p.now, next); len(p.open) == 0 || next < p.open[0].ends {
			p.tick()
			continue
		}
		o := heap.Pop(&p.open)
		p.request, p.asking = &o.request, true
		p.answered(o.keys)
		o.stream.OnHttpResponseHeaders(1, true)
		o.stream.OnHttpStreamDone()
	}
	p.now = max(p.now, now)
	if len(p.open) == 0 {
		p.tickedAt = p.now
	}
}

// asked counts how often a part was asked for.
type asked struct {
	accesslog.Part
	path string // as the plugin writes it
	// requests asked for the part. For unknown requests the log has no word on it.
	requests, unknown int64
}

// The plugin runs on the proxy.
var (
	_ proxywasm.Host  = (*proxy)(nil)
	_ filter.Observer = (*proxy)(nil)
)

// start returns a proxy on which the plugin runs.
func start(document []byte) (*proxy, error) {
	p := &proxy{document: document, metrics: map[string]uint64{}, waiting: map[uint32]*delayed{}, stream: 1, period: 1e9}
	p.decided = func([]engine.Check, bool, *delayed) {}
	p.measured = func([]engine.Check, *delayed) {}
	p.charged = func(int, int64) {}
	p.asks = func() []int32 { return nil }
	vm := &filter.VM{}
	vm.Observer = p
	defer proxywasm.Use(p)()
	p.plugin = vm.NewPluginContext(1)
	if p.plugin.OnPluginStart(len(document)) != types.OnPluginStartStatusOK {
		return nil, fmt.Errorf("the plugin does not start: %s", strings.Join(p.log, "; "))
	}
	return p, nil
}

// send makes the plugin decide a request, and reports whether the request is refused or waits.
func (p *proxy) send(r *accesslog.Request) (refused, waits bool) {
	defer proxywasm.Use(p)()
	p.until(r.Time)
	p.request, p.refused, p.asking = r, false, true
	p.stream++
	p.context = p.stream
	s := p.plugin.NewHttpContext(p.stream)
	switch passes := s.OnHttpRequestHeaders(len(r.Fields), true) == types.ActionContinue; {
	case passes:
		p.answer(s, p.asks())
	case p.refused:
		s.OnHttpStreamDone()
	default:
		if len(p.waiting) == 0 && p.tickAt <= p.now {
			p.tickAt = p.now + p.period
		}
		p.waiting[p.stream] = &delayed{request: *r, stream: s, keys: p.asks()}
		return false, true
	}
	return p.refused, false
}

// total returns the sum of a metric over all its labels.
func (p *proxy) total(name string) (sum uint64) {
	defer proxywasm.Use(p)()
	p.plugin.OnTick()
	for full, n := range p.metrics {
		if strings.HasSuffix(full, ";.;"+name) {
			sum += n
		}
	}
	return sum
}

// Decided implements filter.Observer. Parts that the plugin asks for later are for the response.
func (p *proxy) Decided(demands []engine.Check, verdict counter.Verdict) {
	p.asking = false
	d := p.waiting[p.context]
	if d != nil {
		delete(p.waiting, p.context)
		d.waited, d.refused = p.now-d.request.Time, verdict == counter.Rejected
		p.settled = append(p.settled, d)
	}
	p.decided(demands, verdict == counter.Rejected, d)
}

// Measured implements filter.Observer. The request is that which the running tick settled last, if there is one.
func (p *proxy) Measured(demand []engine.Check) {
	var settled *delayed
	if len(p.settled) > 0 {
		settled = p.settled[len(p.settled)-1]
	}
	p.measured(demand, settled)
}

func (p *proxy) Charged(rule int, hits int64) { p.charged(rule, hits) }

// find returns a part of the request in the log.
func (p *proxy) find(kind accesslog.PartKind, path string) (value []byte, found bool) {
	a := p.ask(kind, path)
	f := p.request.Find(kind, a.Name)
	if p.asking {
		if a.requests++; f == nil {
			a.unknown++
		}
	}
	if f == nil || f.Absent {
		return nil, false
	}
	p.value = append(p.value[:0], f.Value...)
	return p.value, true
}

func (p *proxy) ask(kind accesslog.PartKind, path string) *asked {
	for i := range p.asked {
		if a := &p.asked[i]; a.path == path && a.Kind == kind {
			return a
		}
	}
	p.asked = append(p.asked, asked{
		Part: accesslog.Part{Kind: kind, Name: strings.ReplaceAll(path, "\x00", ".")}, path: path,
	})
	return &p.asked[len(p.asked)-1]
}

// The rest is what the plugin asks of the proxy. A log has no bodies, each header as a single line, and
// nothing to change; there is no later filter, and no backend.

func (p *proxy) Log(level proxywasm.LogLevel, message string) {
	if level != proxywasm.LogInfo {
		p.log = append(p.log, message)
	}
}

func (p *proxy) Now() int64 { return p.now }

func (p *proxy) SetTickPeriod(millis uint32) {
	p.period = int64(millis) * 1e6
	p.tickAt = p.now + p.period
}

func (p *proxy) PluginConfiguration() ([]byte, bool) { return p.document, true }

func (p *proxy) RequestHeader(name string) ([]byte, bool) {
	if name == "x-weir-over" && p.request.Find(accesslog.Header, name) == nil {
		return nil, false // a rule that marks looks whether the client has sent it: no log tells, and it counts for nothing
	}
	return p.find(accesslog.Header, name)
}

func (p *proxy) RequestLines(name, _ string) (values []byte, lines int) {
	values, found := p.RequestHeader(name)
	if !found {
		return nil, 0
	}
	return values, 1
}

func (p *proxy) ResponseHeader(name string) ([]byte, bool) {
	return p.find(accesslog.ResponseHeader, name)
}

func (p *proxy) SendLocalResponse(*proxywasm.LocalResponse) bool {
	p.refused = true
	return true
}

func (p *proxy) Property(path string) ([]byte, bool) { return p.find(accesslog.Property, path) }

func (p *proxy) GetSharedData(key []byte) (data []byte, cas uint32, found bool) {
	p.page, cas, found = p.data.Get(key, p.page)
	return p.page, cas, found
}

func (p *proxy) SetSharedData(key, value []byte, cas uint32) bool {
	return p.data.Set(key, value, cas)
}

func (p *proxy) SetContext(id uint32) {
	if p.context = id; p.waiting[id] != nil {
		p.request = &p.waiting[id].request
	}
}

func (p *proxy) DefineMetric(name string, _ bool) proxywasm.Metric {
	p.names = append(p.names, name)
	return proxywasm.Metric(len(p.names) - 1)
}

func (p *proxy) AddMetric(m proxywasm.Metric, n uint64) { p.metrics[p.names[m]] += n }
func (p *proxy) SetMetric(m proxywasm.Metric, n uint64) { p.metrics[p.names[m]] = n }

func (*proxy) ReplaceRequestBody(int, []byte)       {}
func (*proxy) ReplaceResponseBody(int, []byte)      {}
func (*proxy) ReplaceResponseHeader(string, []byte) {}
func (*proxy) ReplaceRequestHeader(string, []byte)  {}
func (*proxy) RemoveRequestHeader(string)           {}
func (*proxy) ClearRouteCache()                     {}
func (*proxy) SetProperty(string, []byte)           {}
func (*proxy) ResumeRequest()                       {}
func (*proxy) PluginDone()                          {}
func (*proxy) Dispatch(*proxywasm.Callout) bool     { return false }
func (*proxy) CalloutHeader(string) ([]byte, bool)  { return nil, false }
func (*proxy) CalloutBody(int) ([]byte, bool)       { return nil, false }
func (*proxy) RequestBody(int, int) ([]byte, bool)  { return nil, false }
func (*proxy) ResponseBody(int, int) ([]byte, bool) { return nil, false }
