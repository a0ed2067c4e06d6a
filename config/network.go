package config

import (
	"strconv"
	"strings"
)

// isNetwork accepts an address of either family and its prefix length, 10.0.0.0/8; bits behind the prefix don't matter,
// as in Envoy's CidrRange. net/netip would do, and add 140 KB to the plugin.
func isNetwork(text string) bool {
	address, prefix, _ := strings.Cut(text, "/")
	switch {
	case isIPv4(address):
		return isDecimal(prefix, 32)
	case isIPv6(address):
		return isDecimal(prefix, 128)
	}
	return false
}

// isDecimal accepts whole numbers up to most, without leading zeros: some read those as octal.
func isDecimal(text string, most uint64) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n <= most && (text[0] != '0' || text == "0")
}

func isIPv4(text string) bool {
	parts := strings.Split(text, ".")
	for _, part := range parts {
		if !isDecimal(part, 255) {
			return false
		}
	}
	return len(parts) == 4
}

// isIPv6 accepts the forms of RFC 4291, 2.2.
func isIPv6(text string) bool {
	groups := 8
	if i := strings.LastIndexByte(text, ':'); i >= 0 && isIPv4(text[i+1:]) {
		text = text[:i+1] + "0"
		groups = 7
	}
	head, tail, short := strings.Cut(text, "::")
	n := groupCount(head) + groupCount(tail)
	if short {
		// groupCount is far below 0 for what is no group.
		return 0 <= n && n < groups
	}
	return n == groups
}

// groupCount returns how many groups of hexadecimal digits the text has, and -8 if it has anything else.
func groupCount(text string) int {
	if text == "" {
		return 0
	}
	groups := strings.Split(text, ":")
	for _, group := range groups {
		if _, err := strconv.ParseUint(group, 16, 16); err != nil || len(group) > 4 {
			return -8
		}
	}
	return len(groups)
}
