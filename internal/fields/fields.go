// Package fields writes what clients see of a rate limit: the header fields of a response, and the
// text of a refusal. The plugin and the library's middleware both use it, so they send the same.
//
// RateLimit-Policy and RateLimit follow draft-ietf-httpapi-ratelimit-headers-10, whose
// names and parameters -11 has, too. The package is
// part of the plugin and allocates nothing while a response is written, once a [List] has grown.
package fields

import (
	"strconv"

	"weir/internal/calendar"
	"weir/window"
)

// Set is a set of header fields, as bits.
type Set uint8

const (
	// RateLimit stands for RateLimit-Policy and RateLimit.
	RateLimit Set = 1 << iota
	// XRateLimit stands for X-RateLimit-Limit, -Remaining and -Reset.
	XRateLimit
	// RetryAfter stands for Retry-After, on refusals.
	RetryAfter
	// Tokens stands for X-RateLimit-Limit-Tokens, -Remaining-Tokens and -Reset-Tokens, as OpenAI sends
	// them.
	Tokens
	// AnthropicTokens stands for the same as Anthropic sends it: Anthropic-RateLimit-Tokens-Limit,
	// -Remaining and -Reset.
	AnthropicTokens
	// Money stands for X-RateLimit-Limit-Cost, -Remaining-Cost, -Reset-Cost and X-RateLimit-Cost-Unit.
	Money

	// All are the fields that rules send by default if they count anything but tokens.
	All = RateLimit | XRateLimit | RetryAfter

	anyTokens = Tokens | AnthropicTokens | Money
)

// Describes reports whether allowed requests get any of the fields.
func (s Set) Describes() bool { return s&(RateLimit|XRateLimit|anyTokens) != 0 }

// ResetUnit is the unit of X-RateLimit-Reset.
type ResetUnit uint8

const (
	// Seconds counts seconds from now.
	Seconds ResetUnit = iota
	// Epoch is Unix time in seconds.
	Epoch
	// Milliseconds counts milliseconds from now.
	Milliseconds
)

// Rule is the constant part of a rule's fields. It is not modified after [NewRule], so it is safe
// for concurrent reads.
type Rule struct {
	policy []byte // RateLimit-Policy of all limits
	limits []limit
	unit   []byte // of its hits
	// quotaUnit is the policy's parameter for the unit; empty for requests.
	quotaUnit string
}

// Units of hits. The first three are those of the draft.
const (
	Requests           = "requests"
	ConcurrentRequests = "concurrent-requests"
	ContentBytes       = "content-bytes"
	ModelTokens        = "tokens"
	// Weighted are requests of which one may be several hits. As policies have it, these are requests.
	Weighted = "hits"
)

// limit is the constant part of a limit's fields.
type limit struct {
	state []byte // "name" and remainingLabel
	quota []byte // a part of the policy
}

const remainingLabel = ";r="

// name returns the quoted name of the limit.
func (l *limit) name() []byte { return l.state[:len(l.state)-len(remainingLabel)] }

// LimitName returns the quoted name of limit i of a rule.
func (r *Rule) LimitName(i int) []byte { return r.limits[i].name() }

// NewRule returns the constant part of a rule's fields. The first limit has the rule's name, and
// further limits are name.2, name.3 and so on. The name consists of A-Za-z0-9_-, which a String of
// structured fields need not escape. Clients can't respect a limit that blocks, so they don't see
// it; it is the last. The unit is that of hits, of A-Za-z0-9._-.
func NewRule(name string, limits []window.Limit, unit string) Rule {
	r := Rule{unit: []byte(unit)}
	if unit != Requests && unit != Weighted {
		r.quotaUnit = `;qu="` + unit + `"`
	}
	for i := range limits {
		if limits[i].Kind.Blocks() {
			break
		}
		state := `"` + name
		if i > 0 {
			state += "." + strconv.Itoa(i+1)
		}
		r.limits = append(r.limits, limit{state: []byte(state + `"` + remainingLabel)})
	}
	r.policy = appendPolicy(nil, r.limits, limits, r.quotaUnit)
	return r
}

