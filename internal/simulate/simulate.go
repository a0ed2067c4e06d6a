// Package simulate replays access logs through a configuration's rules. It reports which requests
// they would have refused, whose requests these are, and what other limits would have refused.
//
// The plugin itself, package filter, matches, keys and decides requests, on a proxy whose clock is
// that of the logs. So nothing here knows which requests a rule matches, or how an algorithm decides.
//
// A curve, four algorithms and two searches are some 50 limits in place of the rule's. So the times and
// costs of each key's requests are kept, in 1 to 3 bytes each, and package window replays them through all
// limits while they are near. Keys share nothing, so all cores work. A curve is of a limit by itself: with
// the rule's other limits in force it would flatten where these refuse, and tell nobody which to change.
package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"weir/config"
	"weir/internal/engine"
	"weir/internal/simulate/accesslog"
)

// Options say what to simulate.
type Options struct {
	// Configuration is the plugin's configuration, in JSON.
	Configuration []byte
	Logs          []Log
	// Read says how to read the logs.
	Read accesslog.Options
	// Worst is how many keys of each rule are reported.
	Worst int
	// Progress, unless it is nil, is called now and then with the bytes that have been read.
	Progress func(bytes int64)
}

// Log is an access log, compressed by gzip or not.
type Log struct {
	Name string
	In   io.Reader
}

const (
	// sampleSize is how many requests are read before the first is decided, to find out which parts
	// the logs have.
	sampleSize = 10_000
	// mostUnreadable is the share of lines that may be unreadable.
	mostUnreadable = 0.5
	// progressEvery is the number of requests between two calls of Options.Progress.
	progressEvery = 1 << 13
)

var (
	// ErrLogs is wrapped by the errors of logs that don't have enough for a report.
	ErrLogs = errors.New("access logs")
	// lock is held by the only simulation that may run, because package proxywasm has a single
	// host.
	lock sync.Mutex
)

// Run runs a simulation. Errors in the configuration are those of [config.Parse].
func Run(ctx context.Context, o *Options) (*Report, error) {
	lock.Lock()
	defer lock.Unlock()
	document, parsed, err := parse(o.Configuration)
	if err != nil {
		return nil, err
	}
	s := &simulation{options: o, document: document, config: parsed}
	logs := make([]*accesslog.Log, len(o.Logs))
	for i, log := range o.Logs {
		logs[i] = &accesslog.Log{Name: log.Name, Reader: accesslog.NewReader(&counting{log.In, &s.bytes}, &o.Read)}
	}
	merger, err := accesslog.Merge(ctx, logs)
	if err == nil {
		err = s.run(ctx, merger)
		merger.Close()
	}
	if err != nil {
		return nil, err
	}
	s.logs = logs
	if err := s.check(); err != nil {
		return nil, err
	}
	return s.report(), nil
}

// simulation is the state of one Run.
type simulation struct {
	options  *Options
	document *document
	config   *config.Config
	bytes    atomic.Int64
	logs     []*accesslog.Log

	// missing are the parts that rules need and the logs do not have. A rule with missing parts is
	// left out.
	missing [][]accesslog.Part
	// kept are the indexes of the simulated rules.
	kept []int
	// rules are the histories of the kept rules, in their order.
	rules []*history

	// decides is the proxy with the rules. tells is the proxy that reports all demands on them; it
	// may be the same.
	decides, tells *proxy

	requests, refused uint64
	first, last       int64
	lasts             int64 // of the current request
	timeline          timeline
}

