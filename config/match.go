package config

import (
	"slices"
	"strings"
)

const (
	maxExceptions   = 64
	maxMatchHeaders = 32
	maxMethods      = 32
	maxMatchValue   = 4096
	likeMatch       = `{"path": {"prefix": "/api/"}}`
)

func readMatch(v value) (m Match) {
	v.object(likeMatch, m.fields()...)
	return m
}

func (m *Match) fields() []field {
	return []field{
		{"path", optional, func(v value) { m.Path = readStringMatch(v, isPathPart) }},
		{"host", optional, notYet(func(v value) { readStringMatch(v, isHeaderPart) })},
		{"headers", optional, notYet(readHeaderMatches)},
		{"methods", optional, func(v value) { m.Methods = readMethods(v) }},
	}
}

// readHeaderMatches reads an object from headers' names to string matches.
func readHeaderMatches(v value) {
	var names []string
	v.entries(`{"x-plan": {"exact": "free"}}`, "headers", maxMatchHeaders, func(name string, v value) {
		name = lower(name)
		switch {
		case !isRequestHeader(name):
			v.fail("want the name of a header")
		case slices.Contains(names, name):
			v.fail("given twice")
		default:
			names = append(names, name)
			readStringMatch(v, isHeaderPart)
		}
	})
}

// part says whether a string can be what op compares with, and what would be.
type part func(op MatchOp, text string) (want string, ok bool)

// isPathPart refuses what no path matches, and what all do.
func isPathPart(op MatchOp, text string) (string, bool) {
	const (
		whole = `a path that begins with "/", without a query`
		end   = "the end of a path, without a query"
	)
	ok := isMatchValue(text) && !strings.Contains(text, "?")
	if op == Suffix {
		return end, ok && text != ""
	}
	// OPTIONS asks for * as well.
	return whole, ok && (strings.HasPrefix(text, "/") || op == Exact && text == "*")
}

// isHeaderPart refuses what all values match, and what can't stand in one.
func isHeaderPart(op MatchOp, text string) (string, bool) {
	if op == Exact {
		return "a string of at most 4096 bytes without control characters", isMatchValue(text)
	}
	return "a string of 1 to 4096 bytes without control characters", isMatchValue(text) && text != ""
}

var isMatchValue = made(0, maxMatchValue, isFieldByte)

func readStringMatch(v value, valid part) *StringMatch {
	m := &StringMatch{}
	compare := func(name string, op MatchOp) []field {
		return []field{{name, optional, func(v value) {
			want, _ := valid(op, "")
			m.Op = op
			m.Value = v.text(want, func(text string) bool { _, ok := valid(op, text); return ok })
		}}}
	}
	v.oneOf(`{"prefix": "/api/"}`,
		compare("exact", Exact),
		compare("prefix", Prefix),
		compare("suffix", Suffix),
		[]field{{"regex", optional, notYet(func(v value) {
			v.text("a regular expression of 1 to 4096 bytes", func(text string) bool {
				return text != "" && len(text) <= maxMatchValue
			})
		})}},
		[]field{{"present", optional, func(v value) {
			if m.Op = Absent; v.boolean() {
				m.Op = Present
			}
		}}},
	)
	return m
}

func readMethods(v value) (methods []string) {
	v.array("methods", 1, maxMethods, func(v value) {
		// Methods are case-sensitive, and a lower-case one would match nothing.
		method := v.text(`an HTTP method in capitals such as "GET"`, func(text string) bool {
			return isToken(text) && !strings.ContainsAny(text, "abcdefghijklmnopqrstuvwxyz")
		})
		if method != "" && slices.Contains(methods, method) {
			v.fail("given twice")
		}
		methods = append(methods, method)
	})
	return methods
}

// readException reads a match object, or {"client_ip": [networks]}.
func readException(v value) {
	var m Match
	var clientIP value
	v.object(likeMatch, append(m.fields(), field{"client_ip", optional, func(v value) {
		clientIP = v
		readNetworks(v)
	}})...)
	switch n := v.length(); {
	case n == 0:
		v.fail("want one of path, host, headers, methods or client_ip, got an empty object, which would except all requests")
	case n > 1 && clientIP.given():
		clientIP.fail("want client_ip alone, and the rest as another exception")
	}
}
