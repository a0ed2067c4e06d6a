package filter

import (
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/fields"
	"weir/internal/proxywasm"
)

// A client can ask how its own limits stand, at a path that the configuration names. The plugin
// answers by the counters of exactly the keys that this request has. It decides nothing and takes
// nothing.

// usagePage answers these requests.
type usagePage struct {
	path string // empty if there is none
	json []byte
	// asked is how often the backend was asked in a second.
	asked, second int64
}

// mostUsageAsks is how often in a second a worker asks the backend for such answers. Others are what the
// node knows, so that a flood of requests is no flood of callouts.
const mostUsageAsks = 20

// usageRule and usageLimit say how a rule and a limit stand: see [fields.AppendJSON].
const (
	usageBegin = `{"at":"@","rules":[`
	usageRule  = `{"name":"%","unit":"%","on_full":"%","source":"%","as_of":"@","blocked_seconds":$,"limits":[`
	usageLimit = `{"name":%,"algorithm":"%","limit":#,"burst":#,"window_ms":~,"used":#,"remaining":#,"next_seconds":$,"reset_seconds":$},`
)

// compile has the path and the method read once for all rules, so that others can take their place.
func (p *usagePage) compile(path string, r *request) {
	if p.path = path; path == "" {
		return
	}
	for i := range r.properties {
		if p := &r.properties[i]; p.header == ":path" || p.header == ":method" {
			p.shared, r.shared = true, true
		}
	}
}

// retarget gives the current request another path or method, before what follows it.
//
//go:noinline
func (r *request) retarget(header string, value, rest []byte) {
	start := len(r.values)
	r.values = append(append(r.values, value...), rest...)
	for i := range r.properties {
		if p := &r.properties[i]; p.header == header {
			p.state, p.start, p.end = present, start, len(r.values)
		}
	}
}

// wants reports whether the current request is for the page.
func (p *usagePage) wants() bool {
	path, _ := proxywasm.RequestHeader(":path")
	n := len(p.path)
	return len(path) >= n && string(path[:n]) == p.path && (len(path) == n || path[n] == '?')
}

// find returns checks on the rules that the current request asks about. They were looked at.
//
// The request's own path has few rules, so its query may name the path and the method to ask about. A
// rule is only told if the request has the same key for it with its own: a key is somebody's name, and
// who asks must not choose it.
func (p *usagePage) find(all *streams, now int64) []engine.Check {
	r := &all.rules
	q := &r.request
	bad, absent, unknown := q.badCosts, q.absentCosts, q.unknownModels
	q.beginRequest(nil)
	path, _ := proxywasm.RequestHeader(":path")
	query := path[len(p.path):]
	named, ok := q.scratch.parameter(path, "path")
	if !ok {
		named = path
	}
	q.retarget(":path", withoutQuery(named), query)
	if named, ok = q.scratch.parameter(path, "method"); !ok {
		named = get
	}
	q.retarget(":method", named, nil)
	r.looks = true
	checks, _ := r.findChecks()
	r.looks = false
	q.badCosts, q.absentCosts, q.unknownModels = bad, absent, unknown
	q.beginRequest(nil)
	n, own := 0, false
	for i := range checks {
		d := &checks[i]
		if rule := r.of(d); !d.Rule.Spare {
			at, named := len(r.keys), d
			r.keys = q.appendKey(r.keys, rule)
			if rule.class >= 0 {
				class, places := q.classOf(rule)
				place := 0
				if rule.limits.Fair {
					place = places - 1 // its seat has the whole key
				}
				named = &checks[i+place]
				r.keys = counter.AppendPart(r.keys, rule.limits.Place(class, place).Value)
			}
			own = string(r.keys[at:]) == string(named.Key)
		}
		if !own {
			continue
		}
		d.Cost, d.Model = 0, ""
		all.decider.node.Look(d, now)
		checks[n], checks[i] = checks[i], checks[n]
		n++
	}
	all.decider.node.Seat(checks[:n], now)
	return checks[:n]
}

