package convert

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"weir/internal/pattern"
)

// text is a condition on a text, such as a path or a host.
type text struct {
	kind  string // exact, prefix, suffix, regex or present
	value string
}

const (
	exact   = "exact"
	prefix  = "prefix"
	suffix  = "suffix"
	regex   = "regex"
	present = "present"
)

// MarshalJSON writes the condition in the form of configurations.
func (t text) MarshalJSON() ([]byte, error) {
	if t.kind == present {
		return plainJSON(map[string]bool{present: t.value != "false"}, "")
	}
	return plainJSON(map[string]string{t.kind: t.value}, "")
}

// expression returns the condition as a regular expression for whole texts.
func (t text) expression() string {
	switch t.kind {
	case exact:
		return regexp.QuoteMeta(t.value)
	case prefix:
		return regexp.QuoteMeta(t.value) + ".*"
	case suffix:
		return ".*" + regexp.QuoteMeta(t.value)
	}
	return t.value
}

// all reports whether every path, or every host, fulfils the condition.
func (t text) all() bool {
	return t == text{prefix, "/"} || t == text{regex, ".*"} || t.value == "" && (t.kind == prefix || t.kind == suffix)
}

// overlaps reports whether some text may fulfil both conditions.
func (t text) overlaps(o text) bool {
	switch {
	case t.kind == exact && (o.kind == exact || o.kind == prefix || o.kind == suffix):
		return o.matches(t.value)
	case t.kind == prefix && o.kind == prefix:
		return strings.HasPrefix(t.value, o.value) || strings.HasPrefix(o.value, t.value)
	case t.kind == suffix && o.kind == suffix:
		return strings.HasSuffix(t.value, o.value) || strings.HasSuffix(o.value, t.value)
	case o.kind == exact && t.kind != regex, o.kind == regex && (t.kind == exact || t.kind == prefix):
		return o.overlaps(t)
	case t.kind == regex && o.kind == regex:
		return text{prefix, literal(t.value)}.overlaps(text{prefix, literal(o.value)})
	case t.kind == regex && (o.kind == exact || o.kind == prefix):
		begins := literal(t.value)
		return strings.HasPrefix(o.value, begins) || o.kind == prefix && strings.HasPrefix(begins, o.value)
	}
	return true
}

// literal returns the plain characters at the beginning of all texts that match a regular
// expression.
func literal(expr string) string {
	end := strings.IndexAny(expr, `\.+*?()|[]{}^$`)
	switch {
	case end < 0:
		return expr
	case strings.Contains(expr, "|"):
		return ""
	case strings.ContainsRune("*?{", rune(expr[end])):
		_, last := utf8.DecodeLastRuneInString(expr[:end])
		return expr[:end-last]
	}
	return expr[:end]
}

// within reports whether every text that fulfils the condition is known to fulfil the other.
func (t text) within(o text) bool {
	switch {
	case t == o || o.all():
		return true
	case t.kind == exact:
		return o.matches(t.value)
	case t.kind == prefix && o.kind == prefix:
		return strings.HasPrefix(t.value, o.value)
	case t.kind == suffix && o.kind == suffix:
		return strings.HasSuffix(t.value, o.value)
	}
	return false
}

// anyOf returns the condition that at least one of the conditions holds.
func anyOf(texts []text) text {
	var kept []text
	for _, t := range texts {
		if !slices.ContainsFunc(texts, func(o text) bool { return t != o && t.within(o) }) && !slices.Contains(kept, t) {
			kept = append(kept, t)
		}
	}
	if len(kept) == 1 {
		return kept[0]
	}
	expressions := make([]string, len(kept))
	for i := range kept {
		if expressions[i] = kept[i].expression(); kept[i].kind == regex {
			expressions[i] = "(?:" + expressions[i] + ")"
		}
	}
	return text{regex, strings.Join(expressions, "|")}
}

// match is the match of a rule or of an exception.
type match struct {
	Host    *text           `json:"host,omitempty"`
	Path    *text           `json:"path,omitempty"`
	Methods []string        `json:"methods,omitempty"`
	Headers map[string]text `json:"headers,omitempty"`
}

// headerName is the name that a header has in Envoy, which keeps host as :authority.
func headerName(name string) string {
	if name == "host" {
		return ":authority"
	}
	return name
}

