package filter

import (
	"strconv"

	"weir/config"
	"weir/proxywasm"
	"weir/window"
)

// answer writes what clients see: response headers, and the reply to what was rejected.
type answer struct {
	headers    config.HeaderSet
	unit       config.ResetUnit
	rules      [][]labels // for each rule, for each limit
	reply      proxywasm.LocalResponse
	pairs      proxywasm.Pairs
	body       config.Response
	numberText []byte
}

// labels are the parts of a limit's header fields that never change.
type labels struct {
	policy string // "name";q=100;w=60
	state  string // "name";r=
	quota  uint64
}

const second = int64(1e9)

// details name the reason of a rejection in the proxy's access log.
const details = "weir_rate_limited"

func (a *answer) compile(c *config.Config) {
	a.headers, a.unit, a.body = c.Headers, c.ResetUnit, c.Response
	a.rules = a.rules[:0]
	for i := range c.Rules {
		rule := &c.Rules[i]
		var all []labels
		for j := range rule.Limits {
			name := rule.Name
			if j > 0 {
				name += "." + strconv.Itoa(j+1)
			}
			all = append(all, label(name, &rule.Limits[j]))
		}
		a.rules = append(a.rules, all)
	}
	a.reply = proxywasm.LocalResponse{
		Status:     uint32(c.Response.Status),
		Details:    details,
		Headers:    &a.pairs,
		Body:       c.Response.Body,
		GRPCStatus: int32(c.Response.GRPCStatus),
	}
}

// label follows draft-ietf-httpapi-ratelimit-headers-10: names are Strings of structured fields. A rule's name has no
// character that they would have to escape.
func label(name string, l *window.Limit) labels {
	quota := l.Quota()
	out := labels{quota: quota, state: `"` + name + `";r=`, policy: `"` + name + `";q=` + strconv.FormatUint(quota, 10)}
	if span, whole := l.Span(); whole && span%second == 0 {
		out.policy += ";w=" + strconv.FormatInt(span/second, 10)
	}
	return out
}

// headers are the rate limit headers of one response, in the order in which they are sent.
type headers struct {
	values []byte
	fields []field
}

type field struct {
	name       string
	start, end int // of the value, in headers.values
}

func (h *headers) reset() { h.values, h.fields = h.values[:0], h.fields[:0] }

// add makes what was appended to values since the last field a field.
func (h *headers) add(name string) {
	start := 0
	if n := len(h.fields); n > 0 {
		start = h.fields[n-1].end
	}
	h.fields = append(h.fields, field{name: name, start: start, end: len(h.values)})
}

// replace sends the headers with the current stream's response, in place of the upstream's of the same names.
func (h *headers) replace() {
	for _, f := range h.fields {
		proxywasm.ReplaceResponseHeader(f.name, h.values[f.start:f.end])
	}
}

// standing is how a limit stands after a decision.
type standing struct {
	quota     uint64
	remaining uint64
	// next is how many nanoseconds it takes until one more hit has room; 0 while nothing is used.
	next int64
	// reset is how many nanoseconds it takes until the window ends; negative if none runs.
	reset int64
}

func stand(l *window.Limit, s *window.State, quota uint64, now int64) standing {
	out := standing{quota: quota, remaining: l.Remaining(s), reset: -1}
	// Where everything remains, one more is above the limit and never fits.
	if at, ok := l.FitsAt(s, out.remaining+1); ok {
		out.next = at - now
	}
	if at, ok := l.ResetAt(s); ok {
		out.reset = at - now
	}
	return out
}

// tighter tells whether s is to be shown rather than other, which comes before it.
func (s *standing) tighter(other *standing) bool {
	if s.remaining != other.remaining {
		return s.remaining < other.remaining
	}
	return ceil(s.next, second) > ceil(other.next, second)
}

// describe writes the headers of a decided request, and tells whether there are any.
func (a *answer) describe(matches []match, now int64, h *headers) bool {
	h.reset()
	if a.headers&(config.HeaderRateLimit|config.HeaderXRateLimit) == 0 {
		return false
	}
	if a.headers&config.HeaderRateLimit != 0 {
		for i := range matches {
			for j := range matches[i].cell.States {
				h.values = append(separate(h.values, i, j), a.rules[matches[i].index][j].policy...)
			}
		}
		h.add("ratelimit-policy")
	}
	var tightest standing
	for i := range matches {
		m := &matches[i]
		for j := range m.cell.States {
			l := &a.rules[m.index][j]
			s := stand(&m.rule.counter.Limits[j], &m.cell.States[j], l.quota, now)
			if m.withheld() {
				s.remaining, s.next = 0, max(s.next, m.cell.DryUntil(now)-now, 1)
			}
			if i == 0 && j == 0 || s.tighter(&tightest) {
				tightest = s
			}
			if a.headers&config.HeaderRateLimit != 0 {
				h.values = append(separate(h.values, i, j), l.state...)
				h.values = strconv.AppendUint(h.values, s.remaining, 10)
				h.values = append(h.values, ";t="...)
				h.values = strconv.AppendInt(h.values, ceil(s.next, second), 10)
			}
		}
	}
	if a.headers&config.HeaderRateLimit != 0 {
		h.add("ratelimit")
	}
	if a.headers&config.HeaderXRateLimit != 0 {
		h.values = strconv.AppendUint(h.values, tightest.quota, 10)
		h.add("x-ratelimit-limit")
		h.values = strconv.AppendUint(h.values, tightest.remaining, 10)
		h.add("x-ratelimit-remaining")
		h.values = strconv.AppendInt(h.values, a.resetIn(tightest.reset, now), 10)
		h.add("x-ratelimit-reset")
	}
	return true
}

func separate(values []byte, rule, limit int) []byte {
	if rule+limit > 0 {
		return append(values, ", "...)
	}
	return values
}

// resetIn is a reset in the configured unit. No window counts as one that ends now.
func (a *answer) resetIn(reset, now int64) int64 {
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

func ceil(nanos, unit int64) int64 {
	if nanos <= 0 {
		return 0
	}
	return (nanos-1)/unit + 1
}

// retryAfter is the least number of seconds after which the same request passes if nothing else comes. It is false if no
// waiting helps.
func retryAfter(matches []match, now int64) (seconds int64, ok bool) {
	at := now
	for i := range matches {
		m := &matches[i]
		if m.withheld() {
			at = max(at, m.cell.DryUntil(now))
		}
		for j := range m.cell.States {
			l, s := &m.rule.counter.Limits[j], &m.cell.States[j]
			if l.Allows(s, m.cost) {
				continue
			}
			fits, ok := l.FitsAt(s, m.cost)
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
func (a *answer) reject(matches []match, now int64, h *headers) (sent bool) {
	a.describe(matches, now, h)
	a.pairs.Reset()
	for _, f := range h.fields {
		a.pairs.AddBytes(f.name, h.values[f.start:f.end])
	}
	if a.headers&config.HeaderRetryAfter != 0 {
		if seconds, ok := retryAfter(matches, now); ok {
			a.numberText = strconv.AppendInt(a.numberText[:0], seconds, 10)
			a.pairs.AddBytes("retry-after", a.numberText)
		}
	}
	a.pairs.Add("x-envoy-ratelimited", "true")
	if a.body.Body != "" {
		a.pairs.Add("content-type", a.body.ContentType)
	}
	for i := range a.body.Headers {
		a.pairs.Add(a.body.Headers[i].Name, a.body.Headers[i].Value)
	}
	return proxywasm.SendLocalResponse(&a.reply)
}
