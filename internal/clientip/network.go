// Package clientip reads clients' addresses, and says which network counts. It is apart so that a
// program's keys are those of the plugin.
//
// Addresses are read here, and not by net/netip, because that would make the plugin larger by a
// tenth of a megabyte.
package clientip

import "bytes"

// Network returns the part of a key that an address such as 10.0.0.1:1234, 10.0.0.1 or
// [2001:db8::1]:1234 gives: the 4 or 16 bytes of the address, all but its first prefix4 or prefix6
// bits cleared. They are in memory. A zone, as in [fe80::1%eth0]:1234, does not count: it is the
// proxy's name for a link, and may differ from proxy to proxy. If the text is no IP address, such as
// the path of a Unix socket, the part is the text as it stands.
//
//go:noinline
func Network(source []byte, prefix4, prefix6 int, memory *[16]byte) []byte {
	text := source
	if i := bytes.LastIndexByte(text, ':'); i > 0 && (text[i-1] == ']' || bytes.IndexByte(text, ':') == i) {
		text = text[:i]
	}
	if n := len(text); n > 2 && text[0] == '[' && text[n-1] == ']' {
		text = text[1 : n-1]
	}
	if i := bytes.IndexByte(text, '%'); i >= 0 {
		text = text[:i] // a zone
	}
	v4, ok := parseAddress(text, memory)
	if !ok {
		return source
	}
	network, prefix := memory[:], prefix6
	if v4 {
		network, prefix = memory[12:], prefix4
	}
	mask(network, prefix)
	return network
}

// mask clears all but the first bits.
func mask(address []byte, bits int) {
	for i := range address {
		switch left := bits - 8*i; {
		case left <= 0:
			address[i] = 0
		case left < 8:
			address[i] &= 0xff << (8 - left)
		}
	}
}
