package simulate

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/config"
	"weir/internal/calendar"
	"weir/internal/simulate/accesslog"
	"weir/window"
)

// Report is the result of a simulation. Its JSON is an interface: fields keep their names, and new
// fields may be added.
type Report struct {
	Logs []LogReport `json:"logs"`
	// From and To are the times of the first and the last request.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Requests counts all requests, and Refused those that the rules together refuse.
	Requests     uint64  `json:"requests"`
	Refused      uint64  `json:"refused"`
	RefusedShare float64 `json:"refused_share"`
	// Headline says in a sentence who is refused most, and by which rule.
	Headline string `json:"headline"`
	// Timeline counts requests over time, in steps of equal length.
	Timeline []Step `json:"timeline"`
	// Configuration has the rules as they were given, in JSON, without the backend and its secrets.
	Configuration string `json:"-"`
	// Notes are caveats about the numbers.
	Notes []string     `json:"notes"`
	Rules []RuleReport `json:"rules"`
}

// Step is a part of the time that the logs span.
type Step struct {
	From     time.Time `json:"from"`
	Seconds  float64   `json:"seconds"`
	Requests uint64    `json:"requests"`
	Refused  uint64    `json:"refused"`
}

// LogReport counts the lines of a log by their outcome.
type LogReport struct {
	Name   string `json:"name"`
	Format string `json:"format"`
	Gzip   bool   `json:"gzip"`
	Lines  int64  `json:"lines"`
	// Requests were replayed. Unreadable lines fit no format, and WithoutRequest counts lines about
	// no HTTP request.
	Requests       int64 `json:"requests"`
	Unreadable     int64 `json:"unreadable"`
	WithoutRequest int64 `json:"without_request"`
	// OutOfOrder requests were put in order. Late requests came more than a minute after a later
	// request, and count at the time that the simulation had reached.
	OutOfOrder       int64               `json:"out_of_order"`
	Late             int64               `json:"late"`
	MostBehindMillis int64               `json:"most_behind_ms"`
	Examples         []accesslog.Example `json:"examples"`
}

// RuleReport is the effect of a rule.
type RuleReport struct {
	Name string `json:"name"`
	// Missing are the parts that the rule needs and the logs do not have. A rule with missing parts
	// is left out.
	Missing []string `json:"missing"`
	// Requests match the rule. Refused were refused, by this rule or another; RefusedByRule were
	// refused by this rule, or marked if it marks what it has no room for.
	Requests           uint64  `json:"requests"`
	Refused            uint64  `json:"refused"`
	RefusedShare       float64 `json:"refused_share"`
	RefusedByRule      uint64  `json:"refused_by_rule"`
	RefusedByRuleShare float64 `json:"refused_by_rule_share"`
	// Does says what is done to them: refused or marked.
	Does string `json:"-"`
	// Delayed are the requests to a rule with delay that waited for room and got it. Half of them
	// waited for at most WaitP50Millis, and 99 of 100 for at most WaitP99Millis.
	Delayed       uint64  `json:"delayed"`
	DelayedShare  float64 `json:"delayed_share"`
	WaitP50Millis int64   `json:"wait_p50_ms"`
	WaitP99Millis int64   `json:"wait_p99_ms"`
	// Keys are all keys that the rule has counted. RefusedKeys had at least one request that this
	// rule refused.
	Keys             uint64  `json:"keys"`
	RefusedKeys      uint64  `json:"refused_keys"`
	RefusedKeysShare float64 `json:"refused_keys_share"`
	// Worst are the keys with the most requests that this rule refused.
	Worst  []KeyReport   `json:"worst"`
	Limits []LimitReport `json:"limits"`
}

// KeyReport is the effect of a rule on a key.
type KeyReport struct {
	// Values are the key's values, in the order of the rule's selectors.
	Values             []string `json:"values"`
	Requests           uint64   `json:"requests"`
	RefusedByRule      uint64   `json:"refused_by_rule"`
	RefusedByRuleShare float64  `json:"refused_by_rule_share"`
}

// LimitReport is the effect of a limit by itself, without the rule's other limits and without other
// rules.
type LimitReport struct {
	LimitSpec
	// Curve has limits from a quarter of this limit to eight times of it.
	Curve []Outcome `json:"curve"`
	// Least has the least limits that refuse at most a share of requests, and of keys.
	Least []Least `json:"least"`
	// Algorithms has this limit with each algorithm.
	Algorithms []Outcome `json:"algorithms"`
}

