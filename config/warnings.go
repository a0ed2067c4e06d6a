package config

import (
	"math"
	"strconv"
	"strings"

	"weir/internal/calendar"
	"weir/internal/failure"
	"weir/internal/pattern"
	"weir/internal/usage"
	"weir/window"
)

const (
	// smallSliding is the limit below which weir check recommends a sliding log over a sliding
	// window.
	smallSliding = 20
	// littleCapacity is a capacity that clients can fill by chance, when each of their values takes
	// a counter.
	littleCapacity = 4096
)

// alone ends a warning about a word that only shared limits have.
const alone = "without backend, or with a sync_rate below 0, a rule counts in each proxy alone"

// Warnings reports settings that the grammar allows but that hardly work as intended. Paths are
// those of errors, but have whole names; there are no offsets.
func Warnings(c *Config) (warnings Errors) {
	add := func(path, problem string) {
		if problem != "" {
			warnings = append(warnings, Error{Path: path, Problem: problem})
		}
	}
	add("capacity", fewCounters(c))
	if c.OnBackendFailure != failure.Local && !c.synchronises() {
		add("on_backend_failure", "says nothing: "+alone)
	}
	for _, p := range c.Prices {
		p.List.Unused(func(mark, entry string, always bool) {
			problem := "says nothing: the list has no entry " + strconv.Quote(entry) + "; want the whole name of one behind " + mark + "/, with its *"
			if !always {
				problem = "the list has no entry for " + strconv.Quote(entry) + " at other times"
			}
			add("prices."+p.Name+".of["+strconv.Quote(mark+"/"+entry)+"]", problem)
		})
	}
	forgeable := map[string]bool{}
	for i := range c.Rules {
		rule := &c.Rules[i]
		path := "rules[" + strconv.Itoa(i) + "]"
		costlyMatches(path+".match", &rule.Match, add)
		for j := range rule.Except {
			costlyMatches(path+".except["+strconv.Itoa(j)+"]", &rule.Except[j], add)
		}
		for j := range rule.Key {
			// Each header gets its warning once.
			if s := &rule.Key[j]; s.Kind == SelectHeader && !forgeable[s.Name] {
				forgeable[s.Name] = true
				add(path+".key["+strconv.Itoa(j)+"]", forgeableHeader(s.Name))
			}
		}
		if rule.Reserve {
			add(path+".reserve", understated(rule, "reserves"))
		} else {
			add(path+".cost", understated(rule, "takes"))
		}
		if rule.SyncRate < 0 && rule.Reveal != 0 {
			add(path+".reveal", "shows nobody anything: "+alone)
		}
		add(path+".cost_on_response", untold(rule))
		for j := range rule.Limits {
			path := path + ".limits[" + strconv.Itoa(j) + "]"
			add(path, smallSlidingWindow(&rule.Limits[j]))
			add(path, shortWindow(rule, &rule.Limits[j]))
			add(path, hiddenLimit(rule, j))
			add(path, emptyPart(rule, &rule.Limits[j]))
		}
	}
	return warnings
}

// understated warns if a client can choose to take less than most.
func understated(rule *Rule, does string) string {
	b := rule.CostFromBody
	if b == nil || b.Chosen || rule.CostMost == math.MaxUint64 || b.Default >= rule.CostMost {
		return ""
	}
	return "a client that compresses its body, or pads it, " + does + " " + strconv.FormatUint(b.Default, 10) + " and may cost " +
		strconv.FormatUint(rule.CostMost, 10) + `: "unread" says whether it takes "default", "most" or is to "refuse"`
}

// untold warns if a client can have its answers not tell what they cost, and then pays nothing.
func untold(rule *Rule) string {
	u := rule.Usage
	if u == nil || rule.Reserve || rule.Cut || rule.Ask >= AskAlways || u.preset != nil && !u.Auto && u.Ending != usage.OpenAI {
		return ""
	}
	return "without reserve, a stream that does not tell its usage costs " + strconv.FormatUint(rule.Cost, 10) +
		": OpenAI's tell it only if the request asks for it (stream_options.include_usage); want ask_for_usage, which has it ask, or reserve, which such a stream keeps"
}

