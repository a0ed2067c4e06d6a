package filter

import (
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/internal/counter"
	"weir/internal/fields"
	"weir/internal/node"
	"weir/internal/proxywasm"
	"weir/internal/usage"
)

// stream is one request.
type stream struct {
	types.DefaultHttpContext
	plugin *plugin
	id     uint32
	// decorate reports whether the response gets the headers that the request phase has written. A
	// local reply has them already.
	decorate bool
	headers  fields.List
	// answered says whether the proxy has taken a reply in the upstream's place.
	answered bool
	// later are the demands whose costs are counted when the response is there.
	later []later
	// shadows are demands of shadow rules, of a request that waits for the others.
	shadows []shadow
	// charges are what it has taken until its response tells what it costs. said are costs of the response
	// that the request tells itself: they are read while it can be.
	charges []charge
	said    []said
	course  course
	// at is 1 + the place among the plugin's streams whose bodies are read.
	at int
	// told is what the body has told of a request that waits for it; nil of any other.
	told *told
	// wait is the request's place among those that are paused until the backend has been asked.
	wait node.Wait
}

// later is a rule that counts what a request's response costs.
type later struct {
	_ [0]func() // or else Go makes a function that compares values

	node.Saved
	measure *measure // of a shadow rule that has not decided yet
}

// begin forgets the request before.
func (s *stream) begin() {
	s.decorate, s.answered, s.later, s.shadows, s.said = false, false, s.later[:0], s.shadows[:0], s.said[:0]
	if len(s.charges) > 0 || s.at != 0 {
		s.settle()
	}
	s.course = course{}
	if s.told != nil {
		s.plugin.putTold(s.takeTold())
	}
	s.wait.Leave()
}

// OnHttpRequestHeaders implements types.HttpContext: it decides the request.
func (s *stream) OnHttpRequestHeaders(_ int, end bool) types.Action {
	p := s.plugin
	s.begin()
	if p.node != nil && p.node.HoldsHits() {
		p.node.AddHeld(p.now())
	}
	p.request.begin()
	demands, shadows := p.findDemands()
	if len(demands)+len(shadows) == 0 {
		return types.ActionContinue
	}
	if p.readsBodies && !end {
		if unread := s.awaitBody(demands, shadows); unread != nil {
			return s.decideByBody(unread)
		}
		if s.told != nil {
			return types.ActionPause // until its body has come
		}
	}
	return s.decide(demands, shadows)
}

// decide decides a request, or has it wait for the backend.
func (s *stream) decide(demands, shadows []node.Demand) types.Action {
	p := s.plugin
	now := p.now()
	verdict := counter.Allowed
	if len(demands) > 0 {
		verdict = p.node.Decide(demands, now, &s.wait)
	}
	if p.costsLater && verdict != counter.Rejected {
		s.deferCosts(demands)
	}
	if p.says && verdict != counter.Rejected {
		s.say(demands)
		s.say(shadows)
	}
	if len(shadows) > 0 && verdict == counter.Unsure {
		s.keepShadows(shadows, now)
	}
	if verdict == counter.Unsure {
		return types.ActionPause // until Decided is called
	}
	action := s.conclude(demands, now, verdict)
	if len(shadows) > 0 && verdict == counter.Allowed {
		for i := range shadows {
			s.measure(shadows[i:i+1], now)
		}
	}
	return action
}

// Decided implements node.Waiter: it ends the pause of a request.
func (s *stream) Decided(demands []node.Demand, now int64, verdict counter.Verdict) {
	proxywasm.SetContext(s.id)
	if s.conclude(demands, now, verdict) == types.ActionContinue {
		proxywasm.ResumeRequest()
	}
	proxywasm.SetContext(s.plugin.id)
	if verdict == counter.Allowed {
		s.measureKept(now)
	}
	s.shadows = s.shadows[:0]
}

// conclude does what a verdict asks for.
func (s *stream) conclude(demands []node.Demand, now int64, verdict counter.Verdict) types.Action {
	p := s.plugin
	tellDecided(&p.vm.observed, demands, verdict)
	if verdict != counter.Allowed {
		s.later = s.later[:0]
		for i := range demands {
			p.metrics.rules[demands[i].Rule.Index].rejected.count++
		}
		if !p.answer.reject(demands, now, &s.headers) {
			// A proxy that takes no reply would leave the client waiting for ever.
			return types.ActionContinue
		}
		s.answered = true
		return types.ActionPause
	}
	for i := range demands {
		p.metrics.rules[demands[i].Rule.Index].allowed.count++
	}
	if p.charges {
		s.charge(demands, now)
	}
	if s.decorate = p.answer.describes && len(demands) > 0; s.decorate {
		p.answer.describe(demands, now, &s.headers)
	}
	return types.ActionContinue
}

