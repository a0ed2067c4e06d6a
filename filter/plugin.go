package filter

import (
	"math/rand/v2"
	"strconv"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/config"
	"weir/internal/engine"
	"weir/internal/proxywasm"
)

// plugin is a plugin context: one configuration, and its streams.
type plugin struct {
	types.DefaultPluginContext
	id       uint32
	config   *config.Config
	streams  streams
	backend  backend
	backends *backends // of all plugin contexts
	inFlight inFlight  // for rules that hold places
	leaving  bool      // the proxy has closed the plugin context, and waits until it is done
}

// idleTickMillis is how often metrics are published without a backend, in milliseconds.
const idleTickMillis = 1000

// OnPluginStart implements types.PluginContext. It refuses a configuration with mistakes, and logs
// all of them.
func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	document, _ := proxywasm.PluginConfiguration()
	parsed, err := config.ParseIn(document, p.streams.rules.request.ofProxy)
	if err != nil {
		proxywasm.Log(proxywasm.LogError, "weir: configuration refused: "+err.Error())
		return types.OnPluginStartStatusFailed
	}
	p.config = parsed
	all := &p.streams
	all.rules.compile(parsed)
	all.answer.compile(parsed, &all.rules)
	p.backend = backend{
		context: p.id, config: &parsed.Backend, metrics: &all.metrics, namespace: parsed.Namespace, failure: parsed.OnBackendFailure,
		answered: all.shadows.measures.settleOwed,
	}
	n, err := engine.New(p.options())
	if err != nil {
		all.rules.list, all.rules.only = nil, nil // no request is decided
		proxywasm.Log(proxywasm.LogError, "weir: open the table of counters: "+err.Error())
		return types.OnPluginStartStatusFailed
	}
	table := n.Table()
	all.rules.makeVariants(table)
	if !table.Fits(parsed.Capacity) {
		proxywasm.Log(proxywasm.LogWarn, "weir: namespace "+parsed.Namespace+
			": its table was made for another capacity, or for smaller counters: they may be evicted early, until a restart of the proxy in which this filter is the first of the namespace")
	}
	all.metrics.defineAll(parsed, &all.rules)
	if all.rules.holds {
		p.inFlight = newInFlight(&proxywasm.SharedData{}, parsed.Namespace, rand.Uint64())
	}
	all.setNode(n)
	all.usage.compile(parsed.UsagePath, &all.rules.request)
	tick := uint32(idleTickMillis)
	if n.Synchronises() {
		p.backend.node = n
		n.CatchUp()
		p.backends.add(&p.backend)
		tick = n.TickMillis()
	}
	proxywasm.SetTickPeriod(tick)
	proxywasm.Log(proxywasm.LogInfo, "weir: namespace "+parsed.Namespace+": "+strconv.Itoa(len(all.rules.list))+" rules, "+
		strconv.Itoa(table.Pages())+" pages of counters")
	return types.OnPluginStartStatusOK
}

func (p *plugin) options() *engine.Options {
	c := p.config
	options := &engine.Options{
		Namespace: c.Namespace, Data: &proxywasm.SharedData{}, Capacity: c.Capacity, Rules: p.streams.rules.limits, Random: rand.Uint64,
		Host: &p.backend, Timeout: int64(c.Backend.Timeout), Recalls: true,
		OnBackendFailure: c.OnBackendFailure, KeySecret: c.Backend.KeySecret, Configuration: c.Digest, Owner: &p.streams.rules, Turned: p.backend.turned,
	}
	if old := p.backends.heir(&p.backend); old != nil {
		options.Before = old.node
	}
	if p.streams.rules.holds {
		options.InFlight = p.streams.responses.holders.eachCharge
	}
	return options
}

// OnTick implements types.PluginContext.
func (p *plugin) OnTick() {
	all := &p.streams
	n := all.decider.node
	if n == nil {
		return
	}
	all.responses.settleOpen()
	all.responses.renewPlaces()
	all.decideWaiting(false)
	n.Tick()
	all.shadows.measures.settleOwed()
	if n.Synchronises() {
		all.metrics.publishBounds(n)
	}
	all.metrics.publishCounts(n, &all.rules.request, &all.responses.holders)
	if all.rules.holds {
		p.inFlight.publishPlaces(&all.metrics, &all.responses.holders)
	}
	if p.leaving && p.left() {
		p.leaving = false
		p.end()
		proxywasm.PluginDone(p.id)
	}
}

// OnPluginDone implements types.PluginContext. The plugin context stays until no request waits or
// holds places, and its node has left.
func (p *plugin) OnPluginDone() bool {
	all := &p.streams
	n := all.decider.node
	if n == nil {
		return true
	}
	all.decideWaiting(true)
	n.Retry(all.decider.now())
	p.backends.remove(&p.backend)
	all.metrics.publishCounts(n, &all.rules.request, &all.responses.holders)
	if p.leaving = !p.left(); !p.leaving {
		p.end()
	}
	return !p.leaving
}

// end is the last that the plugin context does. Envoy's timer of a context that is gone would run on.
func (p *plugin) end() {
	p.streams.metrics.leave()
	proxywasm.SetTickPeriod(0)
}

// left reports whether a closed plugin context can go. Hits that the backend does not know yet go
// to the plugin context that has replaced this context. Without a replacement, this context stays
// for a while to push them.
func (p *plugin) left() bool {
	n := p.streams.decider.node
	if p.streams.responses.holders.first != nil {
		return false // only this context can give back their places
	}
	if n.Waits() {
		return false
	}
	if !n.Synchronises() {
		return true
	}
	p.streams.shadows.measures.settleOwed()
	if heir := p.backends.heir(&p.backend); heir != nil {
		heir.node.Inherit(n)
		return true
	}
	n.Leave()
	return n.Left()
}

// NewHttpContext implements types.PluginContext.
func (p *plugin) NewHttpContext(id uint32) types.HttpContext { return p.streams.newStream(id) }

// OnRequest implements proxywasm.Plugin.
func (p *plugin) OnRequest(id uint32, end bool) (types.HttpContext, types.Action) {
	all := &p.streams
	s := all.brief
	if s == nil {
		s = all.newStream(id)
		all.brief = s
	}
	s.id = id
	action := s.OnHttpRequestHeaders(0, end)
	if s.remains() {
		all.brief = nil
		return s, action
	}
	if s.decorate {
		s.decorateResponse()
	}
	s.end()
	return nil, action
}
