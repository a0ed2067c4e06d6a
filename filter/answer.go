package filter

import (
	"strconv"

	"weir/config"
	"weir/internal/counter"
	"weir/internal/node"
	"weir/internal/proxywasm"
	"weir/window"
)

// answer writes what clients see: response headers, and the reply to what was rejected.
type answer struct {
	headers    config.HeaderSet
	describes  bool // whether allowed requests get any
	unit       config.ResetUnit
	rules      []ruleLabels
	reply      proxywasm.LocalResponse
	pairs      proxywasm.Pairs
	body       config.Response
	numberText []byte
}

// ruleLabels are the parts of a rule's header fields that never change, and of what logs say.
type ruleLabels struct {
	policy  []byte // of all limits
	limits  []labels
	details string
}

// labels are those of a limit.
type labels struct {
	state []byte // "name";r=
	quota []byte
}

const second = int64(1e9)

// details, with the rule's name behind it, is the reason of a rejection in the proxy's access log.
const details = "weir_rate_limited:"

func (a *answer) compile(c *config.Config) {
	a.headers, a.unit, a.body = c.Headers, c.ResetUnit, c.Response
	a.describes = c.Headers&(config.HeaderRateLimit|config.HeaderXRateLimit) != 0
	a.rules = a.rules[:0]
	for i := range c.Rules {
		rule := &c.Rules[i]
		all := ruleLabels{details: details + rule.Name}
		for j := range rule.Limits {
			name := rule.Name
			if j > 0 {
				name += "." + strconv.Itoa(j+1)
				all.policy = append(all.policy, ", "...)
			}
			all.add(name, &rule.Limits[j])
		}
		a.rules = append(a.rules, all)
	}
	a.reply = proxywasm.LocalResponse{
		Status:     uint32(c.Response.Status),
		Headers:    &a.pairs,
		GRPCStatus: int32(c.Response.GRPCStatus),
	}
}

// add follows draft-ietf-httpapi-ratelimit-headers-10: names are Strings of structured fields. A rule's name has no
// character that they would have to escape. A policy is "name";q=100;w=60.
func (r *ruleLabels) add(name string, l *window.Limit) {
	quoted, quota := `"`+name+`"`, strconv.FormatUint(l.Quota(), 10)
	r.limits = append(r.limits, labels{state: append([]byte(quoted), ";r="...), quota: []byte(quota)})
	policy := quoted + ";q=" + quota
	if span, whole := l.Span(); whole && span%second == 0 {
		policy += ";w=" + strconv.FormatInt(span/second, 10)
	}
	r.policy = append(r.policy, policy...)
}

// headers are the rate limit headers of one response, in the order in which they are sent.
type headers struct {
	fields []field
	values []byte // what the fields' values are in that aren't constant
	start  int    // of the next field's value in values
}

type field struct {
	name  string
	value []byte
}

func (h *headers) reset() { h.values, h.fields, h.start = h.values[:0], h.fields[:0], 0 }

// add makes what was appended to values since the last field a field.
func (h *headers) add(name string) {
	h.fields = append(h.fields, field{name: name, value: h.values[h.start:]})
	h.start = len(h.values)
}

func (h *headers) number(name string, n uint64) {
	h.values = appendNumber(h.values, n)
	h.add(name)
}

// replace sends the headers with the current stream's response, in place of the upstream's of the same names.
func (h *headers) replace() {
	for i := range h.fields {
		proxywasm.ReplaceResponseHeader(h.fields[i].name, h.fields[i].value)
	}
}

// appendNumber appends a number in decimal. Up to four digits, which nearly all have, divide nothing that isn't constant and 32 bits wide,
// and copy nothing.
func appendNumber(dst []byte, n uint64) []byte {
	if n >= 10_000 {
		return strconv.AppendUint(dst, n, 10)
	}
	v := uint32(n)
	if v >= 1000 {
		return append(dst, '0'+byte(v/1000), '0'+byte(v/100%10), '0'+byte(v/10%10), '0'+byte(v%10))
	}
	if v >= 100 {
		return append(dst, '0'+byte(v/100), '0'+byte(v/10%10), '0'+byte(v%10))
	}
	if v >= 10 {
		return append(dst, '0'+byte(v/10), '0'+byte(v%10))
	}
	return append(dst, '0'+byte(v))
}

// standing is how a limit stands after a decision, with what it is called.
type standing struct {
	window.Standing
	labels *labels
}

// tighter tells whether s is to be shown rather than other, which comes before it.
func (s *standing) tighter(other *standing) bool {
	if s.Remaining != other.Remaining {
		return s.Remaining < other.Remaining
	}
	return ceil(s.Next, second) > ceil(other.Next, second)
}