// run reads the logs to their end.
func (s *simulation) run(ctx context.Context, merger *accesslog.Merger) error {
	var sample []accesslog.Request
	for len(sample) < sampleSize {
		r, err := merger.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		sample = append(sample, *r)
	}
	if err := s.probe(sample); err != nil {
		return err
	}
	replay, err := s.replay()
	if err != nil || replay == nil {
		return err
	}
	for i := range sample {
		replay(&sample[i])
	}
	for {
		r, err := merger.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		replay(r)
		if s.requests%progressEvery == 0 {
			if s.options.Progress != nil {
				s.options.Progress(s.bytes.Load())
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	s.tells.finish()
	s.decides.finish()
	return nil
}

// probe finds the rules that need parts which the logs do not have. It runs each rule by itself.
func (s *simulation) probe(sample []accesslog.Request) error {
	s.missing = make([][]accesslog.Part, len(s.config.Rules))
	for i := range s.config.Rules {
		document, err := s.document.limitless([]int{i})
		if err != nil {
			return err
		}
		p, err := start(document)
		if err != nil {
			return err
		}
		for j := range sample {
			p.send(&sample[j])
		}
		for _, a := range p.asked {
			if a.requests > 0 && a.unknown == a.requests {
				s.missing[i] = append(s.missing[i], a.Part)
			}
		}
		if s.config.Rules[i].Hold != 0 && !slices.ContainsFunc(sample, func(r accesslog.Request) bool { _, told := r.Lasted(); return told }) {
			s.missing[i] = append(s.missing[i], accesslog.Duration)
		}
		if readsBody(&s.config.Rules[i]) {
			s.missing[i] = append(s.missing[i], accesslog.Part{Kind: accesslog.Property, Name: "request.body"})
		}
		if len(s.missing[i]) == 0 {
			s.kept = append(s.kept, i)
		}
	}
	return nil
}

// readsBody reports whether a rule needs a request's body to match, for its key or for its limits.
func readsBody(r *config.Rule) bool {
	ofBody := func(s config.Selector) bool { return s.Kind == config.SelectBody }
	return r.Match.ReadsBody() || slices.ContainsFunc(r.Key, ofBody) || r.Overrides.By != nil && ofBody(*r.Overrides.By) || r.Classes != nil && ofBody(r.Classes.By) ||
		slices.ContainsFunc(r.Except, func(e config.Match) bool { return e.ReadsBody() })
}

// replay returns the function that decides a request. It returns nil if no rule is left.
func (s *simulation) replay() (replay func(*accesslog.Request), err error) {
	if len(s.kept) == 0 {
		return nil, nil
	}
	document, err := s.document.only(s.kept)
	if err != nil {
		return nil, err
	}
	if s.decides, err = start(document); err != nil {
		return nil, err
	}
	for range s.kept {
		s.rules = append(s.rules, newHistory())
	}
	s.tells = s.decides
	if slices.ContainsFunc(s.kept, func(i int) bool {
		r := &s.config.Rules[i]
		return r.CostOnResponse != nil || r.ChargeWhen != nil || r.Delay != 0
	}) {
		// The plugin asks only for the response's cost of requests that pass, and does not decide
		// waiting requests at once. On this proxy all requests pass at once.
		if document, err = s.document.limitless(s.kept); err != nil {
			return nil, err
		}
		if s.tells, err = start(document); err != nil {
			return nil, err
		}
		s.tells.decided = func(demands []engine.Check, _ bool, _ *delayed) { s.note(demands) }
	}
	s.decides.measured = func(demand []engine.Check, waited *delayed) {
		if s.tells == s.decides {
			s.note(demand)
		}
		s.count(demand, false, waited) // measured requests are never refused
	}
	s.tells.charged = func(rule int, hits int64) { s.rules[rule].charge(hits) }
	for _, p := range [...]*proxy{s.decides, s.tells} {
		for _, i := range s.kept {
			p.holds = p.holds || s.config.Rules[i].Hold != 0
		}
		p.asks, p.answered = s.asked, s.answered
	}
	s.decides.decided = func(demands []engine.Check, refused bool, waited *delayed) {
		if s.tells == s.decides {
			s.note(demands)
		}
		s.count(demands, refused, waited)
		if waited != nil {
			s.end(waited.request.Time, refused)
		}
	}
	return s.decide, nil
}

func (s *simulation) decide(r *accesslog.Request) {
	if s.requests++; s.requests == 1 {
		s.first = r.Time
	}
	s.last = r.Time
	s.lasts, _ = r.Lasted()
	if s.tells != s.decides {
		s.tells.send(r)
	}
	if refused, waits := s.decides.send(r); !waits {
		s.end(r.Time, refused)
	}
}

// end counts the outcome of a request.
func (s *simulation) end(at int64, refused bool) {
	if refused {
		s.refused++
	}
	s.timeline.add(at, refused)
}

// note records the demands of the current request on each rule.
func (s *simulation) note(demands []engine.Check) {
	for i := range demands {
		d := &demands[i]
		if d.Rule.Spare {
			continue // the demand is its class's
		}
		lasts := int64(0)
		if hold := s.config.Rules[s.kept[d.Rule.Index]].Hold; hold != 0 {
			lasts = min(s.lasts, int64(hold))
		}
		s.rules[d.Rule.Index].add(d, s.last, lasts)
	}
}

// asked returns the keys of the current request, to which its response's cost will go.
func (s *simulation) asked() (keys []int32) {
	for _, h := range s.rules {
		keys = append(keys, h.last)
	}
	return keys
}

// answered makes the next costs go to a request with these keys.
func (s *simulation) answered(keys []int32) {
	for i, h := range s.rules {
		h.last = keys[i]
	}
}

// count counts the decision on a request. Demands of a request that has waited have no keys.
func (s *simulation) count(demands []engine.Check, refused bool, waited *delayed) {
	for i := range demands {
		d := &demands[i]
		if d.Rule.Spare {
			continue
		}
		h := s.rules[d.Rule.Index]
		var k *key
		if waited == nil {
			k = h.find(d.Key)
		} else {
			k = &h.keys[waited.keys[d.Rule.Index]]
			if s.config.Rules[s.kept[d.Rule.Index]].Delay != 0 && !refused {
				h.waits = append(h.waits, waited.waited)
			}
		}
		h.requests++
		k.requests++
		if d.Marked() || engine.Refuses(demands, i) {
			h.refusedBy++
			k.refusedBy++
		}
		if refused {
			h.refused++
		}
	}
}

// check returns an error if the logs don't have enough for a report.
func (s *simulation) check() error {
	var lines, requests, unreadable int64
	for _, log := range s.logs {
		c := &log.Reader.Counts
		lines, requests, unreadable = lines+c.Lines, requests+c.Requests, unreadable+c.Unreadable
	}
	var problem string
	switch {
	case float64(unreadable) > mostUnreadable*float64(lines):
		problem = fmt.Sprintf("%d of %d lines could not be read", unreadable, lines)
	case requests == 0:
		problem = "no requests"
	case len(s.kept) == 0:
		var all []string
		for i, missing := range s.missing {
			for _, part := range missing {
				all = append(all, s.config.Rules[i].Name+" needs "+part.String())
			}
		}
		problem = "no rule is left, because the logs do not have the parts that rules need: " + strings.Join(all, ", ")
	default:
		return nil
	}
	for _, log := range s.logs {
		for _, e := range log.Reader.Examples {
			problem += fmt.Sprintf("\n%s:%d: %s: %.60q", log.Name, e.Line, e.Problem, e.Excerpt)
		}
	}
	return fmt.Errorf("%w: %s", ErrLogs, problem)
}

type counting struct {
	in    io.Reader
	bytes *atomic.Int64
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.in.Read(b)
	c.bytes.Add(int64(n))
	return n, err
}