// LimitSpec is a limit in the form of a configuration.
type LimitSpec struct {
	Limit uint64 `json:"limit"`
	// Window is empty for requests in flight.
	Window    string `json:"window,omitempty"`
	Algorithm string `json:"algorithm"`
	Start     string `json:"start,omitempty"`
	Precision string `json:"precision,omitempty"`
	Burst     uint64 `json:"burst,omitempty"`
}

// Outcome counts the refusals of a limit by itself.
type Outcome struct {
	LimitSpec
	// Configured marks the limit as it is configured.
	Configured       bool    `json:"configured"`
	Refused          uint64  `json:"refused"`
	RefusedShare     float64 `json:"refused_share"`
	RefusedKeys      uint64  `json:"refused_keys"`
	RefusedKeysShare float64 `json:"refused_keys_share"`
}

// Least has the least limits that refuse at most a share.
type Least struct {
	Share float64 `json:"share"`
	// Limit refuses at most the share of requests, which a single client can decide. KeysLimit refuses
	// something to at most the share of keys. Each is null if there is none: costs are above every limit,
	// or a log would be too large.
	Limit     *uint64 `json:"limit"`
	KeysLimit *uint64 `json:"keys_limit"`
}

var shares = [...]float64{0.01, 0.001}

func (s *simulation) report() *Report {
	r := &Report{
		Requests: s.requests, Refused: s.refused, RefusedShare: share(s.refused, s.requests),
		From: time.Unix(0, s.first).UTC(), To: time.Unix(0, s.last).UTC(), Notes: []string{},
		Timeline: s.timeline.report(), Configuration: s.document.text,
	}
	for _, log := range s.logs {
		c := &log.Reader.Counts
		l := LogReport{
			Name: log.Name, Format: c.Format, Gzip: c.Gzip, Lines: c.Lines, Requests: c.Requests, Unreadable: c.Unreadable,
			WithoutRequest: c.WithoutRequest, OutOfOrder: log.Moved + log.Late, Late: log.Late, MostBehindMillis: log.Most.Milliseconds(),
			Examples: []accesslog.Example{},
		}
		for _, e := range c.Examples {
			e.Excerpt = strings.ToValidUTF8(e.Excerpt, "\ufffd")
			l.Examples = append(l.Examples, e)
		}
		r.Logs = append(r.Logs, l)
	}
	at := 0
	for i := range s.config.Rules {
		rule := &s.config.Rules[i]
		out := RuleReport{Name: rule.Name, Missing: []string{}, Worst: []KeyReport{}, Limits: []LimitReport{}, Does: "refused"}
		if rule.Marks {
			out.Does = "marked"
		}
		for _, part := range s.missing[i] {
			out.Missing = append(out.Missing, part.String())
		}
		if len(out.Missing) > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("rule %s is left out: the logs do not have %s", rule.Name, strings.Join(out.Missing, ", ")))
		} else {
			out.fill(rule, s.rules[at], s.options.Worst)
			at++
		}
		r.Rules = append(r.Rules, out)
	}
	s.remark(r)
	r.Headline = s.headline(r)
	return r
}

// headline says who is refused most. If nobody is, it says whom a shadow rule would refuse most, or who is marked most.
func (s *simulation) headline(r *Report) string {
	var most *KeyReport
	var rule *RuleReport
	shadow := r.Refused == 0
	for i := range r.Rules {
		of := &r.Rules[i]
		if len(of.Worst) > 0 && (s.config.Rules[i].Shadow || s.config.Rules[i].Marks) == shadow && (most == nil || of.Worst[0].RefusedByRule > most.RefusedByRule) {
			most, rule = &of.Worst[0], of
		}
	}
	switch {
	case most == nil && shadow:
		return "No request is refused."
	case most == nil:
		return fmt.Sprintf("%s of requests are refused.", percent(r.RefusedShare))
	case shadow && rule.Does == "marked":
		return fmt.Sprintf("No request is refused. %s has %s of the marks of %s.", keyText(most.Values), percent(share(most.RefusedByRule, rule.RefusedByRule)), rule.Name)
	case shadow:
		return fmt.Sprintf("No request is refused. %s would have %s of the refusals of %s, a shadow rule.",
			keyText(most.Values), percent(share(most.RefusedByRule, rule.RefusedByRule)), rule.Name)
	}
	return fmt.Sprintf("%s has %s of the refusals, by %s.", keyText(most.Values), percent(min(1, share(most.RefusedByRule, r.Refused))), rule.Name)
}

