package config

import (
	"strings"

	"weir/internal/clientip"
	"weir/internal/jsonpath"
	"weir/internal/pattern"
)

const (
	maxPathSegment   = 1000
	maxPropertyParts = 32
	maxNetworks      = 256
	// usualText is the longest text that a selector takes from a body by default, in bytes.
	usualText    = 256
	likeSelector = `{"header": "x-user"}`
	wantClaim    = `the path of a claim such as "sub" or "realm_access.roles.0"`
	wantSelector = `"method", "host", "path", "client_ip" or an object such as ` + likeSelector
)

// clientIP selects whole IPv4 addresses, and the /64 of IPv6 addresses, the size that providers
// assign to a subscriber.
var clientIP = Selector{Kind: SelectClientIP, IPv4Prefix: 32, IPv6Prefix: 64}

// variantsOfSelector are the selectors in the form of objects. The first, of a response, is only
// for costs of responses. The last, of a request's body, is only for parts that tell requests
// apart.
var variantsOfSelector = [...][]field{
	{{"response_header", optional}},
	{{"header", optional}},
	{{"query", optional}},
	{{"cookie", optional}},
	{{"path_segment", optional}},
	{{"client_ip", optional}},
	// After header, because that is a part of this selector.
	{{"jwt_claim", optional}, {"header", optional}, {"metadata", optional}},
	{{"property", optional}},
	{{"in_cidr", optional}},
	{{"literal", optional}},
	{{"request_json", optional}, {"default", optional}, {"longest", optional}},
}

const (
	responseSelectors = 1
	bodySelectors     = 1
)

// limitSelectors are the selectors of values that an earlier filter may have set.
var limitSelectors = [][]field{{{"header", optional}}, {{"property", optional}}}

// readSelector reads a selector; want says what else would be right in its place. An object may
// have further fields, which readFurther reads.
func readSelector(v *value, want string, further []field, readFurther func(name string, v *value)) (s Selector) {
	if v.composite() {
		v.oneOf(likeSelector, variantsOfSelector[responseSelectors:len(variantsOfSelector)-bodySelectors], further, func(name string, v *value) {
			if find(further, name) >= 0 {
				readFurther(name, v)
			} else {
				s.read(name, v)
			}
		})
		s.checkClaim(v)
		return s
	}
	switch v.text {
	case "method":
		s.Kind = SelectMethod
	case "path":
		s.Kind = SelectPath
	case "client_ip":
		s = clientIP
	case "host":
		s.Kind = SelectHost
	default:
		v.wrong(want)
	}
	return s
}

// groupField is the further field of a selector whose value may be a group.
var groupField = []field{{"regex", optional}}

// readKeySelector reads a selector of a part of a request, its body included.
func readKeySelector(v *value, further []field) (s Selector) {
	if !v.composite() {
		return readSelector(v, wantSelector, nil, nil)
	}
	var group *value
	v.oneOf(likeSelector, variantsOfSelector[responseSelectors:], further, func(name string, v *value) {
		if name == "regex" {
			group = v
		} else {
			s.read(name, v)
		}
	})
	if group.given() {
		s.Group = readGroup(group, s.Kind)
	}
	s.checkClaim(v)
	if s.Kind == SelectBody && s.Longest == 0 {
		s.Longest = usualText
	}
	return s
}

// readGroup reads an expression whose group is taken of a selector's value.
func readGroup(v *value, of SelectorKind) string {
	const want = `a regular expression with a group, such as "tenant-([0-9]+)-.*"`
	if of == SelectClientIP || of == SelectInNetworks || of == SelectLiteral {
		v.fail("want no regex with client_ip, in_cidr or literal")
	}
	if v.kind != kindString || v.text == "" || len(v.text) > maxMatchValue {
		v.wrong(want)
		return ""
	}
	if _, err := pattern.CompileGroup(v.text); err != nil {
		v.fail("want " + want + ", got " + err.Error())
	}
	return v.text
}