// describe writes the headers of a decided request.
func (a *answer) describe(matches []node.Demand, now int64, h *headers) {
	h.reset()
	if !a.describes {
		return
	}
	if a.headers&config.HeaderRateLimit != 0 {
		a.policy(matches, h)
	}
	var tightest standing
	for i := range matches {
		m := &matches[i]
		labels, withheld := a.rules[m.Rule.Index].limits, m.Withheld()
		for j := range labels {
			s := standing{Standing: m.Rule.Limits[j].Standing(&m.Cell.States[j], now), labels: &labels[j]}
			if withheld {
				s.Remaining, s.Next = 0, max(s.Next, m.Cell.DryUntil(now)-now, 1)
			}
			if tightest.labels == nil || s.tighter(&tightest) {
				tightest = s
			}
			if a.headers&config.HeaderRateLimit != 0 {
				if len(h.values) > h.start {
					h.values = append(h.values, ", "...)
				}
				h.values = append(h.values, s.labels.state...)
				h.values = appendNumber(h.values, s.Remaining)
				h.values = append(h.values, ';', 't', '=')
				h.values = appendNumber(h.values, ceil(s.Next, second))
			}
		}
	}
	if a.headers&config.HeaderRateLimit != 0 {
		h.add("ratelimit")
	}
	if a.headers&config.HeaderXRateLimit != 0 {
		h.fields = append(h.fields, field{name: "x-ratelimit-limit", value: tightest.labels.quota})
		h.number("x-ratelimit-remaining", tightest.Remaining)
		h.number("x-ratelimit-reset", a.resetIn(tightest.Reset, now))
	}
}

// policy is what never changes but for which rules match.
func (a *answer) policy(matches []node.Demand, h *headers) {
	if len(matches) == 1 {
		h.fields = append(h.fields, field{name: "ratelimit-policy", value: a.rules[matches[0].Rule.Index].policy})
		return
	}
	for i := range matches {
		if i > 0 {
			h.values = append(h.values, ", "...)
		}
		h.values = append(h.values, a.rules[matches[i].Rule.Index].policy...)
	}
	h.add("ratelimit-policy")
}

// resetIn is a reset in the configured unit. No window counts as one that ends now.
func (a *answer) resetIn(reset, now int64) uint64 {
	reset = max(reset, 0)
	switch a.unit {
	case config.ResetEpoch:
		return ceil(now+reset, second)
	case config.ResetMilliseconds:
		return ceil(reset, 1e6)
	default:
		return ceil(reset, second)
	}
}

// ceil is a time in a unit, rounded up; 0 if it has passed.
func ceil(nanos, unit int64) uint64 {
	if nanos <= 0 {
		return 0
	}
	return uint64(nanos-1)/uint64(unit) + 1
}

// retryAfter is the least number of seconds after which the same request passes if nothing else comes. It is false if no
// waiting helps.
func retryAfter(matches []node.Demand, now int64) (seconds uint64, ok bool) {
	at := now
	for i := range matches {
		m := &matches[i]
		if m.Withheld() {
			at = max(at, m.Cell.DryUntil(now))
		}
		for j := range m.Cell.States {
			l, s := &m.Rule.Limits[j], &m.Cell.States[j]
			if l.Allows(s, m.Cost) {
				continue
			}
			fits, ok := l.FitsAt(s, m.Cost)
			if !ok {
				return 0, false
			}
			at = max(at, fits)
		}
	}
	return max(ceil(at-now, second), 1), true
}

// reject answers a request that was rejected, and tells whether the proxy took the answer. The response phase of the same
// stream follows, and has nothing to add.
func (a *answer) reject(matches []node.Demand, now int64, h *headers) (sent bool) {
	a.describe(matches, now, h)
	a.pairs.Reset()
	for i := range h.fields {
		a.pairs.AddBytes(h.fields[i].name, h.fields[i].value)
	}
	if a.headers&config.HeaderRetryAfter != 0 {
		if seconds, ok := retryAfter(matches, now); ok {
			a.numberText = appendNumber(a.numberText[:0], seconds)
			a.pairs.AddBytes("retry-after", a.numberText)
		}
	}
	a.pairs.Add("x-envoy-ratelimited", "true")
	if isGRPC() {
		a.reply.Body = a.body.GRPCMessage
	} else if a.reply.Body = a.body.Body; a.reply.Body != "" {
		a.pairs.Add("content-type", a.body.ContentType)
	}
	for i := range a.body.Headers {
		a.pairs.Add(a.body.Headers[i].Name, a.body.Headers[i].Value)
	}
	a.reply.Details = a.rules[rejecting(matches)].details
	return proxywasm.SendLocalResponse(&a.reply)
}

// rejecting is the first rule that has rejected a request.
func rejecting(matches []node.Demand) (rule int) {
	for i := range matches {
		if matches[i].Verdict == counter.Rejected {
			return matches[i].Rule.Index
		}
	}
	return matches[0].Rule.Index
}

// isGRPC tells whether the proxy answers the current request as gRPC wants it: then the reply's body goes into the header grpc-message.
func isGRPC() bool {
	const grpc = "application/grpc"
	contentType, _ := proxywasm.RequestHeader("content-type")
	n := len(contentType)
	return n >= len(grpc) && string(contentType[:len(grpc)]) == grpc && (n == len(grpc) || contentType[len(grpc)] == '+')
}