// OnHttpRequestBody implements types.HttpContext. If the proxy stops headers only, the body of a
// request that is not decided yet comes here. Whoever lets it go on lets the headers go on too.
func (s *stream) OnHttpRequestBody(size int, end bool) types.Action {
	if s.told != nil {
		return s.readRequest(size, end)
	}
	return s.rest()
}

// OnHttpRequestTrailers implements types.HttpContext.
func (s *stream) OnHttpRequestTrailers(int) types.Action {
	if s.told != nil {
		s.told.whole = true
		return s.decideByBody(s.takeTold())
	}
	return s.rest()
}

// rest says what becomes of what follows a request's headers.
func (s *stream) rest() types.Action {
	if s.wait.Waiting() || s.answered {
		return types.ActionPause
	}
	return types.ActionContinue
}

// findDemands finds the rules that apply to the current request, and the keys that it has for them.
// Those that only measure are apart.
func (p *plugin) findDemands() (demands, shadows []node.Demand) {
	n, end := 0, len(p.demands)
	for i := range p.rules {
		r := &p.rules[i]
		if !r.always && !p.request.applies(r) {
			continue
		}
		d := &p.demands[n]
		if r.shadow {
			end--
			d = &p.demands[end]
		} else {
			n++
		}
		d.Rule, d.Cost = &p.limits[i], p.request.cost(&r.cost)
		if cap(d.Key) > maxIdleKey {
			d.Key = nil
		}
		d.Key = p.request.appendKey(d.Key[:0], r)
		if r.variants != nil {
			d.Rule = p.request.limitsOf(r.variants, d.Rule, d.Key)
		}
	}
	return p.demands[:n], p.demands[end:]
}

// OnHttpResponseHeaders implements types.HttpContext.
func (s *stream) OnHttpResponseHeaders(_ int, end bool) types.Action {
	if len(s.later) > 0 {
		s.countResponse()
	}
	if len(s.charges) > 0 {
		s.openResponse(end)
	}
	if s.decorate {
		list := s.headers.Fields()
		for i := range list {
			proxywasm.ReplaceResponseHeader(list[i].Name, list[i].Value)
		}
	}
	return types.ActionContinue
}

// OnHttpResponseBody implements types.HttpContext.
func (s *stream) OnHttpResponseBody(size int, end bool) types.Action {
	if len(s.charges) > 0 {
		s.readBody(size, end)
	}
	return types.ActionContinue
}

// OnHttpResponseTrailers implements types.HttpContext. A body that they follow has no piece that ends it.
func (s *stream) OnHttpResponseTrailers(int) types.Action {
	if len(s.charges) > 0 {
		s.end()
	}
	return types.ActionContinue
}

// deferCosts notes the rules that count what the response costs. What the request says of it is
// read now.
func (s *stream) deferCosts(demands []node.Demand) {
	for i := range demands {
		if d := &demands[i]; s.plugin.rules[d.Rule.Index].costsLater {
			s.countLater(d, s.plugin.laterCost(d), nil)
		}
	}
}

// laterCost is what the current request says that its response costs.
func (p *plugin) laterCost(d *node.Demand) uint64 {
	if r := &p.rules[d.Rule.Index]; r.costsLater && r.onResponse.selected {
		hits, _ := p.request.selectedCost(&r.onResponse, usage.Most)
		return hits
	}
	return 0
}

func (s *stream) countLater(d *node.Demand, cost uint64, undecided *measure) {
	l := later{Saved: s.plugin.node.Save(d), measure: undecided}
	l.Cost = cost
	s.later = append(s.later, l)
}

// countResponse counts what the response costs, whether or not there is room.
func (s *stream) countResponse() {
	p := s.plugin
	now := p.now()
	for i := range s.later {
		l := &s.later[i]
		rule := &p.rules[l.Rule.Index]
		if name := rule.onResponse.responseHeader; name != "" {
			l.Cost, _ = p.request.responseCost(name)
		}
		switch {
		case l.Cost == 0:
		case l.measure != nil:
			l.measure.owe(charge{Charge: node.Charge{Saved: l.Saved}, rule: rule})
		default:
			p.force(&l.Saved, now)
		}
	}
	s.later = s.later[:0]
	p.node.PushCharges()
}

// force counts what a response costs.
func (p *plugin) force(l *node.Saved, now int64) {
	p.node.ForceSaved(l, now)
	tellCharged(&p.vm.observed, l.Rule.Index, l.Cost)
}

// OnHttpStreamDone implements types.HttpContext.
func (s *stream) OnHttpStreamDone() {
	s.begin()
	if len(s.plugin.idle) < maxIdle {
		s.plugin.idle = append(s.plugin.idle, s)
	}
}
