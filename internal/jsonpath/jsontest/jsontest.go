// Package jsontest has JSON, and texts that are nearly JSON, for tests of parsers.
package jsontest

import "iter"

// valid has JSON of the classes that RFC 8259 and the names of JSONTestSuite (github.com/nst/JSONTestSuite) have:
// structures, white space, numbers, strings and their escapes, encodings.
var valid = []string{
	`[]`, `{}`, `[[]]`, `[{}]`, `{"":{}}`, `[null,true,false]`, `["a",1,{"b":[2]}]`, " [\t1\r,\n2 ] ", "{ \"a\" :\t1 , \"a\" : 2 }", `{"a":{"a":{"a":[]}}}`,
	`[0]`, `[-0]`, `[0.1]`, `[-1.5]`, `[1e1]`, `[1E+1]`, `[1e-1]`, `[0e0]`, `[-0.0e-0]`, `[123456789012345678901234567890]`, `[1e9999]`, `[123.456e-789]`, `[20,0.5e5,-7]`,
	`[""]`, `["\"\\\/\b\f\n\r\t"]`, `["\u0000"]`, `["\u00e9\uABCD\uabcd"]`, `["\ud83d\ude00"]`, `["\uDADA"]`, `["\uD888\u1234"]`, `["\uDFAA"]`, `["\u005c\u0022"]`, `{"\uDFAA":0}`, `{"\u0061":1}`,
	"[\"\u00e9\u20ac\U0001f600\u2028\u007f\"]", "[\"\xff\xed\xa0\x80\xc0\xaf\"]", `["/*no comment*/"]`, `["//"]`, `{"a":"b","c":["d",{"e":null}],"f":-1.0e+2}`,
}

// inserted are texts that stand somewhere in JSON, or nowhere.
var inserted = []string{
	`"`, `\`, `,`, `:`, `[`, `]`, `{`, `}`, " ", "\n", "\x00", "\x1f", "\ufeff", "\xff", "0", "9", "-", "+", ".", "e", "E", "t", "u", "n", "/", "'", "#", "\v", "\u00a0",
	"NaN", "null", "//", "/**/", `\u`, `\x`,
}

// Texts returns JSON of all classes, and each of these cut and changed at each place.
func Texts() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, text := range valid {
			if !yield(text) {
				return
			}
			for at := range len(text) + 1 {
				before, after := text[:at], text[at:]
				changed := []string{before}
				rest := after
				if after != "" {
					rest = after[1:]
					changed = append(changed, before+rest, before+after[:1]+after)
				}
				for _, other := range inserted {
					changed = append(changed, before+other+after, before+other+rest)
				}
				for _, text := range changed {
					if !yield(text) {
						return
					}
				}
			}
		}
	}
}