// longestText is about the longest path or header that a proxy accepts, in bytes.
const longestText = 60_000

// costlyMatches warns about expressions with more states than are kept.
func costlyMatches(path string, m *Match, add func(path, problem string)) {
	m.Each(path, func(path string, _ *Selector, s *StringMatch) {
		if s.Op != Regex {
			return
		}
		if p, err := pattern.Compile(s.Value); err == nil && !p.Fits() {
			add(path+".regex", "has too many states to keep: a hostile value of "+strconv.Itoa(longestText/1000)+" kB takes up to "+
				strconv.FormatFloat(float64(p.Steps(longestText))/1e6, 'f', 1, 64)+
				" million steps, each 10 to 50 ns of a worker's time; counts of repetitions make states, and several rules have fewer")
		}
	})
}

// Each calls visit for each comparison of the match at a path, with its own path, the part that it is
// about, and how it compares. It also visits the matches in it.
func (m *Match) Each(path string, visit func(path string, of *Selector, s *StringMatch)) {
	if m.Path != nil {
		visit(path+".path", &Selector{Kind: SelectPath}, m.Path)
	}
	if m.Host != nil {
		visit(path+".host", &Selector{Kind: SelectHost}, m.Host)
	}
	for i := range m.Conditions {
		c := &m.Conditions[i]
		visit(path+"."+c.Of.matchField(), &c.Of, &c.StringMatch)
	}
	for i := range m.Any {
		m.Any[i].Each(path+".any["+strconv.Itoa(i)+"]", visit)
	}
	if m.Not != nil {
		m.Not.Each(path+".not", visit)
	}
}

// ReadsBody reports whether a condition is about the request's body.
func (m *Match) ReadsBody() (reads bool) {
	m.Each("", func(_ string, of *Selector, _ *StringMatch) { reads = reads || of.Kind == SelectBody })
	return reads
}

// matchField is the field of a match that is about the part.
func (s *Selector) matchField() string {
	switch s.Kind {
	case SelectMethod:
		return "method"
	case SelectClientIP:
		return "client_ip"
	case SelectQuery:
		return "query." + s.Name
	case SelectCookie:
		return "cookie." + s.Name
	case SelectPathSegment:
		return "path_segment." + strconv.Itoa(s.Segment)
	case SelectClaim:
		return "jwt_claim." + s.Claim
	case SelectProperty:
		parts := strings.NewReplacer(".", `\.`, "\x00", ".").Replace(s.Name)
		return "property." + parts
	case SelectBody:
		return "request_json." + s.Name
	}
	return "headers." + s.Name
}

func smallSlidingWindow(l *window.Limit) string {
	if l.Kind != window.SlidingWindow || l.Max == 0 || l.Max >= smallSliding {
		return ""
	}
	return "a sliding_window of " + strconv.FormatUint(l.Max, 10) + " lets through " + strconv.FormatFloat(window.Steady(l), 'f', 2, 64) +
		" of it for a client that never stops asking; a sliding_log lets through all of it"
}

func shortWindow(rule *Rule, l *window.Limit) string {
	if l.Kind.Held() || rule.SyncRate <= 0 || l.Width >= int64(rule.SyncRate) {
		return ""
	}
	return "a window of " + Duration(l.Width).String() + " ends before proxies synchronise every " +
		rule.SyncRate.String() + " (sync_rate): hits that one proxy leaves unused come too late for the others"
}

// hiddenLimit warns if another limit of the rule always refuses first.
func hiddenLimit(rule *Rule, index int) string {
	if rule.CountRejected || rule.CostOnResponse != nil || rule.Varies() {
		// Then limits also count hits that they have not admitted, or some requests have others.
		return ""
	}
	this := &rule.Limits[index]
	for i := range rule.Limits {
		other := &rule.Limits[i]
		// Two equal limits hide each other. The first of them decides.
		if i != index && hides(other, this) && (i < index || !hides(this, other)) {
			return "never decides, because limits[" + strconv.Itoa(i) + "] refuses first: " + strconv.FormatUint(other.Max, 10) + " in " +
				Duration(other.Width).String()
		}
	}
	return ""
}

