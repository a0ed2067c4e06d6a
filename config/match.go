package config

import (
	"strconv"
	"strings"

	"weir/internal/clientip"
	"weir/internal/jsonpath"
	"weir/internal/pattern"
)

const (
	maxExceptions = 64
	maxMatchParts = 32
	maxMethods    = 32
	maxMatchValue = 4096
	maxTexts      = 10_000
	likeMatch     = `{"path": {"prefix": "/api/"}}`
)

var matchFields = []field{
	{"path", optional}, {"host", optional}, {"headers", optional}, {"method", optional}, {"methods", optional}, {"request_json", optional},
	{"query", optional}, {"cookie", optional}, {"path_segment", optional}, {"jwt_claim", optional}, {"property", optional}, {"client_ip", optional},
	{"any", optional}, {"not", optional}, {"if", optional},
}

func (m *Match) read(name string, v *value) {
	switch name {
	case "path":
		m.Path = readStringMatch(v, SelectPath, isPathPart, nil)
	case "host":
		m.Host = readStringMatch(v, SelectHost, isHostPart, nil)
	case "methods":
		m.Methods = readMethods(v)
	case "method":
		m.Conditions = append(m.Conditions, Condition{Selector{Kind: SelectMethod}, *readStringMatch(v, SelectMethod, isMethodPart, nil)})
	case "client_ip":
		c := Condition{Of: Selector{Kind: SelectClientIP}}
		if v.kind == kindObject {
			c.StringMatch = *readStringMatch(v, SelectClientIP, isAddressPart, nil)
		} else {
			c.Op, c.Networks = InNetworks, readNetworks(v)
		}
		m.Conditions = append(m.Conditions, c)
	case "any":
		v.array("objects of conditions", 1, maxExceptions, func(v *value) { m.Any = append(m.Any, readMatch(v)) })
	case "not":
		not := readMatch(v)
		m.Not = &not
	case "if":
		v.fail("the plugin knows no CEL, want the conditions that weir compile makes of it")
	default:
		for i := range matchParts {
			if p := &matchParts[i]; p.field == name {
				m.readParts(p, v)
			}
		}
	}
}

// readMatch reads conditions that must not be empty, because all requests meet none.
func readMatch(v *value) (m Match) {
	v.object(likeMatch, matchFields, m.read)
	if v.kind == kindObject && v.length() == 0 {
		v.fail("want one of " + list(names(matchFields)) + ", got an empty object, which all requests match")
	}
	return m
}

// namedParts is a field of a match with conditions on named parts.
type namedParts struct {
	field, plural, like string
	kind                SelectorKind
}

var matchParts = [...]namedParts{
	{"headers", "headers", `{"x-plan": {"exact": "free"}}`, SelectHeader},
	{"request_json", "paths", `{"model": {"prefix": "gpt-5"}}`, SelectBody},
	{"query", "parameters", `{"page": {"above": 100}}`, SelectQuery},
	{"cookie", "cookies", `{"sid": {"present": true}}`, SelectCookie},
	{"path_segment", "segments", `{"1": {"exact": "v1"}}`, SelectPathSegment},
	{"jwt_claim", "claims", `{"plan": {"exact": "gold"}}`, SelectClaim},
	{"property", "attributes", `{"route_name": {"exact": "api"}}`, SelectProperty},
}

// readParts reads an object from the names of parts of a request to string matches.
func (m *Match) readParts(p *namedParts, v *value) {
	if !v.isObject(p.like) {
		return
	}
	before := len(m.Conditions)
	if v.length() == 0 && p.kind != SelectHeader && p.kind != SelectBody { // those may be empty since v0.1
		v.fail("want conditions by names, got an empty object, which all requests match")
		return
	}
	v.each(p.plural, 0, maxMatchParts, func(v *value) {
		c := Condition{Of: Selector{Kind: p.kind}}
		if problem := c.Of.name(v.name); problem != "" {
			v.fail(problem)
			return
		}
		for i := range m.Conditions[before:] {
			if m.Conditions[before+i].Of.named(&c.Of) {
				v.givenTwice()
				return
			}
		}
		var source func(string, *value)
		if p.kind == SelectClaim {
			source = c.Of.read
		}
		c.StringMatch = *readStringMatch(v, p.kind, isHeaderPart, source)
		c.Of.checkClaim(v)
		m.Conditions = append(m.Conditions, c)
	})
}

