package filter

import (
	"math/rand/v2"
	"strconv"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/config"
	"weir/internal/node"
	"weir/internal/proxywasm"
	"weir/internal/usage"
)

// plugin is a plugin context: one configuration, and the memory that its requests share one after
// the other.
type plugin struct {
	types.DefaultPluginContext
	id     uint32
	config *config.Config
	node   *node.Node    // nil if the plugin has not started
	rules  []requestRule // what they match, and whom they count
	limits []node.Rule
	// costsLater reports whether any rule counts what the response costs.
	costsLater bool
	// charges reports whether any rule puts right what a request has taken when its response has
	// told what it costs. open are streams whose bodies tell it.
	charges  bool
	says     bool // any of them by what the request says
	open     []*stream
	nextOpen int
	// cuts reports whether any rule ends streams. piece is what is sent in the place of another one.
	piece   []byte
	readers []*usage.Reader // to be used again
	// readsBodies reports whether any rule takes what the request's body says. waiting are requests
	// whose bodies have not said it yet.
	readsBodies bool
	bringing    bringing
	waiting     []*stream
	idleTold    []*told // to be used again

	request request
	demands []node.Demand // of the request being decided
	backend backend
	metrics metrics
	answer  answer
	shadows shadows
	idle    []*stream // to be used again, maxIdle at most

	vm      *VM
	leaving bool // the proxy wants the plugin context no more, and waits until it is done
}

const (
	// maxIdleKey bounds the bytes that are kept for a key of the next request.
	maxIdleKey = 4096
)

// idleTickMillis is how often metrics are published if there is no backend to synchronise with.
const idleTickMillis = 1000

// OnPluginStart implements types.PluginContext. It refuses a configuration with mistakes, and logs
// all of them.
func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	document, _ := proxywasm.PluginConfiguration()
	parsed, err := config.Parse(document)
	if err != nil {
		proxywasm.Log(proxywasm.LogError, "weir: configuration refused: "+err.Error())
		return types.OnPluginStartStatusFailed
	}
	p.config = parsed
	p.compile()
	if p.node, err = node.New(p.options()); err != nil {
		p.rules = nil // no request is decided
		proxywasm.Log(proxywasm.LogError, "weir: open the table of counters: "+err.Error())
		return types.OnPluginStartStatusFailed
	}
	for i := range p.rules {
		if v := p.rules[i].variants; v != nil {
			v.make(&parsed.Rules[i], &p.limits[i], &p.answer.rules[i])
		}
	}
	table := p.node.Table()
	if !table.Fits(parsed.Capacity) {
		proxywasm.Log(proxywasm.LogWarn, "weir: namespace "+parsed.Namespace+
			": the changed capacity takes full effect when the proxy has restarted")
	}
	p.metrics.define(parsed, p.limits)
	p.shadows = shadows{node: p.node, rules: p.metrics.rules}
	tick := uint32(idleTickMillis)
	if p.node.Synchronises() {
		p.backend.node = p.node
		p.node.CatchUp()
		p.metrics.bound(p.node)
		p.vm.plugins = append(p.vm.plugins, p)
		tick = p.node.TickMillis()
	}
	proxywasm.SetTickPeriod(tick)
	proxywasm.Log(proxywasm.LogInfo, "weir: namespace "+parsed.Namespace+": "+strconv.Itoa(len(p.rules))+" rules, "+
		strconv.Itoa(table.Pages())+" pages of counters")
	return types.OnPluginStartStatusOK
}

