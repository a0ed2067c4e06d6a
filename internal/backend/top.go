package backend

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
)

// report keeps a report, and returns the answer to it.
func (b *Backend) report(ctx context.Context, body []byte) (answer []byte, err error) {
	r, err := wire.DecodeReport(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	if len(r.Warnings) > 0 && b.warned != nil {
		b.warned(r.Namespace, r.Warnings)
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if _, err = b.store.Note(ctx, store.Reports, r.Namespace, store.Note{Member: r.Sender, Body: body}); err != nil {
		return nil, err
	}
	tell, noted := b.known.hear(ctx, r)
	if noted && b.noteNamespace(ctx, r.Namespace) != nil {
		b.known.forget(r) // a later report notes it
	}
	if tell {
		answer = []byte(wire.TellRules)
	}
	return answer, nil
}

// Top sums up the recent reports of a namespace's nodes about its keys, of the last minute or two. Seconds
// and rates are rounded to three places.
type Top struct {
	// Nodes have reported, through Senders: each worker of a proxy is a sender. OldestSeconds is
	// the age of the oldest report. Full says that there are as many reports as a store keeps, so others
	// may be missing in all figures.
	Nodes         int       `json:"nodes"`
	Senders       int       `json:"senders"`
	Full          bool      `json:"full,omitempty"`
	OldestSeconds float64   `json:"oldest_seconds"`
	Rules         []TopRule `json:"rules"`
	// Configurations are those of the nodes, as [Backend.Configurations] returns them.
	Configurations []Configuration `json:"configurations,omitempty"`
}

// TopRule sums up the reports about a rule. Rates are per second, and those of requests and hits
// are exact.
type TopRule struct {
	Rule   string `json:"rule"`
	Shadow bool   `json:"shadow"`
	Nodes  int    `json:"nodes"`
	// Limits are those of most nodes, if they were asked for and nodes have told them. Varies says that some
	// keys have others, by the configuration or by overrides.
	Limits []KnownLimit `json:"limits,omitempty"`
	Varies bool         `json:"varies,omitempty"`
	// Seconds is the longest time that a report covers.
	Seconds float64 `json:"seconds"`
	// Asked requests were counted in that time, and Rejected of them refused. ShareRefused is their
	// share.
	Asked    uint64 `json:"requests"`
	Rejected uint64 `json:"refused_requests"`
	Rates
	ShareRefused float64 `json:"share_refused"`
	// Recent covers the last RecentSeconds, at most about ten; nil if no node reports it.
	RecentSeconds float64 `json:"recent_seconds,omitempty"`
	Recent        *Rates  `json:"recent,omitempty"`
	// Used are the keys with most hits, and Refused the keys that were refused most.
	Used    []TopKey `json:"used"`
	Refused []TopKey `json:"refused"`
	// Others is the most hits of a key in neither list, and OthersRefused the most hits that such a
	// key was refused.
	Others        float64 `json:"others_hits_per_second"`
	OthersRefused float64 `json:"others_refused_per_second"`
	// Measured is set for shadow rules only.
	Measured *Measured `json:"measured,omitempty"`
}

// KnownLimit is a limit of a rule.
type KnownLimit struct {
	Algorithm string `json:"algorithm"`
	WidthMS   uint64 `json:"width_ms"`
	// Period is day, week or month for a window of the calendar.
	Period      string `json:"period,omitempty"`
	PrecisionNS uint64 `json:"precision_ns,omitempty"`
	Limit       uint64 `json:"limit"`
	Burst       uint64 `json:"burst,omitempty"`
}

// Rates are per second.
type Rates struct {
	Requests        float64 `json:"requests_per_second"`
	Hits            float64 `json:"hits_per_second"`
	RefusedRequests float64 `json:"refused_requests_per_second"`
	RefusedHits     float64 `json:"refused_hits_per_second"`
}

// add adds amounts of a number of seconds.
func (r *Rates) add(a *wire.Amounts, seconds float64) {
	r.Requests += float64(a.Requests) / seconds
	r.Hits += float64(a.Hits) / seconds
	r.RefusedRequests += float64(a.RefusedRequests) / seconds
	r.RefusedHits += float64(a.RefusedHits) / seconds
}

// round rounds figures to three places.
func round(figures ...*float64) {
	for _, f := range figures {
		*f = Rounded(*f)
	}
}

// Rounded rounds a number to three places.
func Rounded(n float64) float64 { return math.Round(n*1000) / 1000 }

func (r *Rates) round() { round(&r.Requests, &r.Hits, &r.RefusedRequests, &r.RefusedHits) }

// TopKey has the figures of a key. Rates are per second.
type TopKey struct {
	// Hash is the key's identity. Values are those of the rule's selectors, if the rule reveals them.
	Hash   string  `json:"hash"`
	Values []Value `json:"values,omitempty"`
	// Hits and Refused are known hits of the key. The true figures may be up to MoreHits and
	// MoreRefused higher, because nodes track only their first keys. Sampled figures may also be off by Margin
	// and MarginRefused, twice the standard error.
	Hits          float64 `json:"hits_per_second"`
	MoreHits      float64 `json:"hits_more"`
	Margin        float64 `json:"hits_margin"`
	Refused       float64 `json:"refused_per_second"`
	MoreRefused   float64 `json:"refused_more"`
	MarginRefused float64 `json:"refused_margin"`
	// RecentHits and RecentRefused cover the rule's RecentSeconds, as far as is known.
	RecentHits    float64 `json:"recent_hits_per_second"`
	RecentRefused float64 `json:"recent_refused_per_second"`
	// Use is the greatest used share of its limits that a node has seen.
	Use   float64 `json:"use"`
	Nodes int     `json:"nodes"`
	// Limits say how the key stands now, if that was asked and its limits are those of the rule.
	Limits []CounterLimit `json:"limits,omitempty"`
}

// ValuesOf returns the values of a name that [wire.AppendValue] has made. Bytes that are not UTF-8 become U+FFFD.
func ValuesOf(name []byte) (values []Value) {
	for len(name) > 0 {
		value, cut, rest, ok := wire.NextValue(name)
		if !ok {
			break
		}
		values = append(values, Value{Text: strings.ToValidUTF8(string(value), "\uFFFD"), Cut: cut})
		name = rest
	}
	return values
}

// Measured says what a shadow rule would do to keys.
type Measured struct {
	// Keys is how many keys were measured, and Refused how many of them would recently have been
	// refused. They are one in Every of all keys, chosen by their hashes.
	Keys    int             `json:"keys"`
	Refused int             `json:"refused"`
	Every   float64         `json:"every"`
	Limits  []MeasuredLimit `json:"limits"`
}

// MeasuredLimit says how high a limit would have to be. Windows are those of the clock, whatever
// the algorithm.
type MeasuredLimit struct {
	Limit   uint64 `json:"limit"`
	WidthMS uint64 `json:"width_ms"`
	// Windows is how many windows were measured, in which all keys asked for Hits. Running means
	// that no window has ended yet that all nodes have seen, so the hits are of a window that still
	// runs.
	Windows int    `json:"windows"`
	Running bool   `json:"running"`
	Hits    uint64 `json:"hits"`
	// Least is the least limit that would have refused at most a thousandth of these hits, as far
	// as the keys with most hits and the sample of others tell. Most is how many hits the busiest
	// key asked for in one window.
	Least uint64 `json:"least"`
	Most  uint64 `json:"most"`
	// Sure is the least limit that would have refused at most a thousandth whatever was not seen: in
	// one window a key that was not seen had Unseen hits at most. Both are nil unless all nodes
	// report their keys with most hits.
	Sure   *uint64 `json:"sure,omitempty"`
	Unseen *uint64 `json:"unseen,omitempty"`
}

// reportLife is how long a report speaks for its sender: a living sender reports again after some
// five seconds. It is by the store's time, which reports have.
const reportLife = uint64(15e9)

// Top merges the newest reports of a namespace's nodes, but for senders that are gone.
func (b *Backend) Top(ctx context.Context, namespace, rule string) (Top, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	// A push of nothing is a read, here of the time.
	out, err := b.store.Push(ctx, &wire.Push{Namespace: namespace, Sequence: 1, Floor: 1}, 1)
	if err != nil {
		return Top{}, err
	}
	reports, full, err := b.reports(ctx, namespace, out.Answer.NowNanos)
	top := merge(reports, rule)
	top.Full = full
	if err != nil || len(reports) == 0 {
		return top, err
	}
	oldest := slices.MinFunc(reports, func(a, b *wire.Report) int { return cmp.Compare(a.AtNanos, b.AtNanos) }).AtNanos
	top.OldestSeconds = Rounded(max(0, b.Now().Sub(time.Unix(0, int64(min(oldest, math.MaxInt64)))).Seconds()))
	top.Configurations = b.configurations(ctx, namespace, reports)
	return top, nil
}

// Standing returns the counters of keys.
func (b *Backend) Standing(ctx context.Context, namespace string, of map[wire.ID]*wire.RuleShape) (map[wire.ID]Counter, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	all := make(map[wire.ID]Counter, len(of))
	for id := range of {
		c, err := b.counter(ctx, namespace, id)
		if err != nil {
			return nil, err
		}
		all[id] = c
	}
	return all, nil
}

// reports are the newest of a namespace's senders, but for those that are gone. With full there may be others, for which the
// store has no room.
func (b *Backend) reports(ctx context.Context, namespace string, now uint64) (reports []*wire.Report, full bool, err error) {
	notes, err := b.store.Notes(ctx, store.Reports, namespace)
	for _, n := range notes {
		// Another version's, or nobody's: whoever else writes to the store.
		if r, err := wire.DecodeReport(n.Body); err == nil && r.Namespace == namespace && r.AtNanos+reportLife > now {
			reports = append(reports, r)
		}
	}
	return reports, len(notes) >= store.MaxReports, err
}

// seen is a rule's part of a report.
type seen struct {
	*wire.RuleReport
	node, at uint64
}

func merge(reports []*wire.Report, only string) (t Top) {
	nodes := map[uint64]bool{}
	rules := map[string][]seen{}
	for _, r := range reports {
		nodes[r.Node] = true
		for i := range r.Rules {
			if p := &r.Rules[i]; only == "" || p.Name == only {
				rules[p.Name] = append(rules[p.Name], seen{p, r.Node, r.AtNanos})
			}
		}
	}
	t.Nodes, t.Senders, t.Rules = len(nodes), len(reports), []TopRule{}
	for _, name := range busiest(rules) {
		t.Rules = append(t.Rules, mergeRule(name, rules[name]))
	}
	slices.SortFunc(t.Rules, func(a, b TopRule) int { return cmp.Compare(a.Rule, b.Rule) })
	return t
}

// busiest returns the rules with most requests, at most the number that a report has: senders that
// make up names make no answer longer.
func busiest(rules map[string][]seen) []string {
	requests := make(map[string]float64, len(rules))
	for name, all := range rules {
		for i := range all {
			requests[name] += float64(all[i].Requests)
		}
	}
	names := slices.SortedFunc(maps.Keys(requests), func(a, b string) int {
		return cmp.Or(cmp.Compare(requests[b], requests[a]), cmp.Compare(a, b))
	})
	return names[:min(len(names), wire.MaxReportRules)]
}

func mergeRule(name string, all []seen) TopRule {
	r := TopRule{Rule: name}
	nodes := map[uint64]bool{}
	for _, s := range all {
		nodes[s.node] = true
		r.Shadow = r.Shadow || s.Shadow
		seconds := s.seconds()
		r.Seconds = max(r.Seconds, seconds)
		r.Asked += s.Requests
		r.Rejected += s.RefusedRequests
		r.add(&s.Amounts, seconds)
		r.Others += float64(s.Used.Floor) / seconds
		r.OthersRefused += float64(s.Refused.Floor) / seconds
		if recent := s.recentSeconds(); recent > 0 {
			r.RecentSeconds, r.Recent = max(r.RecentSeconds, recent), cmp.Or(r.Recent, new(Rates))
			r.Recent.add(&s.Recent, recent)
		}
	}
	r.Nodes = len(nodes)
	if r.Asked > 0 {
		r.ShareRefused = float64(r.Rejected) / float64(r.Asked)
	}
	r.mergeKeys(all)
	if r.Shadow {
		r.Measured = measure(all)
	}
	r.round()
	if r.Recent != nil {
		r.Recent.round()
	}
	round(&r.Seconds, &r.RecentSeconds, &r.Others, &r.OthersRefused)
	return r
}

// seconds is the time that a rule's report speaks of.
func (s *seen) seconds() float64 { return float64(max(1, s.SpanMillis)) / 1000 }

// recentSeconds is the time that it speaks of as recent; 0 if it does not tell.
func (s *seen) recentSeconds() float64 { return float64(s.RecentMillis) / 1000 }

// spread is the variance of a key's hits, if it has so many, by what was drawn at random: each
// request stands for Every with one chance in Every.
func (s *seen) spread(hits uint64) float64 {
	cost := 1.0
	if s.Requests > 0 {
		cost = max(1, float64(s.Hits)/float64(s.Requests))
	}
	seconds := s.seconds()
	return float64(max(s.Every, 1)-1) * float64(hits) * cost / seconds / seconds
}

type merged struct {
	TopKey
	id                    wire.ID
	name                  []byte
	nodes                 map[uint64]bool
	spread, spreadRefused float64
	// floors are those of the lists that have the key.
	floor, floorRefused float64
}

// mergeKeys adds what reports tell of each key. If a report does not have a key, the key may have
// any number of hits up to the most that a key outside its list has.
func (r *TopRule) mergeKeys(all []seen) {
	keys := map[wire.ID]*merged{}
	of := func(s *seen, k *wire.ReportKey) *merged {
		m := keys[k.ID]
		if m == nil {
			m = &merged{id: k.ID, nodes: map[uint64]bool{}}
			keys[k.ID] = m
		}
		m.nodes[s.node] = true
		m.Use = max(m.Use, float64(min(k.Use, 1000))/1000)
		if len(m.name) < len(k.Name) {
			m.name = k.Name
		}
		return m
	}
	for i := range all {
		s := &all[i]
		seconds, recent := s.seconds(), max(s.recentSeconds(), 0.001)
		for j := range s.Used.Keys {
			k := &s.Used.Keys[j]
			m := of(s, k)
			m.Hits += float64(k.Hits-k.Error) / seconds
			m.MoreHits += float64(k.Error) / seconds
			m.spread += s.spread(k.Hits)
			m.floor += float64(s.Used.Floor) / seconds
			m.RecentHits += float64(k.Recent) / recent
		}
		for j := range s.Refused.Keys {
			k := &s.Refused.Keys[j]
			m := of(s, k)
			m.Refused += float64(k.Hits-k.Error) / seconds
			m.MoreRefused += float64(k.Error) / seconds
			m.spreadRefused += s.spread(k.Hits)
			m.floorRefused += float64(s.Refused.Floor) / seconds
			m.RecentRefused += float64(k.Recent) / recent
		}
	}
	found := slices.Collect(maps.Values(keys))
	for _, m := range found {
		m.MoreHits += max(0, r.Others-m.floor)
		m.MoreRefused += max(0, r.OthersRefused-m.floorRefused)
		m.Margin, m.MarginRefused = 2*math.Sqrt(m.spread), 2*math.Sqrt(m.spreadRefused)
		m.Nodes = len(m.nodes)
	}
	r.Used = first(found, func(k *TopKey) float64 { return k.Hits })
	r.Refused = first(found, func(k *TopKey) float64 { return k.Refused })
}

// first returns the keys with most of something, at most the number that a report has. Only these get their names.
func first(keys []*merged, of func(k *TopKey) float64) []TopKey {
	some := make([]*merged, 0, len(keys))
	for _, m := range keys {
		if of(&m.TopKey) > 0 {
			some = append(some, m)
		}
	}
	slices.SortFunc(some, func(a, b *merged) int {
		return cmp.Or(cmp.Compare(of(&b.TopKey), of(&a.TopKey)), bytes.Compare(a.id[:], b.id[:]))
	})
	top := make([]TopKey, min(len(some), wire.MaxReportKeys))
	for i := range top {
		k := &top[i]
		*k = some[i].TopKey
		k.Hash, k.Values = hex.EncodeToString(some[i].id[:]), ValuesOf(some[i].name)
		round(&k.Hits, &k.MoreHits, &k.Margin, &k.Refused, &k.MoreRefused, &k.MarginRefused, &k.RecentHits, &k.RecentRefused)
	}
	return top
}

// measure merges samples, key by key: in each window a key asked for the sum of what it asked all
// nodes for.
func measure(all []seen) *Measured {
	all = slices.DeleteFunc(slices.Clone(all), func(s seen) bool { return !s.Shadow })
	// Those of the newest report, as a configuration may have changed.
	limits := slices.MaxFunc(all, func(a, b seen) int { return cmp.Compare(a.at, b.at) }).Limits
	m := &Measured{Limits: make([]MeasuredLimit, len(limits))}
	threshold := uint64(math.MaxUint64)
	for _, s := range all {
		threshold = min(threshold, s.Sample.Threshold)
	}
	keys := map[uint64]bool{}
	for _, s := range all {
		for _, k := range s.Sample.Keys {
			if k.Hash <= threshold {
				keys[k.Hash] = keys[k.Hash] || k.Refused
			}
		}
	}
	for _, refused := range keys {
		if m.Keys++; refused {
			m.Refused++
		}
	}
	m.Every = math.Pow(2, 64) / (float64(threshold) + 1)
	for i, l := range limits {
		m.Limits[i] = measureLimit(all, i, l, threshold)
	}
	return m
}