// name selects the part with a name, or tells what is wrong with the name.
func (s *Selector) name(name string) (problem string) {
	path := wantTextPath
	switch s.Kind {
	case SelectHeader:
		if s.Name = lower(name); !isRequestHeader(s.Name) {
			return "want the name of a header"
		}
		return ""
	case SelectQuery:
		if s.Name = name; !made(name, 1, maxHeaderName, isFieldByte) {
			return "want a name of 1 to 256 bytes without control characters"
		}
		return ""
	case SelectCookie:
		if s.Name = name; !isToken(name) {
			return "want the name of a cookie"
		}
		return ""
	case SelectPathSegment:
		n, ok := natural(name, 10)
		if s.Segment = int(n); !ok || n < 1 || n > maxPathSegment || name[0] == '0' {
			return "want the number of a segment, from 1 to " + strconv.Itoa(maxPathSegment)
		}
		return ""
	case SelectClaim:
		s.Claim, path = name, wantClaim
	case SelectProperty:
		path = `an attribute such as "route_name", with a point between its parts and no NUL`
	case SelectBody:
		s.Name = name
	}
	compiled, err := jsonpath.Compile(name)
	if err != nil {
		return "want " + path + ", got a path with " + err.Error()
	}
	if s.Kind == SelectProperty {
		if strings.IndexByte(name, 0) >= 0 {
			return "want " + path
		}
		s.Name = compiled.Join("\x00")
	}
	return ""
}

// named reports whether two selectors of a kind select the part of the same name.
func (s *Selector) named(other *Selector) bool {
	return s.Segment == other.Segment && s.Claim == other.Claim && (s.Name == other.Name || s.Kind == SelectClaim)
}

// part reports whether op can sensibly compare with a text, and what text would be right.
type part func(op MatchOp, text string) (want string, ok bool)

// isPathPart rejects texts that no path matches, or that all paths match.
func isPathPart(op MatchOp, text string) (string, bool) {
	const (
		whole = `a path that begins with "/", without a query`
		end   = "the end of a path, without a query"
	)
	ok := isMatchValue(text) && strings.IndexByte(text, '?') < 0
	if op == Suffix {
		return end, ok && text != ""
	}
	// an OPTIONS request may ask for *.
	return whole, ok && (strings.HasPrefix(text, "/") || op == Exact && text == "*")
}

// isHostPart rejects texts that no host matches, or that all hosts match.
func isHostPart(op MatchOp, text string) (string, bool) {
	const want = "a host in lower case without a port, or a part of one"
	return want, made(text, 1, maxHeaderName, isVisible) && lower(text) == text && (strings.IndexByte(text, ':') < 0 || text[0] == '[')
}

// isMethodPart rejects texts that no method matches.
func isMethodPart(op MatchOp, text string) (string, bool) {
	return "an HTTP method in capitals, or a part of one", isMethod(text)
}

// isAddressPart rejects texts that no address matches. A whole address stands for itself as a network.
func isAddressPart(op MatchOp, text string) (string, bool) {
	if op == Exact {
		_, ok := clientip.ParseAddress(text)
		return `an address such as "10.0.0.1"`, ok
	}
	return "a part of an address", made(text, 1, maxHeaderName, isVisible)
}

// isHeaderPart rejects texts that all values match, or that can't occur in a value.
func isHeaderPart(op MatchOp, text string) (string, bool) {
	if op == Exact {
		return "a string of at most 4096 bytes without control characters", isMatchValue(text)
	}
	return "a string of 1 to 4096 bytes without control characters", isMatchValue(text) && text != ""
}

func isMatchValue(text string) bool { return made(text, 0, maxMatchValue, isFieldByte) }