// appendPolicy appends the policy of limits, and sets their quotas.
func appendPolicy(dst []byte, named []limit, limits []window.Limit, unit string) []byte {
	for i := range named {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(append(dst, named[i].name()...), ";q="...)
		start := len(dst)
		dst = appendNumber(dst, limits[i].Quota())
		named[i].quota = dst[start:len(dst):len(dst)]
		dst = append(dst, unit...)
		if span, whole := limits[i].Span(); whole && span%second == 0 {
			dst = appendNumber(append(dst, ";w="...), uint64(span/second))
		}
	}
	return dst
}

// Field is a header field. Its name is in lower case.
type Field struct {
	Name  string
	Value []byte
}

// Name is another name for a field. Both are in lower case.
type Name struct{ From, To string }

// Names are the fields that can be renamed, in their order in a response.
var Names = []string{
	"ratelimit-policy", "ratelimit", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset",
	"x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens",
	"anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset",
	"x-ratelimit-limit-cost", "x-ratelimit-remaining-cost", "x-ratelimit-reset-cost", "x-ratelimit-cost-unit",
	"x-ratelimit-warning", "x-ratelimit-delayed", "retry-after",
}

// List builds the fields of one response. Its memory is reused for later responses. It is not safe
// for concurrent use.
//
// Call [List.Begin] first. For each rule, in the configuration's order, call [List.Rule] or
// [List.Variant], and then [List.Limit] for each of its limits. Then call [List.End]. If rules
// warn, call [List.Warn] for each of them and [List.EndWarnings]. For a refusal, call
// [List.Refuse].
type List struct {
	fields []Field
	set    Set // of the present rule
	unit   ResetUnit
	now    int64
	policy []byte  // of the rules so far
	joined []byte  // memory for the policy of several rules
	rules  int     // so far that are in RateLimit
	limits []limit // limits of the rule that are still to come
	// varied and policies are memory for limits and policies of rules with other limits.
	varied   []limit
	policies []byte
	values   []byte // memory of the fields' values that aren't constant
	start    int    // start of the next field's value in values
	names    []Name
	// The tightest limits so far, in all and among tokens, by how they are shown.
	tightest          tightest
	openAI, anthropic tightest
	// money is the tightest limit of costs, in a unit.
	money            tightest
	unitOf, ruleUnit []byte // of money, and of the rule
}

// tightest is the limit with the least remaining in a group of fields.
type tightest struct {
	quota     []byte // nil if there is none
	remaining uint64
	// reset is negative if no window runs, which counts as a window that ends now.
	next, reset int64
}

// usualFields is the number of fields in All.
const usualFields = 7

// Rename makes some fields use other names from now on.
func (l *List) Rename(names []Name) { l.names = names }

// Fields returns the fields in the order in which to send them. They are valid until [List.Begin].
func (l *List) Fields() []Field { return l.fields }

// Begin begins a response at the time now, in Unix nanoseconds.
func (l *List) Begin(unit ResetUnit, now int64) {
	if l.fields == nil {
		l.fields = make([]Field, 0, usualFields)
	}
	l.unit, l.now = unit, now
	l.values, l.start, l.policies = l.values[:0], 0, l.policies[:0]
	l.fields, l.rules = l.fields[:0], 0
	l.tightest.quota, l.openAI.quota, l.anthropic.quota, l.money.quota = nil, nil, nil, nil
}

// Rule begins the next rule, which is shown in the fields of set.
func (l *List) Rule(r *Rule, set Set) {
	l.limits, l.set, l.ruleUnit = r.limits, set, r.unit
	if set&RateLimit == 0 {
		return
	}
	if l.rules++; l.rules == 1 {
		l.policy = r.policy
	} else {
		l.join(r)
	}
}

// Variant is [List.Rule] for a rule with other limits, in the same number, order and shapes.
func (l *List) Variant(r *Rule, limits []window.Limit, set Set) {
	l.varied = append(l.varied[:0], r.limits...)
	start := len(l.policies)
	l.policies = appendPolicy(l.policies, l.varied, limits, r.quotaUnit)
	l.Rule(&Rule{policy: l.policies[start:], limits: l.varied, unit: r.unit}, set)
}

