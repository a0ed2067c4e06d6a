package filter

import (
	"math/rand/v2"

	"weir/config"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/fields"
	"weir/internal/proxywasm"
)

// answer writes everything that clients see: response headers, and replies to rejected requests.
type answer struct {
	unit      fields.ResetUnit
	names     []fields.Name
	jitter    uint16 // the largest share, in thousandths, that lengthens Retry-After
	describes bool   // allowed requests get headers
	warns     bool   // they may include warnings
	rules     *rules
	reply     proxywasm.LocalResponse
	pairs     proxywasm.Pairs
	over      []byte      // the value of overHeader
	trusts    bool        // a proxy before may have set overHeader
	written   refusalBody // the body of a provider's refusal
	identity  []byte      // of the call of JSON-RPC that is answered
	log       accessLog
}

func (a *answer) compile(c *config.Config, r *rules) {
	a.rules, a.unit, a.names, a.jitter, a.trusts = r, c.ResetUnit, c.HeaderNames, c.RetryAfterJitter, c.TrustMarks
	for i := range c.Rules {
		rule := &c.Rules[i]
		a.describes = a.describes || rule.Headers.Describes()
		a.warns = a.warns || len(rule.WarnAt) > 0
	}
	a.log.on = c.AccessLog
	a.reply = proxywasm.LocalResponse{Headers: &a.pairs}
}

// describe writes the headers for a decided request.
func (a *answer) describe(checks []engine.Check, now int64, h *fields.List) {
	h.Begin(a.unit, now)
	h.Rename(a.names)
	if !a.describes {
		return
	}
	for i := range checks {
		d := &checks[i]
		rule := a.rules.of(d)
		switch {
		case d.Rule == rule.limits:
			h.Rule(&rule.fields, rule.config.Headers)
			for j := range d.Rule.Own() {
				h.Limit(d.Standing(j, now))
			}
		case !d.Rule.Spare:
			a.describeVariant(checks, i, now, h)
		}
	}
	h.End()
	if a.warns {
		a.warn(checks, h)
	}
}

// describeVariant writes how other limits of a rule stand, such as those of the class of a request.
//
//go:noinline
func (a *answer) describeVariant(checks []engine.Check, i int, now int64, h *fields.List) {
	rule, limits := a.rules.of(&checks[i]), engine.LimitsOf(checks, i)
	h.Variant(&rule.fields, limits, rule.config.Headers)
	for j := range limits {
		h.Limit(engine.StandingOf(checks, i, j, now))
	}
}

// warn writes which limits are nearly used up.
func (a *answer) warn(checks []engine.Check, h *fields.List) {
	for i := range checks {
		d := &checks[i]
		if rule := a.rules.of(d); len(rule.config.WarnAt) > 0 {
			h.Warn(&rule.fields, rule.config.Headers, d.Warned)
		}
	}
	h.EndWarnings()
}

// reject answers a rejected request, and reports whether the proxy accepted the answer. The
// stream's response phase follows, and adds nothing.
func (a *answer) reject(checks []engine.Check, now int64, h *fields.List) (sent bool) {
	a.describe(checks, now, h)
	refusing := a.rejecting(checks)
	rule := a.rules.of(refusing)
	at, ok := engine.RetryAt(checks, now)
	if a.jitter != 0 {
		at = fields.Spread(at, now, a.jitter, rand.Uint64())
	}
	h.Refuse(rule.config.Headers, at, ok)
	response := rule.config.Response
	if response.Preset != fields.NoProvider && !isGRPC() {
		refusal := fields.Refusal{Rule: rule.config.Name, Tokens: rule.config.Usage != nil}
		if ok {
			refusal.Wait = fields.Wait(at, now)
		}
		return a.sendPreset(response, &refusal, h, rule.details)
	}
	a.beginReply(h, response.GRPCMessage, rule.refusal(refusing, now), response.ContentType)
	a.addHeaders(response)
	a.reply.Status, a.reply.GRPCStatus, a.reply.Details = uint32(response.Status), int32(response.GRPCStatus), rule.details
	return proxywasm.SendLocalResponse(&a.reply)
}