// emptyPart warns if a class has no whole hit of a limit, and so no part of its own.
func emptyPart(rule *Rule, l *window.Limit) string {
	if rule.Classes == nil || l.Max == 0 {
		return ""
	}
	for _, c := range rule.Classes.Of {
		if c.Guaranteed > 0 && (l.Max*uint64(c.Guaranteed) < 1000 || l.Kind.Bursts() && l.Burst*uint64(c.Guaranteed) < 1000) {
			return "guarantees nothing to class " + c.Name + ", because " + formatShare(int(c.Guaranteed)) + " of it is less than a hit: it has the pool alone"
		}
	}
	return ""
}

func sameCalendar(a, b window.Calendar) bool {
	one, _ := a.(*calendar.Calendar)
	other, _ := b.(*calendar.Calendar)
	return one == other || one != nil && other != nil && one.Equal(other)
}

// hides reports whether b has room for everything that a admits.
func hides(a, b *window.Limit) bool {
	// Windows of two calendars may begin at other times.
	if a.Kind == b.Kind && a.Width == b.Width && a.Precision == b.Precision && sameCalendar(a.Calendar, b.Calendar) {
		return a.Max <= b.Max && a.Burst <= b.Burst
	}
	// In any span of time t, a admits at most ahead + rate·t hits.
	rate := float64(a.Max) / float64(a.Width)
	ahead := float64(a.Max)
	switch a.Kind {
	case window.TokenBucket:
		ahead = float64(a.Burst) + 1
	case window.SlidingBuckets:
		// The span may touch parts of buckets at both ends.
		ahead += rate * float64(a.Precision)
	default:
		// The span may touch parts of windows at both ends.
		ahead *= 2
	}
	// b counts at most this many of those hits.
	room, counted := float64(b.Max), ahead+rate*float64(b.Width)
	switch b.Kind {
	case window.TokenBucket:
		if room, counted = float64(b.Burst), ahead; rate > float64(b.Max)/float64(b.Width) {
			return false
		}
	case window.SlidingWindow:
		// A share of the previous window counts too.
		counted += ahead
	}
	return counted <= math.Nextafter(room, 0)
}

// identities are words in names of headers that identify a client.
var identities = []string{"user", "account", "tenant", "customer", "consumer", "client-id", "org", "subscriber", "session", "device", "member"}

// forgeableHeader warns if clients can choose the value of a header in a key.
func forgeableHeader(name string) string {
	switch name {
	case "x-forwarded-for", "x-real-ip", "x-client-ip", "true-client-ip", "forwarded", "x-original-forwarded-for":
		return "a client may send any " + name + ", and so choose its counter; client_ip is the address that Envoy trusts"
	}
	for _, word := range identities {
		if strings.HasPrefix(name, "x-") && strings.Contains(name, word) {
			return "a client may send any " + name + ", and so choose its counter, unless an earlier filter sets or removes it"
		}
	}
	return ""
}

func fewCounters(c *Config) string {
	if c.Capacity >= littleCapacity {
		return ""
	}
	for i := range c.Rules {
		for j := range c.Rules[i].Key {
			if part := c.Rules[i].Key[j].unbounded(); part != "" {
				return "room for " + strconv.Itoa(c.Capacity) + " counters, but rule " + c.Rules[i].Name + " has one for each " + part +
					": counters that make room for others forget their hits"
			}
		}
	}
	return ""
}

// unbounded names the selected part of a request if it may have any number of values, and otherwise
// returns "".
func (s *Selector) unbounded() string {
	switch s.Kind {
	case SelectHeader:
		if s.Name != ":method" && s.Name != ":scheme" {
			return s.Name
		}
	case SelectPath, SelectPathSegment:
		return "path"
	case SelectQuery:
		return "parameter " + s.Name
	case SelectCookie:
		return "cookie " + s.Name
	case SelectClaim:
		return "claim " + s.Claim
	case SelectBody:
		return s.Name + " of a body"
	case SelectHost:
		return "host"
	case SelectClientIP:
		return "client's network"
	}
	return ""
}