//go:noinline
func (l *List) join(r *Rule) {
	if l.rules == 2 {
		l.joined = append(l.joined[:0], l.policy...)
	}
	l.joined = append(append(l.joined, ", "...), r.policy...)
	l.policy = l.joined
}

// Limit adds the next limit of the rule, as it stands after the decision.
func (l *List) Limit(s window.Standing) {
	labels := &l.limits[0]
	l.limits = l.limits[1:]
	if l.set&XRateLimit != 0 && l.tightest.yieldsTo(&s) {
		l.tightest = tightest{labels.quota, s.Remaining, s.Next, s.Reset}
	}
	if l.set&anyTokens != 0 {
		l.limitOfTokens(labels.quota, &s)
	}
	if l.set&RateLimit == 0 {
		return
	}
	v := l.values
	if len(v) > 0 {
		v = append(v, ", "...)
	}
	v = append(v, labels.state...)
	v = appendNumber(v, s.Remaining)
	v = append(v, ';', 't', '=')
	l.values = appendNumber(v, ceil(s.Next, second))
}

//go:noinline
func (l *List) limitOfTokens(quota []byte, s *window.Standing) {
	shown := tightest{quota, s.Remaining, s.Next, s.Reset}
	if l.set&Tokens != 0 && l.openAI.yieldsTo(s) {
		l.openAI = shown
	}
	if l.set&AnthropicTokens != 0 && l.anthropic.yieldsTo(s) {
		l.anthropic = shown
	}
	if l.set&Money != 0 && l.money.yieldsTo(s) {
		l.money, l.unitOf = shown, l.ruleUnit
	}
}

// yieldsTo reports whether s is to be shown in place of the tightest limit so far.
func (t *tightest) yieldsTo(s *window.Standing) bool {
	return t.quota == nil || s.Remaining < t.remaining || s.Remaining == t.remaining && ceil(s.Next, second) > ceil(t.next, second)
}

// End makes the fields of all limits.
func (l *List) End() {
	if l.rules > 0 {
		l.put("ratelimit-policy", l.policy)
		l.add("ratelimit")
	}
	if t := &l.tightest; t.quota != nil {
		l.put("x-ratelimit-limit", t.quota)
		l.number("x-ratelimit-remaining", t.remaining)
		l.number("x-ratelimit-reset", resetIn(l.unit, max(t.reset, 0), l.now))
	}
	if l.openAI.quota != nil || l.anthropic.quota != nil || l.money.quota != nil {
		l.endTokens()
	}
}

// endTokens makes fields of the limits of tokens.
//
//go:noinline
func (l *List) endTokens() {
	if t := &l.openAI; t.quota != nil {
		l.put("x-ratelimit-limit-tokens", t.quota)
		l.number("x-ratelimit-remaining-tokens", t.remaining)
		l.values = appendDuration(l.values, ceil(t.reset, second))
		l.add("x-ratelimit-reset-tokens")
	}
	if t := &l.anthropic; t.quota != nil {
		l.put("anthropic-ratelimit-tokens-limit", t.quota)
		l.number("anthropic-ratelimit-tokens-remaining", t.remaining)
		l.values = AppendTime(l.values, ceil(l.now+max(t.reset, 0), second))
		l.add("anthropic-ratelimit-tokens-reset")
	}
	if t := &l.money; t.quota != nil {
		l.put("x-ratelimit-limit-cost", t.quota)
		l.number("x-ratelimit-remaining-cost", t.remaining)
		l.values = appendDuration(l.values, ceil(t.reset, second))
		l.add("x-ratelimit-reset-cost")
		l.put("x-ratelimit-cost-unit", l.unitOf)
	}
}

// resetIn converts a reset in nanoseconds from now to a unit.
func resetIn(unit ResetUnit, reset, now int64) uint64 {
	switch unit {
	case Epoch:
		return ceil(now+reset, second)
	case Milliseconds:
		return ceil(reset, 1e6)
	default:
		return ceil(reset, second)
	}
}

