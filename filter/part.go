package filter

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"

	"weir/internal/clientip"
	"weir/internal/jsonpath"
	"weir/internal/pattern"
)

// part is a piece of a value of the host.
type part struct {
	_ [0]func() // keeps Go from generating an equality function

	kind     partKind
	name     string // of a parameter, a cookie or a claim; for a body's text its path, and for a group its expression
	segment  int    // number of a path's segment; for a body's text its most bytes; for a network its bits, 256 times those of IPv4 and those of IPv6
	networks []clientip.Prefix
	literal  []byte         // for a body's text its default
	claim    *jsonpath.Path // path of a claim or of a body's text
	group    *pattern.Group
	// schemeless means that a claim's token may stand without a scheme.
	schemeless bool
}

type partKind uint8

const (
	wholeValue partKind = iota
	// barePath is a path without its query, and pathSegment the part between two of its slashes.
	barePath
	pathSegment
	// queryParameter is the first parameter with the name, and cookie the first cookie.
	queryParameter
	cookie
	// bareHost is a host in lower case, without its port.
	bareHost
	// claim is a claim of a JSON Web Token, and verified is a claim that Envoy has read, or other
	// metadata of Envoy's. attribute is another of its attributes, as people read it.
	claim
	verified
	attribute
	// bareAddress is an address without its port.
	bareAddress
	// network is the network of an address, as people write it.
	network
	// inNetworks is whether an address is in one of the networks.
	inNetworks
	// literal is the same for all requests.
	literal
	// group is what an expression's group matches of another part.
	group
	// bodyText is a text of the body, which is not one of the host's values.
	bodyText
)

// scratch is memory for parts that have to be decoded or converted.
type scratch struct {
	decoded []byte
	network [16]byte
	text    [clientip.MaxText]byte
	claims  jsonpath.Reader
	block   [decodedBlock]byte // of a token
}

func (p *part) equal(other *part) bool {
	if p.kind != other.kind || p.name != other.name || p.segment != other.segment || len(p.networks) != len(other.networks) ||
		!bytes.Equal(p.literal, other.literal) {
		return false
	}
	for i := range p.networks {
		if p.networks[i] != other.networks[i] {
			return false
		}
	}
	return true
}

// of returns the part of a value. The part is valid while the value is, and until the next call.
func (p *part) of(value []byte, s *scratch) (taken []byte, ok bool) {
	switch p.kind {
	case barePath:
		return withoutQuery(value), true
	case pathSegment:
		return segmentOf(withoutQuery(value), p.segment)
	case queryParameter:
		return s.parameter(value, p.name)
	case cookie:
		return cookieOf(value, p.name)
	case bareHost:
		return s.bareHost(value), true
	case claim:
		return s.claim(value, p)
	case verified:
		return s.verified(value, true)
	case attribute:
		return s.verified(value, false)
	case bareAddress:
		return clientip.Bare(value), true
	case network:
		return clientip.Text(clientip.Network(value, p.segment>>8, p.segment&0xff, &s.network), &s.text), true
	case group:
		return p.group.Of(value)
	case inNetworks:
		if clientip.In(value, p.networks, &s.network) {
			return inside, true
		}
		return outside, true
	}
	return value, true
}

var inside, outside = []byte("true"), []byte("false")

func withoutQuery(path []byte) []byte {
	if i := bytes.IndexByte(path, '?'); i >= 0 {
		return path[:i]
	}
	return path
}

// segmentOf returns the segment of a path with a number, from 1.
func segmentOf(path []byte, number int) (segment []byte, ok bool) {
	for ; number > 0; number-- {
		slash := bytes.IndexByte(path, '/')
		if slash < 0 {
			return nil, false
		}
		path = path[slash+1:]
	}
	if end := bytes.IndexByte(path, '/'); end >= 0 {
		path = path[:end]
	}
	return path, true
}

// next splits a list at its first separator.
func next(list []byte, separator byte) (first, rest []byte) {
	if i := bytes.IndexByte(list, separator); i >= 0 {
		return list[:i], list[i+1:]
	}
	return list, nil
}

// parameter returns the first parameter with a name in a path's query, decoded as in forms: a plus
// is a space.
func (s *scratch) parameter(path []byte, name string) (value []byte, ok bool) {
	_, query := next(path, '?')
	query, _ = next(query, '#')
	for len(query) > 0 {
		var field []byte
		field, query = next(query, '&')
		key, value := next(field, '=')
		if !decodesTo(key, name) {
			continue
		}
		if bytes.IndexByte(value, '%') >= 0 || bytes.IndexByte(value, '+') >= 0 {
			s.decoded = s.decoded[:0]
			for len(value) > 0 {
				var b byte
				b, value = decoded(value)
				s.decoded = append(s.decoded, b)
			}
			value = s.decoded
		}
		return value, true
	}
	return nil, false
}

// decodesTo reports whether encoded bytes stand for a text.
func decodesTo(encoded []byte, text string) bool {
	at := 0
	for ; len(encoded) > 0; at++ {
		var b byte
		if b, encoded = decoded(encoded); at == len(text) || text[at] != b {
			return false
		}
	}
	return at == len(text)
}