// remark adds the notes that concern several rules.
func (s *simulation) remark(r *Report) {
	for _, a := range s.tells.asked {
		if a.unknown > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("%d of %d requests have no word on %s: there it counts as absent", a.unknown, a.requests, a.Part))
		}
	}
	if n := s.decides.total("evicted_counters_total"); n > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("capacity %d is too small for one proxy: %d counters made room for others before they expired, "+
			"so some keys passed more than their limits", s.config.Capacity, n))
	}
	if n := s.tells.total("bad_costs_total"); n > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d costs were not numbers", n))
	}
	for _, log := range s.logs {
		if c := &log.Reader.Counts; c.Requests > 0 && !c.Fractions && s.shortest() < roughBelow {
			r.Notes = append(r.Notes, fmt.Sprintf("%s has times in whole seconds: the numbers for windows below %s are rough", log.Name, config.Duration(roughBelow)))
		}
	}
}

// roughBelow is the window below which the results of a log with whole seconds are rough.
const roughBelow = int64(10 * time.Second)

// shortest returns the shortest window of the simulated rules.
func (s *simulation) shortest() (width int64) {
	width = window.MaxWidth
	for _, i := range s.kept {
		for j := range s.config.Rules[i].Limits {
			width = min(width, s.config.Rules[i].Limits[j].Width)
		}
	}
	return width
}

func (r *RuleReport) fill(rule *config.Rule, h *history, worst int) {
	r.Requests, r.Refused, r.RefusedByRule, r.Keys = h.requests, h.refused, h.refusedBy, uint64(len(h.keys))
	r.RefusedShare, r.RefusedByRuleShare = share(h.refused, h.requests), share(h.refusedBy, h.requests)
	if n := len(h.waits); n > 0 {
		slices.Sort(h.waits)
		r.Delayed, r.DelayedShare = uint64(n), share(uint64(n), h.requests)
		r.WaitP50Millis, r.WaitP99Millis = h.waits[(n-1)/2]/1e6, h.waits[(n-1)*99/100]/1e6
	}
	var refused []*key
	for i := range h.keys {
		if k := &h.keys[i]; k.refusedBy > 0 {
			refused = append(refused, k)
		}
	}
	r.RefusedKeys, r.RefusedKeysShare = uint64(len(refused)), share(uint64(len(refused)), r.Keys)
	slices.SortFunc(refused, func(a, b *key) int {
		return cmp.Or(cmp.Compare(b.refusedBy, a.refusedBy), cmp.Compare(b.requests, a.requests), cmp.Compare(a.name, b.name))
	})
	for _, k := range refused[:min(len(refused), worst)] {
		r.Worst = append(r.Worst, KeyReport{values(rule, k.name), k.requests, k.refusedBy, share(k.refusedBy, k.requests)})
	}
	t := newTrial(h)
	for i := range rule.Limits {
		v := variant{limit: rule.Limits[i], countRejected: rule.CountRejected, delay: int64(rule.Delay), queue: rule.Queue}
		v.limit.Ordinal = 0 // it is simulated by itself
		r.Limits = append(r.Limits, t.limit(v, h))
	}
}

func (t *trial) limit(v variant, h *history) LimitReport {
	curve, algorithms := v.curve(), v.algorithms()
	outcomes := t.run(slices.Concat(curve, algorithms))
	tell := func(variants []variant, outcomes []outcome) []Outcome {
		all := []Outcome{}
		for i, o := range outcomes {
			all = append(all, Outcome{
				LimitSpec: spec(&variants[i].limit), Configured: variants[i] == v,
				Refused: o.requests, RefusedShare: share(o.requests, h.requests),
				RefusedKeys: o.keys, RefusedKeysShare: share(o.keys, uint64(len(h.keys))),
			})
		}
		return all
	}
	return LimitReport{
		LimitSpec: spec(&v.limit), Curve: tell(curve, outcomes[:len(curve)]), Algorithms: tell(algorithms, outcomes[len(curve):]),
		Least: t.leasts(v, h),
	}
}

