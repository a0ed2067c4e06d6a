package filter

import (
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/fields"
	"weir/internal/proxywasm"
	"weir/internal/usage"
	"weir/internal/wire"
)

// streams are the streams of a plugin context, and memory that they use in turn.
type streams struct {
	context   uint32 // the plugin context's id
	decider   decider
	rules     rules
	answer    answer
	metrics   metrics
	bodies    bodies
	waiting   []*stream // streams that wait for their requests' bodies
	responses responses
	shadows   shadows
	usage     usagePage
	idle      []*stream // to be used again, maxIdle at most
	brief     *stream   // of requests that are over with their headers, in turn; nil if it was needed for longer
}

type stream struct {
	types.DefaultHttpContext
	all *streams
	id  uint32
	progress
	// identity is the id of a call of JSON-RPC, as JSON has it.
	identity []byte
	headers  fields.List
	deferred deferredCosts
	// upstream are the checks whose keys follow what the upstream tells.
	upstream []heeding
	charges  charges
	// unasked takes that usage out of the response.
	unasked *usage.Unasked
	// shadows are checks on shadow rules while the request waits for the other rules.
	shadows []shadow
	// body has the values in the body while the request waits for it; otherwise nil.
	body *bodyValues
	// wait is the request's place among those that wait for the backend.
	wait engine.Wait
}

// progress is what has become of a request so far.
type progress struct {
	// begun means that the request's headers have come.
	begun bool
	// decorate means that the response gets the headers written in the request phase. A local reply
	// has them already.
	decorate bool
	// answered means that the proxy accepted a reply in place of the upstream's.
	answered bool
	// asked means that the request was made to ask for its usage, which the client did not.
	asked bool
	// looks means that the request waits to be told how its limits stand.
	looks bool
}

func (all *streams) setNode(n *engine.Engine) {
	all.decider.node = n
	all.responses = responses{rules: &all.rules, decider: &all.decider}
	all.shadows = shadows{rules: &all.rules, decider: &all.decider, measures: measures{decider: &all.decider}}
}

// newStream returns a stream for a request. Streams are reused, so that a request allocates
// nothing.
//
//go:noinline
func (all *streams) newStream(id uint32) *stream {
	last := len(all.idle) - 1
	if last < 0 {
		s := &stream{all: all, id: id}
		s.charges.responses = &all.responses
		s.wait.Request = s
		return s
	}
	s := all.idle[last]
	s.id, all.idle = id, all.idle[:last]
	return s
}

// OnHttpStreamDone implements types.HttpContext.
func (s *stream) OnHttpStreamDone() {
	s.end()
	keepIdle(&s.all.idle, s, maxIdle)
}

// end makes a stream ready for another request.
func (s *stream) end() {
	if s.all.rules.leaves || s.wait.Waiting() {
		s.forget()
	}
	s.progress = progress{}
}

// forget forgets what a stream has if it waited, or if some rule leaves it more to do.
func (s *stream) forget() {
	s.shadows = s.shadows[:0]
	if s.unasked != nil {
		keepIdle(&s.all.responses.unasked, s.unasked, maxIdleReaders)
		s.unasked = nil
	}
	s.identity = s.identity[:0]
	s.deferred.forget()
	s.upstream = s.upstream[:0]
	s.charges.forget()
	if s.body != nil {
		s.all.bodies.release(s.takeBody())
	}
	s.wait.Leave()
}

// OnHttpRequestHeaders implements types.HttpContext: it decides the request.
func (s *stream) OnHttpRequestHeaders(_ int, end bool) types.Action {
	all := s.all
	if s.begun {
		s.forget()
	}
	s.progress = progress{begun: true}
	if rule := all.rules.only; rule != nil && rule.mode == wire.Enforce && !all.decider.node.HasRetries() {
		return s.decideOnly()
	}
	if all.rules.marks {
		all.answer.clearMark()
	}
	if n := all.decider.node; n != nil && n.HasRetries() {
		n.Retry(all.decider.now())
	}
	if all.usage.path != "" && all.usage.wants() {
		return s.answerUsage()
	}
	if all.rules.readsBodies && !end {
		if body := all.bodies.wanted(&all.rules); body != nil {
			return s.awaitBody(body)
		}
	}
	all.rules.request.beginRequest(nil)
	checks, shadows := all.rules.findChecks()
	if len(checks)+len(shadows) == 0 {
		return types.ActionContinue
	}
	return s.decide(checks, shadows)
}

