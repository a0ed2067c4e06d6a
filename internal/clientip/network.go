// Package clientip reads clients' addresses, and cuts them down to the network that a key has. The
// plugin and other programs share it, so that they make the same keys.
//
// It does not use net/netip, which would make the plugin larger by a tenth of a megabyte.
package clientip

import (
	"bytes"
	"strings"
)

// Network returns the part of a key for an address such as 10.0.0.1:1234, 10.0.0.1 or
// [2001:db8::1]:1234: its 4 or 16 bytes, with all but the first prefix4 or prefix6 bits cleared.
// The bytes are in memory. A zone, as in [fe80::1%eth0]:1234, is ignored: it is the proxy's name
// for a link, and may differ between proxies. A text that is no IP address, such as the path of a
// Unix socket, is returned as it is.
//
//go:noinline
func Network(source []byte, prefix4, prefix6 int, memory *[16]byte) []byte {
	v4, ok := parseSource(source, memory)
	if !ok {
		return source
	}
	network, prefix := memory[:], prefix6
	if v4 {
		network, prefix = memory[12:], prefix4
	}
	Mask(network, prefix)
	return network
}

// parseSource is parseAddress for an address that may have a port, a zone and brackets.
func parseSource(text []byte, memory *[16]byte) (v4, ok bool) {
	return parseAddress(Bare(text), memory)
}

// Bare returns an address, written as for [Network], without brackets, port and zone.
func Bare(text []byte) []byte {
	if i := bytes.LastIndexByte(text, ':'); i > 0 && (text[i-1] == ']' || bytes.IndexByte(text, ':') == i) {
		text = text[:i]
	}
	if n := len(text); n > 2 && text[0] == '[' && text[n-1] == ']' {
		text = text[1 : n-1]
	}
	if i := bytes.IndexByte(text, '%'); i >= 0 {
		text = text[:i]
	}
	return text
}

// Prefix is a network of either family.
type Prefix struct {
	address [16]byte // for IPv4 the last four bytes
	bits    int
	v4      bool
}

// ParsePrefix reads a network such as 10.0.0.0/8 or 2001:db8::/32. Bits behind the prefix are
// ignored, as in Envoy's CidrRange.
//
//go:noinline
func ParsePrefix(text string) (p Prefix, ok bool) {
	at := strings.LastIndexByte(text, '/')
	if at < 0 {
		return p, false
	}
	if p.v4, ok = parseAddress([]byte(text[:at]), &p.address); !ok {
		return p, false
	}
	digits, most := text[at+1:], 128
	// An IPv4 address written as IPv6 has the prefix lengths of IPv6.
	if mapped := strings.IndexByte(text, ':') >= 0; p.v4 && mapped {
		p.address[10], p.address[11], p.v4 = 0xff, 0xff, false
	} else if p.v4 {
		most = 32
	}
	if digits == "" || len(digits) > 1 && digits[0] == '0' {
		return p, false // some programs read a leading zero as octal
	}
	for i := range len(digits) {
		d := digits[i] - '0'
		if d > 9 {
			return p, false
		}
		if p.bits = 10*p.bits + int(d); p.bits > most {
			return p, false
		}
	}
	if !p.v4 && p.bits >= 96 && mapped(&p.address) {
		p.v4, p.bits = true, p.bits-96
	}
	if p.v4 {
		clear(p.address[:12])
		Mask(p.address[12:], p.bits)
	} else {
		Mask(p.address[:], p.bits)
	}
	return p, true
}

// ParseAddress reads an address such as 10.0.0.1 or 2001:db8::1 as the network of this address alone.
func ParseAddress(text string) (p Prefix, ok bool) {
	if strings.IndexByte(text, '/') >= 0 {
		return p, false
	}
	if strings.IndexByte(text, ':') >= 0 {
		return ParsePrefix(text + "/128")
	}
	return ParsePrefix(text + "/32")
}

// In reports whether an address, written as for [Network], is in at least one of the networks.
// memory is for In to use.
//
//go:noinline
func In(source []byte, networks []Prefix, memory *[16]byte) bool {
	v4, ok := parseSource(source, memory)
	for i := range networks {
		if ok && v4 == networks[i].v4 && networks[i].has(memory, v4) {
			return true
		}
	}
	return false
}

func (p *Prefix) has(address *[16]byte, v4 bool) bool {
	at := 0
	if v4 {
		at = 12
	}
	bits := p.bits
	for ; bits >= 8; bits -= 8 {
		if address[at] != p.address[at] {
			return false
		}
		at++
	}
	return bits == 0 || (address[at]^p.address[at])>>(8-bits) == 0
}

// Mask clears all but the first bits of an address.
func Mask(address []byte, bits int) {
	for i := range address {
		switch left := bits - 8*i; {
		case left <= 0:
			address[i] = 0
		case left < 8:
			address[i] &= 0xff << (8 - left)
		}
	}
}
