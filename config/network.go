package config

import "strings"

// isNetwork accepts an address of either family and its prefix length, 10.0.0.0/8; bits behind the
// prefix don't matter, as in Envoy's CidrRange. net/netip would do, and add 140 KB to the plugin.
func isNetwork(text string) bool {
	address, prefix, _ := split(text, '/')
	switch {
	case isIPv4(address):
		return isDecimal(prefix, 32)
	case isIPv6(address):
		return isDecimal(prefix, 128)
	}
	return false
}

// isDecimal accepts whole numbers up to most, without leading zeros: some read those as octal.
func isDecimal(text string, most int64) bool {
	n, ok := natural(text, 10)
	return ok && n <= most && (text[0] != '0' || text == "0")
}

func isIPv4(text string) bool {
	for n := 1; ; n++ {
		part, rest, more := split(text, '.')
		if !isDecimal(part, 255) {
			return false
		}
		if !more {
			return n == 4
		}
		text = rest
	}
}

// isIPv6 accepts the forms of RFC 4291, 2.2.
func isIPv6(text string) bool {
	groups := 8
	if i := strings.LastIndexByte(text, ':'); i >= 0 && isIPv4(text[i+1:]) {
		text = text[:i+1] + "0"
		groups = 7
	}
	for i := range len(text) - 1 {
		if text[i] == ':' && text[i+1] == ':' {
			n := groupCount(text[:i]) + groupCount(text[i+2:])
			// groupCount is far below 0 for what is no group.
			return 0 <= n && n < groups
		}
	}
	return text != "" && groupCount(text) == groups
}

// groupCount returns how many groups of hexadecimal digits the text has, and -8 if it has anything
// else.
func groupCount(text string) int {
	if text == "" {
		return 0
	}
	for n := 1; ; n++ {
		group, rest, more := split(text, ':')
		if _, ok := natural(group, 16); !ok || len(group) > 4 {
			return -8
		}
		if !more {
			return n
		}
		text = rest
	}
}