// remains reports whether anything but the response's headers is left to do after the request's.
func (s *stream) remains() bool {
	return s.wait.Waiting() ||
		s.all.rules.leaves && (s.body != nil || len(s.deferred.list) > 0 || len(s.upstream) > 0 || len(s.charges.list) > 0)
}

// awaitBody makes a request wait for its body, or decides it if the body can't be read.
func (s *stream) awaitBody(body *bodyValues) types.Action {
	all := s.all
	if !all.bodies.comes(body) {
		return s.decideByBody(body)
	}
	body.at, s.body = len(all.waiting), body
	all.waiting = append(all.waiting, s)
	return types.ActionPause // until the body has come
}

// OnHttpRequestBody implements types.HttpContext. If the proxy stops only the headers, it delivers
// the body of an undecided request here. When the body continues, so do the headers.
func (s *stream) OnHttpRequestBody(size int, end bool) types.Action {
	if s.body == nil {
		return s.rest()
	}
	done, closes := s.all.bodies.readPiece(s.body, size, end)
	if closes && (s.body.ask.wanted || s.body.limits) {
		s.all.rewrite(s.body, size)
	}
	if s.asked = s.body.ask.asked && !s.body.ask.passes; !done {
		return types.ActionPause
	}
	return s.decideByBody(s.takeBody())
}

// OnHttpRequestTrailers implements types.HttpContext.
func (s *stream) OnHttpRequestTrailers(int) types.Action {
	if s.body == nil {
		return s.rest()
	}
	s.body.whole = true
	return s.decideByBody(s.takeBody())
}

// rest returns the action for everything that follows a request's headers.
func (s *stream) rest() types.Action {
	if s.wait.Waiting() || s.answered {
		return types.ActionPause
	}
	return types.ActionContinue
}

// takeBody ends the stream's wait for its body.
func (s *stream) takeBody() *bodyValues {
	body := s.body
	removeAt(&s.all.waiting, body.at).body.at = body.at
	s.body = nil
	return body
}

// decideWaiting decides the requests that have waited too long for their bodies. If the proxy holds
// bodies back, which is found out again each minute, it decides all of them.
func (all *streams) decideWaiting(every bool) {
	if len(all.waiting) == 0 {
		return
	}
	b, now := &all.bodies, proxywasm.Now()
	for i := len(all.waiting) - 1; i >= 0 && (b.bringing == unknown || b.bringing == probes); i-- {
		s := all.waiting[i]
		if proxywasm.SetContext(s.id); s.body.isKept(now) {
			b.bringing, b.keptAt = keeps, now
		}
	}
	every = every || b.bringing == keeps
	for i := len(all.waiting) - 1; i >= 0; i-- {
		s := all.waiting[i]
		if !every && !s.body.late(now) {
			continue
		}
		proxywasm.SetContext(s.id)
		if s.decideByBody(s.takeBody()) == types.ActionContinue {
			proxywasm.ResumeRequest()
		}
	}
	proxywasm.SetContext(all.context)
}

// decideByBody decides a request that has waited for its body, by the part that has come.
func (s *stream) decideByBody(body *bodyValues) types.Action {
	all := s.all
	all.rules.request.beginRequest(body)
	s.identity = body.appendID(s.identity[:0])
	checks, shadows := all.rules.findChecks()
	if body.unread {
		all.rules.request.unreadBodies++
	}
	action := types.ActionContinue
	if i := all.rules.unread(checks); i >= 0 {
		action = s.refuseInvalid(checks, i, fields.UnreadBody)
	} else if len(checks)+len(shadows) > 0 {
		action = s.decide(checks, shadows)
	}
	all.bodies.release(body)
	return action
}