func (t *trial) leasts(v variant, h *history) []Least {
	all := make([]Least, len(shares))
	var group sync.WaitGroup
	for i, s := range shares {
		all[i].Share = s
		group.Go(func() { all[i].Limit = t.least(v, outcome{uint64(s * float64(h.requests)), math.MaxUint64}) })
		group.Go(func() { all[i].KeysLimit = t.least(v, outcome{math.MaxUint64, uint64(s * float64(len(h.keys)))}) })
	}
	group.Wait()
	return all
}

func share(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// spec returns a limit in the form of a configuration.
func spec(l *window.Limit) LimitSpec {
	out := LimitSpec{Limit: l.Max, Window: config.Duration(l.Width).String(), Burst: l.Burst}
	if l.Kind.Held() {
		out.Window = ""
	}
	if l.Calendar != nil {
		out.Window = calendar.Periods[slices.Index(calendar.Lengths[:], l.Width)]
	}
	for _, a := range window.Algorithms {
		switch {
		case l.IsLog() != (a.Precision == window.LogPrecision):
			continue
		case l.Kind == a.Kind:
		case l.Kind == a.With[window.Start]:
			out.Start = "first_hit"
		case l.Kind == a.With[window.Precision]:
			out.Precision = config.Duration(l.Precision).String()
		default:
			continue
		}
		out.Algorithm = a.Name
		break
	}
	return out
}

// maxShown bounds the bytes that are shown of a value.
const maxShown = 256

// values returns the values of a key for people.
func values(rule *config.Rule, name string) []string {
	all := []string{}
	rest := []byte(name)
	for i := -1; len(rest) > 0; i++ {
		length, n := binary.Uvarint(rest)
		value := rest[n : n+int(length)]
		rest = rest[n+int(length):]
		if i < 0 {
			continue // the rule's name
		}
		text := string(value)
		if i < len(rule.Key) && rule.Key[i].Kind == config.SelectClientIP { // the class comes last
			text = network(value, &rule.Key[i])
		}
		if len(text) > maxShown {
			text = text[:maxShown] + "…"
		}
		all = append(all, strings.ToValidUTF8(text, "\ufffd"))
	}
	return all
}

// network returns the network that a key has for an address.
func network(value []byte, s *config.Selector) string {
	address, ok := netip.AddrFromSlice(value)
	if !ok {
		return string(value)
	}
	bits := s.IPv6Prefix
	if address.Is4() {
		bits = s.IPv4Prefix
	}
	if bits == address.BitLen() {
		return address.String()
	}
	return netip.PrefixFrom(address, bits).String()
}

// mostSteps is the most steps of a timeline.
const mostSteps = 120

// widths are the lengths of steps, in round numbers. Each is a multiple of the width before. Beyond
// the last, lengths double.
var widths = [...]time.Duration{
	time.Second, 2 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// timeline counts requests in steps of time. The steps get longer as the logs span more time.
type timeline struct {
	start, width int64 // in Unix nanoseconds
	longer       int   // the index in widths of the next width
	steps        []step
}

type step struct{ requests, refused uint64 }

// add counts a request. A time before the first counts as the first.
func (t *timeline) add(at int64, refused bool) {
	if t.width == 0 {
		t.start, t.width, t.longer = at, int64(widths[0]), 1
	}
	i := max(0, at-t.start) / t.width
	for ; i >= mostSteps; i = (at - t.start) / t.width {
		t.lengthen()
	}
	for int64(len(t.steps)) <= i {
		t.steps = append(t.steps, step{})
	}
	t.steps[i].requests++
	if refused {
		t.steps[i].refused++
	}
}

// lengthen joins steps to longer steps.
func (t *timeline) lengthen() {
	joined := 2
	if t.longer < len(widths) {
		joined = int(int64(widths[t.longer]) / t.width)
		t.longer++
	}
	t.width *= int64(joined)
	for j := range t.steps {
		s := t.steps[j]
		t.steps[j] = step{}
		t.steps[j/joined].requests += s.requests
		t.steps[j/joined].refused += s.refused
	}
	t.steps = t.steps[:(len(t.steps)+joined-1)/joined]
}

// report returns the timeline in the form of a report.
func (t *timeline) report() []Step {
	steps := make([]Step, len(t.steps))
	for i, s := range t.steps {
		steps[i] = Step{From: time.Unix(0, t.start+int64(i)*t.width).UTC(), Seconds: time.Duration(t.width).Seconds(), Requests: s.requests, Refused: s.refused}
	}
	return steps
}