func (m *match) header(name string, t text) {
	if m.Headers == nil {
		m.Headers = map[string]text{}
	}
	m.Headers[name] = t
}

// onHeader returns the match of requests whose header fulfils a condition.
func onHeader(name string, t text) match { return match{Headers: map[string]text{name: t}} }

// orNil returns nil for a match that all requests fulfil.
func (m match) orNil() *match {
	if m.Host == nil && m.Path == nil && len(m.Methods) == 0 && len(m.Headers) == 0 {
		return nil
	}
	return &m
}

// location is a set of requests that a source applies limits to: by host, by path, and by the
// conditions of rest.
type location struct {
	at    place
	hosts []text // any of them; none stands for all hosts
	paths []text
	rest  match // its Host and Path are nil
	// unless are conditions that its requests don't meet.
	unless []match
	// partly says that it has more requests than the source's, because a rule can't say some of the
	// conditions. No rule is for it, and rules leave all of it alone.
	partly bool
	// rank orders the locations that a request fits: it belongs to the location of the highest
	// rank.
	rank []int
}

func overlap(a, b []text) bool {
	return len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, func(t text) bool { return slices.ContainsFunc(b, t.overlaps) })
}

func within(a, b []text) bool {
	if len(b) == 0 {
		return true
	}
	return len(a) > 0 && !slices.ContainsFunc(a, func(t text) bool { return !slices.ContainsFunc(b, t.within) })
}

// overlaps reports whether a request may fit both locations.
func (l *location) overlaps(o *location) bool {
	if len(l.rest.Methods) > 0 && len(o.rest.Methods) > 0 && !slices.ContainsFunc(l.rest.Methods, func(m string) bool { return slices.Contains(o.rest.Methods, m) }) {
		return false
	}
	for name, t := range l.rest.Headers {
		if other, both := o.rest.Headers[name]; both && !t.overlaps(other) {
			return false
		}
	}
	return overlap(l.hosts, o.hosts) && overlap(l.paths, o.paths)
}

// beats reports whether a request that fits both locations may belong to l.
func (l *location) beats(o *location) bool {
	return slices.Compare(l.rank, o.rank) > 0 && l.overlaps(o)
}

// within reports whether every request that fits l is known to fit o.
func (l *location) within(o *location) bool {
	return o.rest.orNil() == nil && len(o.unless) == 0 && within(l.hosts, o.hosts) && within(l.paths, o.paths)
}

// continues reports whether a location has other paths of the same place, so that one exception can have those of both.
func (l *location) continues(o *location) bool {
	return l.at == o.at && len(l.paths) > 0 && len(o.paths) > 0 && slices.Equal(l.hosts, o.hosts) &&
		reflect.DeepEqual(l.rest, o.rest) && reflect.DeepEqual(l.unless, o.unless)
}

// restricted returns the condition that a text fulfils one of texts, or nil if every text does.
func restricted(texts []text) *text {
	if len(texts) == 0 || slices.ContainsFunc(texts, text.all) {
		return nil
	}
	t := anyOf(texts)
	return &t
}

func (l *location) match() match {
	m := l.rest
	m.Host, m.Path = restricted(l.hosts), restricted(l.paths)
	return m
}

// matches returns rules whose matches together cover the own locations, and whose exceptions leave
// out the others. If there are several rules, each counts for itself.
func (c *converter) matches(at place, own, others []*location) (rules []rule) {
	own = slices.DeleteFunc(slices.Clone(own), func(l *location) bool { return l.partly })
groups:
	for _, group := range joined(outermost(own)) {
		var r rule
		r.Match = group.match().orNil()
		for _, u := range group.unless {
			r.Except = append(r.Except, u)
		}
		var apart []*location
		for _, o := range others {
			if !slices.ContainsFunc(group.of, o.beats) {
				continue
			}
			if back := slices.IndexFunc(own, func(l *location) bool { return l.beats(o) }); back >= 0 {
				c.lose(own[back].at, "this limit applies here too, but a rule can't count requests of its own exception: see line %d", o.at.line)
			}
			if last := len(apart) - 1; last >= 0 && apart[last].continues(o) {
				whole := *apart[last]
				whole.paths = slices.Concat(whole.paths, o.paths)
				apart[last] = &whole
				continue
			}
			apart = append(apart, o)
		}
		for _, o := range apart {
			m := o.match()
			if len(o.hosts) > 0 && slices.Equal(o.hosts, group.hosts) {
				m.Host = nil
			}
			if len(o.unless) > 0 {
				c.lose(o.at, "a rule can't say all conditions of this exception, and leaves more requests alone: see line %d", group.of[0].at.line)
			}
			if m.orNil() == nil {
				continue groups // no request is left for the rule
			}
			r.Except = append(r.Except, m)
		}
		rules = append(rules, r)
	}
	c.separate(at, rules)
	return rules
}

