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
)

// part is a piece of a value that the host has.
type part struct {
	_ [0]func() // or else Go makes a function that compares values

	kind     partKind
	name     string // of a parameter, a cookie or a claim; of a body's text its path
	segment  int    // of a path; of a body's text how long it may be
	networks []clientip.Prefix
	literal  []byte         // or what a body's text is by default
	claim    *jsonpath.Path // or a body's text
	// schemeless reports whether a claim's token may have no scheme before it.
	schemeless bool
}

type partKind uint8

const (
	wholeValue partKind = iota
	// barePath is a path without its query, and pathSegment what lies between two of its slashes.
	barePath
	pathSegment
	// queryParameter is the first of a name, and cookie too.
	queryParameter
	cookie
	// bareHost is a host in lower case, without its port.
	bareHost
	// claim is a claim of a JSON Web Token, and verified is a claim that Envoy has read.
	claim
	verified
	// inNetworks is whether an address is in some networks.
	inNetworks
	// literal is the same for all requests, and a part of nothing.
	literal
	// bodyText is a text of the body, which is none of the host's values.
	bodyText
)

// scratch is memory for parts that the host's bytes don't have as they count.
type scratch struct {
	decoded []byte
	network [16]byte
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

// of takes the part of a value. The part is valid as long as the value, and until the next part is
// taken.
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
		return s.verified(value)
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

// segmentOf returns the part of a path behind its slash of a number, from 1.
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

// next cuts a list at its first separator.
func next(list []byte, separator byte) (first, rest []byte) {
	if i := bytes.IndexByte(list, separator); i >= 0 {
		return list[:i], list[i+1:]
	}
	return list, nil
}

// parameter is the first one of a name in the query of a path, decoded as forms are: a plus is a
// space.
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

// decodesTo reports whether encoded bytes are a text.
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

// decoded is the first byte of what is encoded, and the rest. A percent sign before anything but two
// hexadecimal digits is itself.
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

// cookieOf is the first cookie of a name, without quotes around it.
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

// trim is a value without the spaces and tabs around it.
func trim(value []byte) []byte {
	for len(value) > 0 && (value[0] == ' ' || value[0] == '\t') {
		value = value[1:]
	}
	for n := len(value); n > 0 && (value[n-1] == ' ' || value[n-1] == '\t'); n = len(value) {
		value = value[:n-1]
	}
	return value
}

// bareHost is a host without its port and the dot of its root, in lower case, so that no client
// gets another counter by writing it in another way.
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

// claim returns the value that a JSON Web Token has under a path. A claim that is null is not
// there.
//
// Envoy's jwt_authn finds a token in almost anything: behind other words, in lists, in one of
// several lines. A value that is not exactly the scheme and one token may be another token than
// Envoy has verified, and has no claims.
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

// A token is decoded in blocks: so many bytes of its text, which are a multiple of four, give so
// many bytes.
const (
	encodedBlock = 1024
	decodedBlock = encodedBlock / 4 * 3
)

// payloadOf is the second of a token's three parts, which are of the letters of base64url.
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

// verified is a claim as it is written, of how Envoy hands it over: a text, a number in eight bytes, or
// a byte that is 0 or 1. Objects and arrays, in which there are zeros, come in another order each time,
// and are not there.
func (s *scratch) verified(value []byte) (claim []byte, ok bool) {
	switch {
	case len(value) == 1 && value[0] <= 1:
		if value[0] == 1 {
			return inside, true
		}
		return outside, true
	case len(value) == 8 && !isText(value):
		s.decoded = strconv.AppendFloat(s.decoded[:0], math.Float64frombits(binary.LittleEndian.Uint64(value)), 'f', -1, 64)
		return s.decoded, true
	case bytes.IndexByte(value, 0) >= 0:
		return nil, false
	}
	return value, true
}

// isText reports whether bytes are characters that a claim may have.
func isText(value []byte) bool {
	for _, c := range value {
		if c < ' ' {
			return false
		}
	}
	return utf8.Valid(value)
}
