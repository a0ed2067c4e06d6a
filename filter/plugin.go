package filter

import (
	"strconv"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/config"
	"weir/internal/proxywasm"
	"weir/sharedata"
)

// plugin is a plugin context: one configuration, and the memory that its requests share one after the other.
type plugin struct {
	types.DefaultPluginContext
	id      uint32
	config  *config.Config
	rules   []rule // what they match, and whom they count
	counted []Rule // the same, as they count
	table   *sharedata.Table
	// charging tells whether any rule charges when the response is there.
	charging bool

	request request
	matches []match // of the request being decided
	entry   []byte  // an encoded cell
	held    []heldHits
	sync    *syncer // nil if the configuration counts in this proxy only
	alone   bool    // whether the request is decided without the backend
	nodes   uint64  // that share the limits, 0 if that is not known
	tallies Tallies
	metrics metrics
	answer  answer
	idle    []*stream

	vm      *VM
	leaving bool
	leaveBy int64

	// Last, as it is large and has no pointers: the collector doesn't look behind the last pointer.
	refusals refusals
}

const (
	// idleTickMillis is how often metrics are published if there is no backend to synchronise with.
	idleTickMillis = 1000
	// leaveNanos is how long a plugin context that is no longer wanted waits for the backend's answers.
	leaveNanos = int64(5e9)
)

// OnPluginStart implements types.PluginContext. It refuses a configuration with mistakes, and logs all of them.
func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	document, _ := proxywasm.PluginConfiguration()
	parsed, err := config.Parse(document)
	if err != nil {
		proxywasm.Log(proxywasm.LogError, "weir: configuration refused: "+err.Error())
		return types.OnPluginStartStatusFailed
	}
	p.config = parsed
	p.compile()
	p.table, err = sharedata.Open(&proxywasm.SharedData{}, sharedata.Options{
		Namespace:       parsed.Namespace,
		Capacity:        parsed.Capacity,
		BytesPerCounter: p.bytesPerCounter(),
	}, p.vm.rand().Uint64)
	if err != nil {
		p.rules = nil // no request is decided
		proxywasm.Log(proxywasm.LogError, "weir: open the table of counters: "+err.Error())
		return types.OnPluginStartStatusFailed
	}
	if !p.table.Fits(parsed.Capacity) {
		proxywasm.Log(proxywasm.LogWarn, "weir: namespace "+parsed.Namespace+
			": the changed capacity takes full effect when the proxy has restarted")
	}
	p.metrics.define(parsed)
	tick := uint32(idleTickMillis)
	if parsed.SyncRate >= 0 {
		p.sync = newSyncer(p)
		p.share(uint64(p.sync.link.shared.nodes))
		p.vm.plugins = append(p.vm.plugins, p)
		tick = p.sync.tickMillis
	}
	proxywasm.SetTickPeriod(tick)
	proxywasm.Log(proxywasm.LogInfo, "weir: namespace "+parsed.Namespace+": "+strconv.Itoa(len(p.rules))+" rules, "+
		strconv.Itoa(p.table.Pages())+" pages of counters")
	return types.OnPluginStartStatusOK
}

// compile makes what requests need from the configuration.
func (p *plugin) compile() {
	p.request.properties, p.request.shared, p.charging = p.request.properties[:0], false, false
	p.rules, p.counted = make([]rule, len(p.config.Rules)), make([]Rule, len(p.config.Rules))
	for i := range p.config.Rules {
		c, counted := &p.config.Rules[i], &p.counted[i]
		p.rules[i] = p.request.compile(c)
		p.charging = p.charging || p.rules[i].charged
		counted.Limits, counted.CountRejected, counted.Index = c.Limits, c.CountRejected, i
		if p.config.SyncRate >= 0 {
			counted.SyncRate = p.syncRate()
		}
		counted.Revocable = len(p.config.Rules) > 1
		counted.Compile()
	}
	p.matches = make([]match, len(p.rules))
	p.answer.compile(p.config)
	p.refusals = refusals{}
	p.held = nil
}

// share tells the rules how many nodes share their limits.
func (p *plugin) share(nodes uint64) {
	if p.nodes == nodes {
		return
	}
	p.nodes = nodes
	for i := range p.counted {
		p.counted[i].Share(nodes)
		p.metrics.rules[i].overshoot.set(p.counted[i].Overshoot())
	}
}

// syncRate is the interval between two pushes of a key in nanoseconds. Where the backend decides every request there are pushes too: of
// what was counted while it was away, and what responses cost.
func (p *plugin) syncRate() int64 {
	if p.config.SyncRate == 0 {
		return second
	}
	return int64(p.config.SyncRate)
}

// bytesPerCounter is what a counter of the largest rule takes.
func (p *plugin) bytesPerCounter() int {
	extra := 0
	for i := range p.counted {
		extra = max(extra, p.counted[i].ExtraBytes())
	}
	return sharedata.BytesPerCounter + extra
}

// OnTick implements types.PluginContext.
func (p *plugin) OnTick() {
	if p.table == nil {
		return
	}
	p.addHeld(p.now())
	if p.sync != nil {
		p.sync.tick()
	}
	p.metrics.publish(&p.tallies)
	if p.leaving && (!p.sync.unfinished() || p.now() > p.leaveBy) {
		p.leaving = false
		proxywasm.PluginDone()
	}
}

// now is the time by the backend's clock, as far as that is known.
func (p *plugin) now() int64 {
	now := proxywasm.Now()
	if p.sync != nil {
		now += p.sync.link.offset
	}
	return now
}

// OnPluginDone implements types.PluginContext. What the backend has yet to hear of goes to the plugin context that has replaced
// this one; if there is none, this one stays for a while to push it.
func (p *plugin) OnPluginDone() bool {
	if p.table == nil {
		return true
	}
	now := p.now()
	p.addHeld(now)
	p.metrics.publish(&p.tallies)
	p.vm.remove(p)
	if p.sync == nil {
		return true
	}
	p.sync.releaseAll()
	if !p.sync.unfinished() {
		return true
	}
	if heir := p.vm.heir(p); heir != nil {
		heir.sync.inherit(p.sync)
		return true
	}
	p.leaving, p.leaveBy = true, now+leaveNanos
	p.sync.pushAll()
	return false
}

// NewHttpContext implements types.PluginContext. Streams are used again, so that a stream allocates nothing.
func (p *plugin) NewHttpContext(id uint32) types.HttpContext {
	var s *stream
	if n := len(p.idle); n > 0 {
		s = p.idle[n-1]
		p.idle = p.idle[:n-1]
	} else {
		s = &stream{plugin: p}
		s.wait.waiter = s
	}
	s.id = id
	return s
}

// rule is a rule as requests need it: whether it matches, and what it counts for which key.
type rule struct {
	match matcher
	// keyPrefix begins the rule's keys: its name with its length before it.
	keyPrefix []byte
	key       []part
	cost      cost
	// onResponse is what is charged when the response is there, if charged says so.
	charged    bool
	onResponse cost
}
