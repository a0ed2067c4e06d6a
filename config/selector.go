package config

import (
	"strings"
)

const (
	maxPathSegment   = 1000
	maxPropertyParts = 32
	maxNetworks      = 256
	likeSelector     = `{"header": "x-user"}`
	wantSelector     = `"method", "host", "path", "client_ip" or an object such as ` + likeSelector
)

// clientIP selects whole IPv4 addresses and the /64 of IPv6 ones, which is what one subscriber has.
var clientIP = Selector{Kind: SelectClientIP, IPv4Prefix: 32, IPv6Prefix: 64}

// readSelector reads what selects a part of a request; want says what else may stand in its place.
func readSelector(v value, want string) (s Selector) {
	if v.json.composite() {
		v.oneOf(likeSelector, s.variants()...)
		return s
	}
	switch v.json.text {
	case "method":
		s.Kind = SelectMethod
	case "path":
		s.Kind = SelectPath
	case "client_ip":
		s = clientIP
	case "host":
		v.notYet()
	default:
		v.wrong(want)
	}
	return s
}

// readResponseSelector reads what selects a part of a request or of its response.
func readResponseSelector(v value) (s Selector) {
	if !v.json.composite() {
		return readSelector(v, wantSelector+` or {"response_header": "x-tokens"}`)
	}
	v.oneOf(`{"response_header": "x-tokens"}`, append(s.variants(), []field{
		{"response_header", optional, func(v value) {
			s = Selector{Kind: SelectResponseHeader, Name: lower(v.text("the name of a header", isToken))}
		}},
	})...)
	return s
}

// variants are the selectors that are objects.
func (s *Selector) variants() [][]field {
	name := func(v value) {
		v.text("a string of 1 to 256 bytes without control characters", made(1, maxHeaderName, isFieldByte))
	}
	header := func(v value) string { return lower(v.text("the name of a header", isRequestHeader)) }
	return [][]field{
		{{"header", optional, func(v value) { *s = Selector{Kind: SelectHeader, Name: header(v)} }}},
		{{"query", optional, notYet(name)}},
		{{"cookie", optional, notYet(func(v value) { v.text("the name of a cookie", isToken) })}},
		{{"path_segment", optional, notYet(func(v value) { v.integer(1, maxPathSegment) })}},
		{{"client_ip", optional, func(v value) { *s = readClientIP(v) }}},
		// After header, which is a part of it.
		{
			{"jwt_claim", optional, notYet(name)},
			{"header", required, func(v value) { header(v) }},
		},
		{{"property", optional, notYet(readProperty)}},
		{{"in_cidr", optional, notYet(readNetworks)}},
		{{"literal", optional, notYet(func(v value) { v.text("a string", func(string) bool { return true }) })}},
	}
}

func readClientIP(v value) Selector {
	s := clientIP
	v.object(`{"ipv4_prefix": 32, "ipv6_prefix": 64}`,
		field{"ipv4_prefix", optional, func(v value) {
			n := v.integer(0, 32)
			s.IPv4Prefix = int(n)
		}},
		field{"ipv6_prefix", optional, func(v value) {
			n := v.integer(0, 128)
			s.IPv6Prefix = int(n)
		}},
	)
	return s
}

// readProperty reads the path of an Envoy attribute; the host separates its parts with NUL.
func readProperty(v value) {
	v.array("parts of an attribute's name", 1, maxPropertyParts, func(v value) {
		v.text("a non-empty string without NUL", func(text string) bool {
			return text != "" && strings.IndexByte(text, 0) < 0
		})
	})
}

func readNetworks(v value) {
	v.array("networks", 1, maxNetworks, func(v value) {
		v.text(`a network such as "10.0.0.0/8" or "2001:db8::/32"`, isNetwork)
	})
}