// refuseInvalid answers a request that a rule refuses whatever room there is. Nothing is taken from
// any rule.
func (s *stream) refuseInvalid(checks []engine.Check, refusing int, cause fields.Cause) types.Action {
	all := s.all
	now := all.decider.now()
	for i := range checks {
		d := &checks[i]
		all.decider.node.Look(d, now)
		d.Cost, d.Verdict, d.Warned = 0, counter.Allowed, 0
	}
	if all.answer.log.on {
		all.answer.log.set(all.rules.of(&checks[refusing]).config.Name, "invalid")
	}
	all.answer.identity = s.identity
	sent := all.answer.refuseInvalid(checks, refusing, cause, now, &s.headers)
	checks[refusing].Verdict = counter.Rejected
	return s.refused(checks, sent)
}

// decide decides a request, or makes it wait for the backend.
func (s *stream) decide(checks, shadows []engine.Check) types.Action {
	all := s.all
	if all.rules.bounds {
		if i := all.rules.tooLarge(checks); i >= 0 {
			return s.refuseInvalid(checks, i, fields.TooLarge)
		}
	}
	now := all.decider.now()
	verdict := counter.Allowed
	if len(checks) > 0 {
		verdict = all.decider.node.Decide(checks, now, &s.wait)
	}
	if all.rules.costsLater && verdict != counter.Rejected {
		s.deferred.noteCosts(&all.rules, all.decider.node, checks)
	}
	if all.rules.upstream {
		s.noteUpstream(checks, verdict)
	}
	if all.rules.needsHints && verdict != counter.Rejected {
		s.charges.noteHints(checks)
		s.charges.noteHints(shadows)
	}
	if verdict == counter.Unsure {
		if len(shadows) > 0 {
			s.shadows = all.shadows.keepDemands(s.shadows, shadows, now)
		}
		return types.ActionPause // until Decided is called
	}
	action := s.conclude(checks, now, verdict)
	if len(shadows) > 0 && verdict == counter.Allowed {
		all.shadows.decide(shadows, now, &s.deferred, &s.charges)
	}
	return action
}

// decideOnly decides a request by the only rule of a configuration that asks for nothing besides. It does what
// findChecks, decide and conclude do for such a rule.
func (s *stream) decideOnly() types.Action {
	all := s.all
	r := &all.rules
	if cap(r.keys) > maxIdleKeys {
		r.keys = nil
	}
	checks := r.checks
	d := &checks[0]
	d.Rule, d.Cost, d.Key = r.only.limits, r.only.cost.fixed, r.request.appendKey(r.keys[:0], r.only)
	r.keys = d.Key
	n := all.decider.node
	now := n.Time(proxywasm.Now())
	verdict := n.Decide(checks, now, &s.wait)
	if verdict == counter.Unsure {
		return types.ActionPause // until Decided is called
	}
	if verdict != counter.Allowed {
		return s.conclude(checks, now, verdict)
	}
	tellDecided(all.decider.observed, checks, verdict)
	r.only.allowed.count++
	if s.decorate = all.answer.describes; s.decorate {
		all.answer.describe(checks, now, &s.headers)
	}
	return types.ActionContinue
}

// Decided implements engine.Request: it continues a paused request.
func (s *stream) Decided(checks []engine.Check, now int64, verdict counter.Verdict) {
	proxywasm.SetContext(s.id)
	var action types.Action
	if s.looks {
		s.looks = false
		action = s.tellUsage(s.all.usage.find(s.all, now), now, verdict == counter.Allowed)
	} else {
		action = s.conclude(checks, now, verdict)
	}
	if action == types.ActionContinue {
		proxywasm.ResumeRequest()
	}
	proxywasm.SetContext(s.all.context)
	if verdict == counter.Allowed {
		s.all.shadows.decideKept(s.shadows, now, &s.deferred, &s.charges)
	}
	s.shadows = s.shadows[:0]
}

