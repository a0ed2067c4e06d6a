package wire

const (
	// MaxName is the length of the longest name of a rule.
	MaxName = 64
	// MaxNamespace is the length of the longest namespace.
	MaxNamespace = 64
)

// IsName reports whether a text can name a rule: 1 to MaxName of A-Za-z0-9_-. People read names on
// terminals and in metrics.
func IsName(text string) bool { return consists(text, MaxName, IsNameByte) }

// IsNamespace reports whether a text can name a namespace: 1 to MaxNamespace of A-Za-z0-9._-, so
// that it may be a host's name.
func IsNamespace(text string) bool { return consists(text, MaxNamespace, IsNamespaceByte) }

// IsNameByte reports whether a byte may be in the name of a rule. A dot may not, because the second
// limit of a rule is NAME.2 in the fields of answers.
func IsNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// IsNamespaceByte reports whether a byte may be in a namespace.
func IsNamespaceByte(c byte) bool { return IsNameByte(c) || c == '.' }

func consists(text string, most int, ok func(byte) bool) bool {
	for i := range len(text) {
		if !ok(text[i]) {
			return false
		}
	}
	return text != "" && len(text) <= most
}