// compile makes what requests need from the configuration.
func (p *plugin) compile() {
	p.request.properties, p.request.shared, p.costsLater, p.charges = p.request.properties[:0], false, false, false
	p.readsBodies, p.says = false, false
	p.rules, p.limits = make([]requestRule, len(p.config.Rules)), make([]node.Rule, len(p.config.Rules))
	for i := range p.config.Rules {
		c := &p.config.Rules[i]
		p.rules[i] = p.request.compile(c)
		p.rules[i].variants = p.request.compileVariants(c)
		p.costsLater = p.costsLater || p.rules[i].costsLater
		p.charges = p.charges || p.rules[i].charges
		p.says = p.says || p.rules[i].says
		p.readsBodies = p.readsBodies || p.rules[i].cost.path != nil
		l := &p.limits[i]
		l.Limits, l.SyncRate, l.Prefix = c.Limits, int64(c.SyncRate), p.rules[i].keyPrefix
		l.CountRejected, l.CostsLater, l.Shadow, l.Reveal = c.CountRejected, p.rules[i].costsLater || p.rules[i].charges, c.Shadow, c.Reveal
		l.WarnAt = c.WarnAt
		if p.rules[i].variants != nil {
			l.Widest = c.Widest()
		}
	}
	p.demands = make([]node.Demand, len(p.rules))
	p.answer.compile(p.config)
	for i := range p.limits {
		p.limits[i].Tag = &p.answer.rules[i]
	}
	p.backend = backend{
		context: p.id, config: &p.config.Backend, metrics: &p.metrics, namespace: p.config.Namespace, failure: p.config.OnBackendFailure,
		answered: p.settleOwed,
	}
}

// options are those of the node that counts what the configuration says.
func (p *plugin) options() *node.Options {
	c := p.config
	return &node.Options{
		Namespace: c.Namespace, Data: &proxywasm.SharedData{}, Capacity: c.Capacity, Rules: p.limits, Random: rand.Uint64,
		Host: &p.backend, Timeout: int64(c.Backend.Timeout), Recalls: true,
		OnBackendFailure: node.FailureMode(c.OnBackendFailure), KeySecret: c.Backend.KeySecret, Owner: p, Turned: p.backend.turned,
	}
}

// OnTick implements types.PluginContext.
func (p *plugin) OnTick() {
	if p.node == nil {
		return
	}
	if len(p.open) > 0 {
		p.settleOpen()
	}
	if len(p.waiting) > 0 {
		p.decideWaiting(false)
	}
	p.node.Tick()
	p.settleOwed()
	if p.node.Synchronises() {
		p.metrics.bound(p.node)
	}
	p.metrics.publish(p.node, &p.request)
	if p.leaving && p.left() {
		p.leaving = false
		proxywasm.PluginDone(p.id)
	}
}

// now is the time by the backend's clock, as far as that is known.
func (p *plugin) now() int64 { return p.node.Time(proxywasm.Now()) }

// OnPluginDone implements types.PluginContext. The plugin context stays until nobody waits any more,
// and until it has left.
func (p *plugin) OnPluginDone() bool {
	if p.node == nil {
		return true
	}
	if len(p.waiting) > 0 {
		p.decideWaiting(true)
	}
	p.node.AddHeld(p.now())
	p.vm.remove(p)
	p.metrics.publish(p.node, &p.request)
	p.leaving = !p.left()
	return !p.leaving
}

// left reports whether nothing keeps a plugin context that is not wanted any more. What the backend
// has yet to hear of goes to the plugin context that has replaced this one. If there is none, this one
// stays for a while to push it.
func (p *plugin) left() bool {
	if !p.node.Synchronises() {
		return true
	}
	if p.node.Waits() {
		return false
	}
	p.settleOwed()
	if heir := p.vm.heir(p); heir != nil {
		heir.node.Inherit(p.node)
		return true
	}
	p.node.Leave()
	return p.node.Left()
}

// NewHttpContext implements types.PluginContext. Streams are used again, so that a stream allocates
// nothing.
func (p *plugin) NewHttpContext(id uint32) types.HttpContext {
	var s *stream
	if n := len(p.idle); n > 0 {
		s = p.idle[n-1]
		p.idle = p.idle[:n-1]
	} else {
		s = &stream{plugin: p}
		s.wait.Waiter = s
	}
	s.id = id
	return s
}