func (s *stream) conclude(checks []engine.Check, now int64, verdict counter.Verdict) types.Action {
	all := s.all
	tellDecided(all.decider.observed, checks, verdict)
	all.answer.log.note(&all.answer, checks, verdict, now)
	if verdict != counter.Allowed {
		s.deferred.forget()
		s.upstream = s.upstream[:0]
		all.answer.identity = s.identity
		return s.refused(checks, all.answer.reject(checks, now, &s.headers))
	}
	marked := false
	for i := range checks {
		rule := all.rules.of(&checks[i])
		switch {
		case checks[i].Rule.Spare:
		case checks[i].Marked():
			rule.marked.count++
			marked = true
		default:
			rule.allowed.count++
		}
	}
	if len(s.deferred.list) > 0 {
		s.deferred.leaveOut(checks)
	}
	if marked {
		s.upstream = s.upstream[:0] // its upstream may be another one
		all.answer.mark(checks)
	}
	if all.rules.charges {
		s.charges.noteTaken(checks, now)
	}
	if s.decorate = all.answer.describes && len(checks) > 0; s.decorate {
		all.answer.describe(checks, now, &s.headers)
		if delayed := s.wait.Delayed(); delayed > 0 {
			s.headers.Delayed(delayed)
		}
	}
	return types.ActionContinue
}

// refused ends a refused request. sent reports whether the proxy accepted the reply.
func (s *stream) refused(checks []engine.Check, sent bool) types.Action {
	refusing := s.all.rules.of(s.all.answer.rejecting(checks))
	for i := range checks {
		if checks[i].Rule.Spare {
			continue
		}
		if rule := s.all.rules.of(&checks[i]); rule == refusing || engine.Refuses(checks, i) {
			rule.rejected.count++
			if engine.Uneven(checks, i) {
				rule.uneven.count++
			}
		} else {
			rule.rejectedByOther.count++
		}
	}
	if s.answered = sent; !sent {
		// Pausing would leave the client waiting for ever.
		return types.ActionContinue
	}
	return types.ActionPause
}

// OnHttpResponseHeaders implements types.HttpContext.
func (s *stream) OnHttpResponseHeaders(_ int, end bool) types.Action {
	if s.wait.Waiting() || s.body != nil {
		s.forget() // the proxy has answered in the place of rules that are undecided
		return types.ActionContinue
	}
	if len(s.deferred.list) > 0 {
		s.deferred.charge(&s.all.rules, &s.all.decider)
	}
	if len(s.upstream) > 0 {
		s.heedUpstream()
	}
	if len(s.charges.list) > 0 {
		s.charges.openResponse(end)
	}
	if s.asked && !end && isOpenStream() {
		s.unasked = s.all.responses.newUnasked()
	}
	s.decorateResponse()
	return types.ActionContinue
}

// decorateResponse gives the response the headers written in the request phase.
func (s *stream) decorateResponse() {
	if !s.decorate {
		return
	}
	list := s.headers.Fields()
	for i := range list {
		proxywasm.ReplaceResponseHeader(list[i].Name, list[i].Value)
	}
}

// OnHttpResponseBody implements types.HttpContext.
func (s *stream) OnHttpResponseBody(size int, end bool) types.Action {
	if len(s.charges.list) > 0 {
		size = s.charges.readBody(size, end)
	}
	if s.unasked != nil {
		s.all.responses.takeOut(s.unasked, size, end)
	}
	return types.ActionContinue
}

// OnHttpResponseTrailers implements types.HttpContext. A body before trailers has no final piece.
func (s *stream) OnHttpResponseTrailers(int) types.Action {
	if len(s.charges.list) > 0 {
		s.charges.endResponse()
	}
	return types.ActionContinue
}