// readResponseSelector reads a selector of a part of a request or of its response.
func readResponseSelector(v *value) (s Selector) {
	if !v.composite() {
		return readSelector(v, `"openai", "anthropic", "gemini", "bedrock", "ollama", "auto", `+wantSelector+`, {"response_header": "x-tokens"} or `+likeUsage, nil, nil)
	}
	v.oneOf(`{"response_header": "x-tokens"}`, variantsOfSelector[:len(variantsOfSelector)-bodySelectors], nil, s.read)
	s.checkClaim(v)
	return s
}

func (s *Selector) read(name string, v *value) {
	switch name {
	case "header":
		s.Name = lower(v.string("the name of a header", isRequestHeader)) // a claim's header if the kind is set
	case "query":
		*s = Selector{Kind: SelectQuery, Name: v.bytes("a string of 1 to 256 bytes without control characters", maxHeaderName, isFieldByte)}
	case "jwt_claim":
		s.Kind, s.Claim = SelectClaim, v.text
		readPath(v, wantClaim)
	case "metadata":
		s.Metadata = v.string("the payload_in_metadata of a provider of jwt_authn, without NUL", isPropertyPart)
	case "cookie":
		*s = Selector{Kind: SelectCookie, Name: v.string("the name of a cookie", isToken)}
	case "path_segment":
		*s = Selector{Kind: SelectPathSegment, Segment: int(v.integer(1, maxPathSegment))}
	case "client_ip":
		*s = clientIP
		v.object(`{"ipv4_prefix": 32, "ipv6_prefix": 64}`, prefixFields, s.readPrefix)
	case "property":
		// The path of an Envoy attribute; the host separates its parts with NUL.
		*s = Selector{Kind: SelectProperty}
		v.array("parts of an attribute's name", 1, maxPropertyParts, func(v *value) {
			if part := v.string("a non-empty string without NUL", isPropertyPart); s.Name == "" {
				s.Name = part
			} else {
				s.Name += "\x00" + part
			}
		})
	case "in_cidr":
		*s = Selector{Kind: SelectInNetworks, Networks: readNetworks(v)}
	case "literal":
		*s = Selector{Kind: SelectLiteral, Name: v.string("a string of at most 4096 bytes", isLiteral)}
	case "request_json":
		s.Kind, s.Name = SelectBody, v.text
		readPath(v, wantTextPath)
	case "default":
		s.Default = v.string("a string of at most 4096 bytes", isLiteral)
	case "longest":
		s.Longest = int(v.integer(1, jsonpath.MaxValue))
	case "response_header":
		*s = Selector{Kind: SelectResponseHeader, Name: lower(v.string("the name of a header", isToken))}
	}
}

// checkClaim checks the fields of a claim's selector v against each other after all were read.
func (s *Selector) checkClaim(v *value) {
	switch {
	case s.Kind != SelectClaim:
	case s.Metadata == "" && s.Name == "":
		s.Name = "authorization"
	case s.Metadata != "" && s.Name != "":
		v.fail("want either header or metadata, got both")
	case s.Metadata != "" && strings.IndexByte(s.Claim, 0) >= 0:
		v.fail("want a claim without NUL, because it is read from metadata")
	}
}

var prefixFields = []field{{"ipv4_prefix", optional}, {"ipv6_prefix", optional}}

func (s *Selector) readPrefix(name string, v *value) {
	if name == "ipv4_prefix" {
		s.IPv4Prefix = int(v.integer(0, 32))
	} else {
		s.IPv6Prefix = int(v.integer(0, 128))
	}
}

func isPropertyPart(text string) bool { return text != "" && strings.IndexByte(text, 0) < 0 }

func isLiteral(text string) bool { return len(text) <= maxMatchValue }

func readNetworks(v *value) (networks []clientip.Prefix) {
	v.array("networks", 1, maxNetworks, func(v *value) {
		network, ok := clientip.ParsePrefix(v.text)
		if v.kind != kindString || !ok {
			v.wrong(`a network such as "10.0.0.0/8" or "2001:db8::/32"`)
		}
		networks = append(networks, network)
	})
	return networks
}
