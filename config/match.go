package config

import (
	"strings"

	"weir/internal/jsonpath"
	"weir/internal/pattern"
)

const (
	maxExceptions   = 64
	maxMatchHeaders = 32
	maxMatchBody    = 32
	maxMethods      = 32
	maxMatchValue   = 4096
	likeMatch       = `{"path": {"prefix": "/api/"}}`
)

// exceptionFields are the fields of a match, followed by its own.
var (
	exceptionFields = [...]field{{"path", optional}, {"host", optional}, {"headers", optional}, {"methods", optional}, {"request_json", optional}, {"client_ip", optional}}
	matchFields     = exceptionFields[:5]
)

func (m *Match) read(name string, v *value) {
	switch name {
	case "path":
		m.Path = readStringMatch(v, isPathPart)
	case "host":
		m.Host = readStringMatch(v, isHostPart)
	case "headers":
		m.Headers = readHeaderMatches(v)
	case "request_json":
		m.Body = readBodyMatches(v)
	case "methods":
		m.Methods = readMethods(v)
	}
}

// readHeaderMatches reads an object from header names to string matches.
func readHeaderMatches(v *value) (matches []HeaderMatch) {
	if !v.isObject(`{"x-plan": {"exact": "free"}}`) {
		return nil
	}
	v.each("headers", 0, maxMatchHeaders, func(v *value) {
		name := lower(v.name)
		if !isRequestHeader(name) {
			v.fail("want the name of a header")
			return
		}
		for i := range matches {
			if matches[i].Name == name {
				v.givenTwice()
				return
			}
		}
		matches = append(matches, HeaderMatch{name, *readStringMatch(v, isHeaderPart)})
	})
	return matches
}

// readBodyMatches reads an object from paths in the body's JSON to string matches.
func readBodyMatches(v *value) (matches []BodyMatch) {
	if !v.isObject(`{"model": {"prefix": "gpt-5"}}`) {
		return nil
	}
	v.each("paths", 0, maxMatchBody, func(v *value) {
		if _, err := jsonpath.Compile(v.name); err != nil {
			v.fail("want " + wantTextPath + ", got a path with " + err.Error())
			return
		}
		for i := range matches {
			if matches[i].Path == v.name {
				v.givenTwice()
				return
			}
		}
		matches = append(matches, BodyMatch{v.name, *readStringMatch(v, isHeaderPart)})
	})
	return matches
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

// isHeaderPart rejects texts that all values match, or that can't occur in a value.
func isHeaderPart(op MatchOp, text string) (string, bool) {
	if op == Exact {
		return "a string of at most 4096 bytes without control characters", isMatchValue(text)
	}
	return "a string of 1 to 4096 bytes without control characters", isMatchValue(text) && text != ""
}

func isMatchValue(text string) bool { return made(text, 0, maxMatchValue, isFieldByte) }

// variantsOfMatch are the comparisons, in the order of MatchOp up to Suffix.
var variantsOfMatch = [][]field{
	{{"exact", optional}}, {{"prefix", optional}}, {{"suffix", optional}}, {{"regex", optional}}, {{"present", optional}},
}

func readStringMatch(v *value, valid part) *StringMatch {
	m := &StringMatch{}
	v.oneOf(`{"prefix": "/api/"}`, variantsOfMatch, nil, func(name string, v *value) {
		switch name {
		case "regex":
			m.Op, m.Value = Regex, readPattern(v)
			return
		case "present":
			if m.Op = Absent; v.boolean() {
				m.Op = Present
			}
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
	})
	return m
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

// readException reads a match object, or {"client_ip": [networks]}.
func readException(v *value) (e Exception) {
	var clientIP *value
	v.object(likeMatch, exceptionFields[:], func(name string, v *value) {
		if name == "client_ip" {
			clientIP = v
			e.Networks = readNetworks(v)
			return
		}
		e.Match.read(name, v)
	})
	switch n := v.length(); {
	case n == 0:
		v.fail("want one of path, host, headers, methods, request_json or client_ip, got an empty object, which would except all requests")
	case n > 1 && clientIP.given():
		clientIP.fail("want client_ip alone, and the rest as another exception")
	}
	return e
}