// Warn adds limits of a rule, as bits, to those that [List.EndWarnings] warns about, if set has
// XRateLimit.
func (l *List) Warn(r *Rule, set Set, limits uint8) {
	for i := range r.limits {
		if limits>>i&1 == 0 || set&XRateLimit == 0 {
			continue
		}
		if len(l.values) > l.start {
			l.values = append(l.values, ", "...)
		}
		l.values = append(l.values, r.limits[i].name()...)
	}
}

// EndWarnings makes the field with the limits of [List.Warn].
func (l *List) EndWarnings() {
	if len(l.values) > l.start {
		l.add("x-ratelimit-warning")
	}
}

// Delayed adds a field with the time that a request has waited for room.
func (l *List) Delayed(nanos int64) {
	l.number("x-ratelimit-delayed", ceil(nanos, 1e6))
}

var yes = []byte("true")

// Refuse adds the fields of refusals. at is the time, in Unix nanoseconds, from which the same
// request would pass if no other hits come. If ok is false, it never would.
func (l *List) Refuse(set Set, at int64, ok bool) {
	if set&RetryAfter != 0 && ok {
		l.number("retry-after", Wait(at, l.now))
	}
	l.put("x-envoy-ratelimited", yes)
}

// Spread returns a random later time than at, by up to a share of the wait in thousandths, in whole
// seconds, so that not all clients return at once. random may be any number.
func Spread(at, now int64, share uint16, random uint64) int64 {
	wait := Wait(at, now)
	most := (wait*uint64(share) + 999) / 1000
	return now + int64(wait+random%(most+1))*second
}

// Wait returns how many seconds a client has to wait until a time, at least 1.
func Wait(at, now int64) uint64 { return max(ceil(at-now, second), 1) }

func (l *List) put(name string, value []byte) {
	for i := range l.names {
		if l.names[i].From == name {
			name = l.names[i].To
			break
		}
	}
	l.fields = append(l.fields, Field{name, value})
}

// add makes a field of the bytes appended to values since the last field.
func (l *List) add(name string) {
	l.put(name, l.values[l.start:])
	l.start = len(l.values)
}

func (l *List) number(name string, n uint64) {
	l.values = appendNumber(l.values, n)
	l.add(name)
}

const second = int64(1e9)

// ceil converts a time to a unit, rounded up; 0 if it has passed.
func ceil(nanos, unit int64) uint64 {
	if nanos <= 0 {
		return 0
	}
	return uint64(nanos-1)/uint64(unit) + 1
}

// appendNumber appends a number in decimal. Up to four digits, which nearly all have, divide
// nothing that isn't constant and 32 bits wide, and copy nothing.
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

// Package time can do this too, but would make the plugin a tenth larger.

// appendDuration appends seconds in the form of time.Duration: 6m0s.
func appendDuration(dst []byte, seconds uint64) []byte {
	if hours := seconds / 3600; hours > 0 {
		dst = append(strconv.AppendUint(dst, hours, 10), 'h')
	}
	if minutes := seconds / 60; minutes > 0 {
		dst = append(strconv.AppendUint(dst, minutes%60, 10), 'm')
	}
	return append(strconv.AppendUint(dst, seconds%60, 10), 's')
}

// AppendTime appends a Unix time in the form of RFC 3339, in UTC: 2026-11-23T07:10:00Z.
func AppendTime(dst []byte, seconds uint64) []byte {
	const day = 24 * 60 * 60
	year, month, dayOfMonth := calendar.Date(int64(seconds / day))
	s := seconds % day
	dst = append(strconv.AppendInt(dst, year, 10), '-')
	dst = append(appendPair(dst, uint64(month)), '-')
	dst = append(appendPair(dst, uint64(dayOfMonth)), 'T')
	dst = append(appendPair(dst, s/3600), ':')
	dst = append(appendPair(dst, s/60%60), ':')
	return append(appendPair(dst, s%60), 'Z')
}

func appendPair(dst []byte, n uint64) []byte { return append(dst, '0'+byte(n/10), '0'+byte(n%10)) }