var get = []byte("GET")

// asks reports whether to ask the backend: this node has not heard of a key lately.
func (p *usagePage) asks(checks []engine.Check, now int64) bool {
	for i := range checks {
		if d := &checks[i]; !d.Rule.Synced() || d.Counter.HeardSince(now-d.Rule.Interval, now) {
			continue
		}
		if second := now / 1e9; second != p.second {
			p.second, p.asked = second, 0
		}
		p.asked++
		return p.asked <= mostUsageAsks
	}
	return false
}

// answerUsage answers a request for the page, or has it wait for the backend.
func (s *stream) answerUsage() types.Action {
	all := s.all
	method, _ := proxywasm.RequestHeader(":method")
	if string(method) != "GET" && string(method) != "HEAD" {
		return s.reply(405, "allow", "GET, HEAD", `{"title":"Method Not Allowed","status":405}`)
	}
	now := all.decider.now()
	checks := all.usage.find(all, now)
	if all.usage.asks(checks, now) && all.decider.node.Ask(checks, &s.wait) {
		s.looks = true
		return types.ActionPause // until Decided is called
	}
	return s.tellUsage(checks, now, false)
}

// tellUsage answers a request for the page by what the node knows. heard means that the backend has just
// told the totals. The node does not keep totals of 0.
func (s *stream) tellUsage(checks []engine.Check, now int64, heard bool) types.Action {
	all := s.all
	json := fields.AppendJSON(all.usage.json[:0], usageBegin, nil, []int64{now})
	for i := range checks {
		d := &checks[i]
		if d.Rule.Spare {
			continue
		}
		rule := all.rules.of(d)
		full, source, told, blocked := "refuse", "proxy", now, int64(0)
		if d.Rule.Marks {
			full = "mark"
		}
		if d.Rule.Synced() {
			if at := d.Counter.Sync().Heard; at != 0 {
				source, told = "backend", now+at.In(now)
			} else if heard {
				source = "backend"
			}
			for j := i; j <= i+d.Rule.Spares; j++ {
				checks[j].Complete()
			}
		}
		own := engine.LimitsOf(checks, i)
		if d.Counter.Blocked() {
			blocked = d.Standing(len(own), now).Next
		}
		json = fields.AppendJSON(json, usageRule, []string{rule.config.Name, unitOf(rule.config), full, source}, []int64{told, blocked})
		for j := range own {
			l, at := &own[j], engine.StandingOf(checks, i, j, now)
			used := l.Used(&d.Counter.States[j])
			if d.Rule.Checks() > 1 {
				used = l.Quota() - min(at.Remaining, l.Quota()) // the class's own, and of the pool
			}
			json = fields.AppendJSON(json, usageLimit, []string{string(rule.fields.LimitName(j)), l.Name()}, []int64{
				int64(l.Max), int64(l.Quota()), l.Width, int64(used), int64(at.Remaining), at.Next, at.Reset,
			})
		}
		json[len(json)-1] = ']' // the last comma
		json = append(json, "},"...)
	}
	if len(checks) > 0 {
		json = json[:len(json)-1]
	}
	all.usage.json = append(json, "]}\n"...)
	return s.reply(200, "cache-control", "no-store", string(all.usage.json))
}

// reply answers the request in the upstream's place, and returns what becomes of it.
//
//go:noinline
func (s *stream) reply(status uint32, name, value, body string) types.Action {
	a := &s.all.answer
	a.pairs.Reset()
	a.pairs.Add(name, value)
	a.pairs.Add("content-type", "application/json")
	a.reply.Status, a.reply.GRPCStatus, a.reply.Details, a.reply.Body = status, -1, "weir_usage", body
	if s.answered = proxywasm.SendLocalResponse(&a.reply); !s.answered {
		return types.ActionContinue
	}
	return types.ActionPause
}