// decoded returns the first decoded byte, and the rest. A percent sign that does not precede two
// hexadecimal digits stands for itself.
func decoded(encoded []byte) (b byte, rest []byte) {
	b = encoded[0]
	if b == '+' {
		b = ' '
	} else if b == '%' && len(encoded) > 2 {
		if high, low := clientip.HexDigit(encoded[1]), clientip.HexDigit(encoded[2]); high >= 0 && low >= 0 {
			return byte(high<<4 | low), encoded[3:]
		}
	}
	return b, encoded[1:]
}

// cookieOf returns the first cookie with a name, without quotes around it.
func cookieOf(cookies []byte, name string) (value []byte, ok bool) {
	for len(cookies) > 0 {
		var pair []byte
		pair, cookies = next(cookies, ';')
		key, value := next(pair, '=')
		if string(trim(key)) != name || len(key) == len(pair) {
			continue
		}
		if value = trim(value); len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
		}
		return value, true
	}
	return nil, false
}

// trim removes the spaces and tabs around a value.
func trim(value []byte) []byte {
	for len(value) > 0 && (value[0] == ' ' || value[0] == '\t') {
		value = value[1:]
	}
	for n := len(value); n > 0 && (value[n-1] == ' ' || value[n-1] == '\t'); n = len(value) {
		value = value[:n-1]
	}
	return value
}

// bareHost returns a host in lower case, without its port and its final dot. Otherwise clients
// could get another counter by writing the host differently.
func (s *scratch) bareHost(host []byte) []byte {
	if i := bytes.LastIndexByte(host, ':'); i > 0 && (host[i-1] == ']' || bytes.IndexByte(host, ':') == i) {
		host = host[:i]
	}
	if n := len(host); n > 1 && host[n-1] == '.' {
		host = host[:n-1]
	}
	for i := range host {
		if isUpper(host[i]) {
			s.decoded = append(s.decoded[:0], host...)
			for i := range s.decoded {
				if isUpper(s.decoded[i]) {
					s.decoded[i] += 'a' - 'A'
				}
			}
			return s.decoded
		}
	}
	return host
}

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

// claim returns the value at a path in a JSON Web Token. A claim that is null counts as absent.
//
// Envoy's jwt_authn finds a token in almost any value: after other words, in lists, in one of
// several header lines. If the value is not exactly the scheme and one token, Envoy may have
// verified another token, so its claims count as absent.
func (s *scratch) claim(value []byte, p *part) (claim []byte, ok bool) {
	const scheme = "Bearer "
	token, found := bytes.CutPrefix(value, []byte(scheme))
	if !found && !p.schemeless {
		return nil, false
	}
	payload, ok := payloadOf(token)
	if !ok {
		return nil, false
	}
	s.claims.Reset(p.claim)
	for len(payload) > 0 {
		block := payload[:min(len(payload), encodedBlock)]
		payload = payload[len(block):]
		n, err := base64.RawURLEncoding.Decode(s.block[:], block)
		if err != nil {
			return nil, false
		}
		if s.claims.Feed(s.block[:n]) {
			break
		}
	}
	claim, kind := s.claims.Value()
	switch kind {
	case jsonpath.String, jsonpath.Number, jsonpath.Bool, jsonpath.Composite:
		return claim, true
	}
	return nil, false
}

// A token is decoded in blocks: that many characters, a multiple of four, give that many bytes.
const (
	encodedBlock = 1024
	decodedBlock = encodedBlock / 4 * 3
)

// payloadOf returns the second of a token's three parts. All parts are base64url.
func payloadOf(token []byte) (payload []byte, ok bool) {
	part, start := 0, 0
	for i, c := range token {
		switch {
		case c == '.' && i > start && part < 2:
			if part == 1 {
				payload = token[start:i]
			}
			part, start = part+1, i+1
		case !isBase64URL(c):
			return nil, false
		}
	}
	return payload, part == 2 && start < len(token)
}

func isBase64URL(c byte) bool {
	return 'a' <= c && c <= 'z' || isUpper(c) || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// verified returns the text of a claim or another attribute from Envoy's form of it: a text, eight
// bytes of a number, or a byte that is 0 or 1. Numbers are floating in metadata, and else whole. Objects and arrays, which contain zero bytes, have a different order each
// time and count as absent.
func (s *scratch) verified(value []byte, floating bool) (claim []byte, ok bool) {
	switch {
	case len(value) == 1 && value[0] <= 1:
		if value[0] == 1 {
			return inside, true
		}
		return outside, true
	case len(value) == 8 && !isText(value):
		if bits := binary.LittleEndian.Uint64(value); floating {
			s.decoded = strconv.AppendFloat(s.decoded[:0], math.Float64frombits(bits), 'f', -1, 64)
		} else {
			s.decoded = strconv.AppendInt(s.decoded[:0], int64(bits), 10)
		}
		return s.decoded, true
	case bytes.IndexByte(value, 0) >= 0:
		return nil, false
	}
	return value, true
}

// isText reports whether all bytes are characters that a claim may have.
func isText(value []byte) bool {
	for _, c := range value {
		if c < ' ' {
			return false
		}
	}
	return utf8.Valid(value)
}
