package filter

import (
	"math/rand/v2"

	"weir/config"
	"weir/internal/counter"
	"weir/internal/fields"
	"weir/internal/node"
	"weir/internal/proxywasm"
	"weir/window"
)

// answer writes what clients see: response headers, and the reply to what was rejected.
type answer struct {
	unit      fields.ResetUnit
	names     []fields.Name
	jitter    uint16 // of Retry-After
	describes bool   // whether allowed requests get any headers
	warns     bool   // whether these may be warnings
	rules     []ruleAnswer
	reply     proxywasm.LocalResponse
	pairs     proxywasm.Pairs
	over      []byte      // what overHeader has
	written   refusalBody // for a provider's clients
}

// ruleAnswer has all that clients see of a rule, or of one of its variants: the parts of its header
// fields that never change, which fields these are, and the reply if it is the first one to reject.
type ruleAnswer struct {
	name     string
	fields   fields.Rule
	headers  fields.Set
	details  string // what logs say
	response *config.Response
	tokens   bool // whether it counts what answers of a model cost
}

// with is the answer of the rule with other limits.
func (r *ruleAnswer) with(limits []window.Limit) *ruleAnswer {
	other := *r
	other.fields = fields.NewRule(r.name, limits)
	other.fields.Unit = r.fields.Unit
	return &other
}

// answerOf finds the answer of a rule that the node has.
func answerOf(rule *node.Rule) *ruleAnswer { return rule.Tag.(*ruleAnswer) }

// details, with the rule's name behind it, is the reason of a rejection in the proxy's access log.
const details = "weir_rate_limited:"

func (a *answer) compile(c *config.Config) {
	a.unit, a.names, a.jitter, a.describes, a.warns = c.ResetUnit, c.HeaderNames, c.RetryAfterJitter, false, false
	a.rules = make([]ruleAnswer, len(c.Rules))
	for i := range c.Rules {
		rule := &c.Rules[i]
		a.rules[i] = ruleAnswer{rule.Name, fields.NewRule(rule.Name, rule.Limits), rule.Headers, details + rule.Name, rule.Response, rule.Usage != nil}
		if rule.Prices != nil {
			a.rules[i].fields.Unit = []byte(rule.Prices.Unit)
		}
		a.describes = a.describes || !rule.Shadow && rule.Headers.Describes()
		a.warns = a.warns || len(rule.WarnAt) > 0 && !rule.Shadow
	}
	a.reply = proxywasm.LocalResponse{Headers: &a.pairs}
}

// describe writes the headers of a decided request.
func (a *answer) describe(demands []node.Demand, now int64, h *fields.List) {
	h.Begin(a.unit, now)
	h.Rename(a.names)
	if !a.describes {
		return
	}
	for i := range demands {
		d := &demands[i]
		rule := answerOf(d.Rule)
		h.Rule(&rule.fields, rule.headers)
		for j := range d.Rule.Own() {
			h.Limit(d.Standing(j, now))
		}
	}
	h.End()
	if a.warns {
		warn(demands, h)
	}
}

// warn writes which limits are near their ends.
//
//go:noinline
func warn(demands []node.Demand, h *fields.List) {
	for i := range demands {
		d := &demands[i]
		if rule := answerOf(d.Rule); len(d.Rule.WarnAt) > 0 {
			h.Warn(&rule.fields, rule.headers, d.Warned)
		}
	}
	h.EndWarnings()
}

// reject answers a request that was rejected, and reports whether the proxy took the answer. The
// stream's response phase follows, and has nothing to add.
func (a *answer) reject(demands []node.Demand, now int64, h *fields.List) (sent bool) {
	a.describe(demands, now, h)
	rule := rejecting(demands)
	at, ok := node.RetryAt(demands, now)
	if a.jitter != 0 {
		at = fields.Spread(at, now, a.jitter, rand.Uint64())
	}
	h.Refuse(rule.headers, at, ok)
	response := rule.response
	if response.Preset != fields.NoProvider && !isGRPC() {
		refusal := fields.Refusal{Rule: rule.name, Tokens: rule.tokens}
		if ok {
			refusal.Wait = fields.Wait(at, now)
		}
		return a.send(response, &refusal, h, rule.details)
	}
	a.begin(h, response.GRPCMessage, response.Body, response.ContentType)
	a.addHeaders(response)
	a.reply.Status, a.reply.GRPCStatus, a.reply.Details = uint32(response.Status), int32(response.GRPCStatus), rule.details
	return proxywasm.SendLocalResponse(&a.reply)
}

// send answers as a provider of models does, whose clients understand that.
//
//go:noinline
func (a *answer) send(response *config.Response, r *fields.Refusal, h *fields.List, details string) (sent bool) {
	p := response.Preset
	if p == fields.AnyProvider {
		if p = providerOf(); p == fields.NoProvider {
			p = fields.OpenAI // which most others speak too
		}
	}
	a.begin(h, "", a.written.write(p, r), "application/json")
	if name, value := p.Header(r); name != "" {
		a.pairs.Add(name, value)
	}
	a.addHeaders(response)
	a.reply.Status, a.reply.GRPCStatus, a.reply.Details = uint32(p.Status(r)), -1, details
	return proxywasm.SendLocalResponse(&a.reply)
}

// addHeaders adds those of the configuration to a reply.
func (a *answer) addHeaders(response *config.Response) {
	for i := range response.Headers {
		a.pairs.Add(response.Headers[i].Name, response.Headers[i].Value)
	}
}

// begin begins a reply with the headers that were written, and a body, or gRPC's message in its place.
func (a *answer) begin(h *fields.List, message, body, contentType string) {
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

// refuseInvalid answers a request that the rule of one of its demands refuses whatever room there is, and
// reports whether the proxy took the answer. It would be no other at another time, so that nothing says when
// to come again.
func (a *answer) refuseInvalid(demands []node.Demand, refusing int, cause fields.Cause, now int64, h *fields.List) (sent bool) {
	a.describe(demands, now, h)
	rule := answerOf(demands[refusing].Rule)
	message, problem, details := fields.Unread, fields.UnreadProblem, unreadDetails+rule.name
	if cause == fields.TooLarge {
		message, problem, details = fields.TooLargeMessage, fields.TooLargeProblem, tooLargeDetails+rule.name
	}
	if rule.response.Preset != fields.NoProvider && !isGRPC() {
		return a.send(rule.response, &fields.Refusal{Rule: rule.name, Cause: cause}, h, details)
	}
	a.begin(h, message, problem, fields.ProblemType)
	a.reply.Status, a.reply.GRPCStatus, a.reply.Details = invalidStatus, invalidArgument, details
	return proxywasm.SendLocalResponse(&a.reply)
}

// rejecting is the first rule that has rejected a request.
func rejecting(demands []node.Demand) *ruleAnswer {
	for i := range demands {
		if demands[i].Verdict == counter.Rejected && !demands[i].Over {
			return answerOf(demands[i].Rule)
		}
	}
	return answerOf(demands[0].Rule)
}

// isGRPC reports whether the proxy answers the current request as gRPC wants it. Then the reply's
// body goes into the header grpc-message.
func isGRPC() bool {
	const grpc = "application/grpc"
	contentType, _ := proxywasm.RequestHeader("content-type")
	n := len(contentType)
	return n >= len(grpc) && string(contentType[:len(grpc)]) == grpc && (n == len(grpc) || contentType[len(grpc)] == '+')
}
