package config

import (
	"strings"

	"weir/internal/wire"
)

// isTokenByte reports whether a byte may occur in an HTTP token (RFC 9110, 5.6.2), such as a
// header's name.
func isTokenByte(c byte) bool {
	return wire.IsNameByte(c) || strings.IndexByte("!#$%&'*+.^`|~", c) >= 0
}

// isVisible reports whether a byte is printable ASCII other than a space.
func isVisible(c byte) bool { return ' ' < c && c < 0x7f }

// isPathByte reports whether a byte may occur in a request's path.
func isPathByte(c byte) bool { return isVisible(c) && c != '?' && c != '#' }

// isFieldByte reports whether a byte may occur in a header's value. HTTP allows tabs, but in a
// configuration they can only be mistakes.
func isFieldByte(c byte) bool { return c >= ' ' && c != 0x7f }

func all(text string, ok func(byte) bool) bool {
	for i := range len(text) {
		if !ok(text[i]) {
			return false
		}
	}
	return true
}

// made reports whether a text has least to most bytes, all of which are ok.
//
//go:noinline
func made(text string, least, most int, ok func(byte) bool) bool {
	return least <= len(text) && len(text) <= most && all(text, ok)
}

// maxHeaderName bounds the names of headers, query parameters, cookies and the like.
const maxHeaderName = 256

//go:noinline
func isToken(text string) bool { return made(text, 1, maxHeaderName, isTokenByte) }

// isRequestHeader accepts the names of request headers in Envoy's filters, pseudo-headers included.
//
//go:noinline
func isRequestHeader(name string) bool {
	switch name {
	case ":authority", ":method", ":path", ":scheme":
		return true
	}
	return isToken(name)
}

// These functions handle the ASCII of a configuration, where the standard library handles all of
// Unicode and is optimised for long texts. The library's functions would make the plugin some 40 KB
// larger.

// lower returns a text in lower case, if it is ASCII.
//
//go:noinline
func lower(text string) string {
	b := []byte(text)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func split(text string, separator byte) (before, after string) {
	i := strings.IndexByte(text, separator)
	if i < 0 {
		return text, ""
	}
	return text[:i], text[i+1:]
}
