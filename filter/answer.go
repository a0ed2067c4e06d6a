package filter

import (
	"weir/config"
	"weir/internal/counter"
	"weir/internal/fields"
	"weir/internal/node"
	"weir/internal/proxywasm"
)

// answer writes what clients see: response headers, and the reply to what was rejected.
type answer struct {
	headers   fields.Set
	unit      fields.ResetUnit
	describes bool // whether allowed requests get any headers
	rules     []ruleAnswer
	reply     proxywasm.LocalResponse
	pairs     proxywasm.Pairs
	body      config.Response
}

// ruleAnswer has the parts of a rule's header fields that never change, and of what logs say.
type ruleAnswer struct {
	fields  fields.Rule
	details string
}

// details, with the rule's name behind it, is the reason of a rejection in the proxy's access log.
const details = "weir_rate_limited:"

func (a *answer) compile(c *config.Config) {
	a.headers, a.unit, a.body = c.Headers, c.ResetUnit, c.Response
	a.describes = c.Headers.Describes()
	a.rules = a.rules[:0]
	for i := range c.Rules {
		rule := &c.Rules[i]
		a.rules = append(a.rules, ruleAnswer{fields.NewRule(rule.Name, rule.Limits), details + rule.Name})
	}
	a.reply = proxywasm.LocalResponse{
		Status:     uint32(c.Response.Status),
		Headers:    &a.pairs,
		GRPCStatus: int32(c.Response.GRPCStatus),
	}
}

// describe writes the headers of a decided request.
func (a *answer) describe(demands []node.Demand, now int64, h *fields.List) {
	h.Begin(a.headers, a.unit, now)
	if !a.describes {
		return
	}
	for i := range demands {
		d := &demands[i]
		h.Rule(d.Rule.Tag.(*fields.Rule))
		for j := range d.Counter.States {
			h.Limit(d.Standing(j, now))
		}
	}
	h.End()
}

// reject answers a request that was rejected, and reports whether the proxy took the answer. The
// stream's response phase follows, and has nothing to add.
func (a *answer) reject(demands []node.Demand, now int64, h *fields.List) (sent bool) {
	a.describe(demands, now, h)
	h.Refuse(node.RetryAt(demands, now))
	a.pairs.Reset()
	list := h.Fields()
	for i := range list {
		a.pairs.AddBytes(list[i].Name, list[i].Value)
	}
	if isGRPC() {
		a.reply.Body = a.body.GRPCMessage
	} else if a.reply.Body = a.body.Body; a.reply.Body != "" {
		a.pairs.Add("content-type", a.body.ContentType)
	}
	for i := range a.body.Headers {
		a.pairs.Add(a.body.Headers[i].Name, a.body.Headers[i].Value)
	}
	a.reply.Details = a.rules[rejecting(demands)].details
	return proxywasm.SendLocalResponse(&a.reply)
}

// rejecting is the first rule that has rejected a request.
func rejecting(demands []node.Demand) (rule int) {
	for i := range demands {
		if demands[i].Verdict == counter.Rejected {
			return demands[i].Rule.Index
		}
	}
	return demands[0].Rule.Index
}

// isGRPC reports whether the proxy answers the current request as gRPC wants it. Then the reply's
// body goes into the header grpc-message.
func isGRPC() bool {
	const grpc = "application/grpc"
	contentType, _ := proxywasm.RequestHeader("content-type")
	n := len(contentType)
	return n >= len(grpc) && string(contentType[:len(grpc)]) == grpc && (n == len(grpc) || contentType[len(grpc)] == '+')
}
