package wire

import (
	"bytes"
	"cmp"
)

// Kinds of values in an override of many keys, by their first byte: a value of each such key is the
// rest, or begins or ends with it, or is an address of this network.
const (
	Exactly   = '='
	ByPrefix  = '^'
	BySuffix  = '$'
	ByNetwork = '/'
)

// MaxPatterns is the most different patterns of a rule: each is a search for the rule's requests.
const MaxPatterns = 64

// Texts returns the values without their kinds.
func (o *Override) Texts() (texts []string) {
	if o.Mode != OfKeys {
		return o.Values
	}
	for _, v := range o.Values {
		texts = append(texts, v[min(1, len(v)):])
	}
	return texts
}

// Pattern says which part of a key's value makes it one of the keys of an override, and how much of
// it. Overrides with other texts of this length have the same pattern.
type Pattern struct {
	Kind byte
	Part uint8
	V6   bool // of a network
	Bits uint16
}

// PatternOf returns the pattern of the values of an override of many keys. ok is false unless exactly
// one of them has one.
func PatternOf[T ~string | ~[]byte](values []T) (p Pattern, ok bool) {
	for i, v := range values {
		if len(v) == 0 || p.Kind != 0 && v[0] != Exactly {
			return p, false
		}
		switch v[0] {
		case Exactly:
			continue
		case ByPrefix, BySuffix:
			p.Bits = uint16(8 * (len(v) - 1))
		case ByNetwork:
			text := []byte(v)
			at := bytes.LastIndexByte(text, '/')
			for _, c := range text[at+1:] {
				if p.Bits = 10*p.Bits + uint16(c-'0'); c < '0' || c > '9' || p.Bits > 128 {
					return p, false
				}
			}
			p.V6 = bytes.IndexByte(text, ':') >= 0
			if at == 0 || at == len(text)-1 || !p.V6 && p.Bits > 32 {
				return p, false
			}
		default:
			return p, false
		}
		p.Kind, p.Part = v[0], uint8(i)
	}
	return p, p.Kind != 0
}

// Compare orders patterns: the longest is the first, and applies.
func (p Pattern) Compare(other Pattern) int {
	order := cmp.Or(cmp.Compare(other.Bits, p.Bits), cmp.Compare(p.Kind, other.Kind), cmp.Compare(p.Part, other.Part))
	switch {
	case order != 0 || p.V6 == other.V6:
		return order
	case p.V6:
		return 1
	}
	return -1
}

// Fits reports whether values can have the pattern that are as [RuleShape.Key] says.
func (p Pattern) Fits(key []byte) bool {
	if 2*int(p.Part)+1 >= len(key) {
		return false
	}
	v4, v6 := key[2*p.Part], key[2*p.Part+1]
	if p.Kind != ByNetwork {
		return v4|v6 == 0
	}
	bits := v4
	if p.V6 {
		bits = v6
	}
	return v4|v6 != 0 && p.Bits <= uint16(bits)
}