// variantsOfMatch are the comparisons. The last two are of numbers.
var (
	variantsOfMatch = [][]field{
		{{"exact", optional}}, {{"prefix", optional}}, {{"suffix", optional}}, {{"regex", optional}}, {{"present", optional}}, {{"in", optional}},
		{{"below", optional}}, {{"above", optional}, {"below", optional}},
	}
	claimSource = []field{{"header", optional}, {"metadata", optional}}
)

const numberVariants = 2

// readStringMatch reads how a part of some kind is compared. readSource reads where a claim comes from.
func readStringMatch(v *value, of SelectorKind, valid part, readSource func(name string, v *value)) *StringMatch {
	m := &StringMatch{}
	var above, below *value
	variants := variantsOfMatch
	switch of {
	case SelectPath, SelectHost, SelectMethod, SelectClientIP:
		variants = variants[:len(variants)-numberVariants]
	}
	var further []field
	if readSource != nil {
		further = claimSource
	}
	v.oneOf(`{"prefix": "/api/"}`, variants, further, func(name string, v *value) {
		switch name {
		case "header", "metadata":
			readSource(name, v)
			return
		case "regex":
			m.Op, m.Value = Regex, readPattern(v)
			return
		case "present":
			if m.Op = Absent; v.boolean() {
				m.Op = Present
			}
			return
		case "in":
			if m.Op = InNetworks; of == SelectClientIP {
				m.Networks = readNetworks(v)
			} else {
				m.Op, m.Texts = In, readTexts(v, valid)
			}
			return
		case "above":
			above = v
			m.Op, m.Above = Between, readNumber(v)
			return
		case "below":
			below = v
			m.Op, m.Below = Between, readNumber(v)
			return
		case "prefix":
			m.Op = Prefix
		case "suffix":
			m.Op = Suffix
		}
		want, ok := valid(m.Op, v.text)
		if v.kind != kindString || !ok {
			v.wrong(want)
			return
		}
		m.Value = v.text
		if of == SelectClientIP && m.Op == Exact {
			network, _ := clientip.ParseAddress(v.text)
			m.Op, m.Value, m.Networks = InNetworks, "", []clientip.Prefix{network}
		}
	})
	if m.Above != nil && m.Below != nil && m.Above.Compare(m.Below) >= 0 {
		above.fail("want less than " + below.show() + ", the value of below, got " + above.show())
	}
	return m
}

// readTexts reads a set of whole texts.
func readTexts(v *value, valid part) map[string]struct{} {
	texts := map[string]struct{}{}
	v.array("texts", 1, maxTexts, func(v *value) {
		want, ok := valid(Exact, v.text)
		if v.kind != kindString || !ok {
			v.wrong(want)
			return
		}
		if _, twice := texts[v.text]; twice {
			v.givenTwice()
		}
		texts[v.text] = struct{}{}
	})
	return texts
}

func readNumber(v *value) *jsonpath.Decimal {
	n, ok := jsonpath.ParseDecimal([]byte(v.raw))
	if v.kind != kindNumber || !ok {
		v.wrong("a number")
		return nil
	}
	return &n
}

func readPattern(v *value) (expression string) {
	if v.kind != kindString || v.text == "" || len(v.text) > maxMatchValue {
		v.wrong("a regular expression of 1 to 4096 bytes")
		return ""
	}
	if _, err := pattern.Compile(v.text); err != nil {
		v.fail("want a regular expression, got " + err.Error())
	}
	return v.text
}

func readMethods(v *value) (methods []string) {
	v.array("methods", 1, maxMethods, func(v *value) {
		method := v.string(`an HTTP method in capitals such as "GET"`, isMethod)
		if method != "" && index(methods, method) >= 0 {
			v.givenTwice()
		}
		methods = append(methods, method)
	})
	return methods
}

// isMethod accepts tokens without lower-case letters. Methods are case-sensitive, and no method
// that is in use has any.
func isMethod(text string) bool { return isToken(text) && all(text, isNotLower) }

func isNotLower(c byte) bool { return c < 'a' || 'z' < c }