// separate tells that what counts together has several rules.
func (c *converter) separate(at place, rules []rule) {
	if len(rules) > 1 {
		c.lose(at, "the requests of these %d hosts or paths count together; here each has a rule, and the rules count separately", len(rules))
	}
}

// outermost returns the locations that are inside no other. Those need no rule.
func outermost(all []*location) (kept []*location) {
	everywhere := func(l *location) bool {
		return len(l.hosts)+len(l.paths)+len(l.unless) == 0 && l.rest.orNil() == nil
	}
	if i := slices.IndexFunc(all, everywhere); i >= 0 {
		return all[i : i+1] // all others are inside, and there may be many
	}
	for i, l := range all {
		if !slices.ContainsFunc(all, func(o *location) bool { return o != l && l.within(o) && !o.within(l) }) &&
			!slices.ContainsFunc(all[:i], func(o *location) bool { return l.within(o) && o.within(l) }) {
			kept = append(kept, l)
		}
	}
	return kept
}

// union is a set of locations that a single match can express.
type union struct {
	location
	of []*location
}

// joined joins locations that differ only in hosts, or only in paths.
func joined(all []*location) (unions []*union) {
	for _, byHost := range []bool{false, true} {
		if byHost && len(unions) <= 1 {
			break
		}
		before := unions
		if unions = nil; !byHost {
			for _, l := range all {
				before = append(before, &union{*l, []*location{l}})
			}
		}
		for _, u := range before {
			i := slices.IndexFunc(unions, func(o *union) bool {
				same := slices.Equal(u.hosts, o.hosts)
				if byHost {
					same = slices.Equal(u.paths, o.paths)
				}
				return same && reflect.DeepEqual(u.rest, o.rest) && reflect.DeepEqual(u.unless, o.unless)
			})
			switch {
			case i < 0:
				unions = append(unions, u)
				continue
			case byHost:
				unions[i].hosts = append(slices.Clone(unions[i].hosts), u.hosts...)
			case len(u.paths) == 0 || len(unions[i].paths) == 0:
				unions[i].paths = nil
			default:
				unions[i].paths = append(slices.Clone(unions[i].paths), u.paths...)
			}
			unions[i].of = append(unions[i].of, u.of...)
		}
	}
	return unions
}

// expression checks a source's regular expression, which must have RE2's syntax as in Weir. Unless
// whole is set, it may match a part of a text, and expression makes it match the whole.
func (c *converter) expression(at place, expr string, whole bool) (text, bool) {
	if !whole {
		expr = partly(expr)
	}
	if _, err := pattern.Compile(expr); err != nil {
		c.lose(at, "the regular expression is not in RE2's syntax: %v", err)
		return text{}, false
	}
	return text{regex, expr}, true
}

// partly returns an expression for whole texts that some part of matches the given one.
func partly(expr string) string {
	if alternates(expr) {
		return ".*(?:" + expr + ").*"
	}
	flags := ""
	if after, found := strings.CutPrefix(expr, "(?i)"); found {
		flags, expr = "(?i)", after
	}
	if after, found := strings.CutPrefix(expr, "^"); found {
		expr = after
	} else {
		expr = ".*" + expr
	}
	if before, found := strings.CutSuffix(expr, "$"); found && !strings.HasSuffix(before, `\`) {
		expr = before
	} else {
		expr += ".*"
	}
	return flags + expr
}

// alternates reports whether a regular expression has a | outside of groups and classes.
func alternates(expr string) bool {
	depth, class := 0, false
	for i := 0; i < len(expr); i++ {
		switch c := expr[i]; {
		case c == '\\':
			i++
		case class:
			class = c != ']'
		case c == '[':
			class = true
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == '|' && depth == 0:
			return true
		}
	}
	return false
}