// sendPreset answers in the form of a model provider, for its clients.
func (a *answer) sendPreset(response *config.Response, r *fields.Refusal, h *fields.List, details string) (sent bool) {
	p := response.Preset
	if p == fields.AnyProvider {
		if p = providerOf(); p == fields.NoProvider {
			p = fields.OpenAI // most other providers accept its form
		}
	}
	r.Status, r.ID = response.Status, a.identity
	a.beginReply(h, "", a.written.write(p, r), "application/json")
	if name, value := p.Header(r); name != "" {
		a.pairs.Add(name, value)
	}
	a.addHeaders(response)
	a.reply.Status, a.reply.GRPCStatus, a.reply.Details = uint32(p.Status(r)), -1, details
	return proxywasm.SendLocalResponse(&a.reply)
}

func (a *answer) addHeaders(response *config.Response) {
	for i := range response.Headers {
		a.pairs.Add(response.Headers[i].Name, response.Headers[i].Value)
	}
}

// beginReply starts a reply with the headers written so far, and a body, or a message for gRPC in
// its place.
func (a *answer) beginReply(h *fields.List, message, body, contentType string) {
	a.pairs.Reset()
	list := h.Fields()
	for i := range list {
		a.pairs.AddBytes(list[i].Name, list[i].Value)
	}
	if isGRPC() {
		a.reply.Body = message
	} else if a.reply.Body = body; body != "" {
		a.pairs.Add("content-type", contentType)
	}
}

const (
	unreadDetails   = "weir_unread_body:"
	tooLargeDetails = "weir_too_large:"
	invalidStatus   = 400
	invalidArgument = 3 // of gRPC
)

// refuseInvalid answers a request that a rule refuses whatever room there is, and reports whether
// the proxy accepted the answer. The answer would be the same at any other time, so it has no
// Retry-After. refusing is the index of the rule's check.
func (a *answer) refuseInvalid(checks []engine.Check, refusing int, cause fields.Cause, now int64, h *fields.List) (sent bool) {
	a.describe(checks, now, h)
	rule := a.rules.of(&checks[refusing]).config
	message, problem, details := fields.Unread, fields.UnreadProblem, unreadDetails+rule.Name
	if cause == fields.TooLarge {
		message, problem, details = fields.TooLargeMessage, fields.TooLargeProblem, tooLargeDetails+rule.Name
	}
	if rule.Response.Preset != fields.NoProvider && !isGRPC() {
		return a.sendPreset(rule.Response, &fields.Refusal{Rule: rule.Name, Cause: cause}, h, details)
	}
	a.beginReply(h, message, problem, fields.ProblemType)
	a.reply.Status, a.reply.GRPCStatus, a.reply.Details = invalidStatus, invalidArgument, details
	return proxywasm.SendLocalResponse(&a.reply)
}

// refusal returns the body of a refusal. The default one names the limits without room for a check, and is
// made once.
func (r *rule) refusal(d *engine.Check, now int64) string {
	var full uint8
	if r.problems != nil {
		for i := range r.config.Limits {
			if d.Fills(i, now) {
				full |= 1 << i
			}
		}
	}
	if full == 0 {
		return r.config.Response.Body
	}
	body, made := r.problems[full]
	if !made {
		var names []byte
		for i := range r.config.Limits {
			if full>>i&1 != 0 {
				names = append(append(names, r.fields.LimitName(i)...), ',')
			}
		}
		body = fields.Problem(r.config.Response.Status, string(names[:len(names)-1]))
		r.problems[full] = body
	}
	return body
}

// rejecting returns the first check that rejected the request.
func (a *answer) rejecting(checks []engine.Check) *engine.Check {
	for i := range checks {
		if rejects(&checks[i]) {
			return &checks[i]
		}
	}
	return &checks[0]
}

// rejects reports whether a check's rule has no room for the request.
func rejects(d *engine.Check) bool { return d.Verdict == counter.Rejected && !d.Over }

// isGRPC reports whether the proxy answers the current request in gRPC's form, with the body of a
// reply in the header grpc-message.
func isGRPC() bool {
	const grpc = "application/grpc"
	contentType, _ := proxywasm.RequestHeader("content-type")
	n := len(contentType)
	return n >= len(grpc) && string(contentType[:len(grpc)]) == grpc && (n == len(grpc) || contentType[len(grpc)] == '+')
}
