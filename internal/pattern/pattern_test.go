package pattern_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"
	"unicode/utf8"

	"weir/internal/must"
	"weir/internal/pattern"
)

// expressions are the corners of the syntax. Those that package regexp refuses must be refused.
var expressions = []string{
	"", "a", "abc", "a|b", "a|", "|a", "|", "a||b", "(a|b)|c", "a|b|cd|e", "(?:foo|foobar|)baz",
	"a*", "a+", "a?", "a*?", "a+?", "a??", "(ab)*", "(a*)*", "(a*)+", "(a|b*)*c", "(|a)*", "(|a)+", "()", "()*", "()+", "(){3}", "((a?)?)?",
	"a{0}", "a{0}b", "a{1}", "a{2}", "a{2,}", "a{2,3}", "a{0,2}", "a{0,}", "a{2}?", "a{2,}?", "a{1,3}?", "(ab|c){2,3}d", "a{", "a{}", "a{,2}", "a{2,1}",
	"a{1001}", "a{1000}", "a{01}", "a{2", "a{2,", "a{2,x}", "a{99999999999}", "{", "{2}", "{,2}", "}", "a{2}{3}", "a**", "a*?+", "a+*", "a{2}*", "(a{2}){3}",
	"(a*)?", "a|*", "*", "+a", "(*)", "(?i)*", "a(?i)*", "a*(?i)*", "ab*", `\Qab\E*`, `\Q\E*`, `a\Q\E*`, `\Qa.b`, `\Qa\Eb\E`, `\Q*\Q\E`, `a\E`, `(\Q)\E)`,
	".", "..", "(?s).", ".*", "(?s).*", "a.*b", ".*a.*b", "(?s:.)x.", "(?s).(?-s).", "(?s-s).",
	"[a]", "[abc]", "[a-c]", "[^a-c]", "[]a]", "[^]a]", "[]-a]", "[a-]", "[-a]", "[a-c-e]", "[a-b-c]", "[--a]", "[+--]", "[a\\]]", `[\d]`, `[\D]`, `[^\D]`, `[\d\s]`, `[^\w]`, `[\w-]`, `[\w-z]`,
	`[a-\d]`, "[", "[a", "[]", "[^]", "[^", `[\`, `[\x`, "[c-a]", "[[]", "[[:]", "[[:a", "[[:alpha:]]", "[[:^alpha:]]", "[^[:alpha:]]", "[[:alpha:][:digit:]_]", "[[:foo:]]", "[[::]]", "[[:^:]]", "[[:d:]]", "[:alpha:]", "[[:w:]]",
	"[[:alnum:]]", "[[:ascii:]]", "[[:^ascii:]]", "[[:blank:]]", "[[:cntrl:]]", "[[:digit:]]", "[[:graph:]]", "[[:lower:]]", "[[:print:]]", "[[:punct:]]", "[[:space:]]", "[[:upper:]]", "[[:word:]]", "[[:xdigit:]]", "[[:^xdigit:]]",
	`[^\x00-\x{10FFFF}]`, `[\x00-\x{10FFFF}]`, `[é-ü]`, `[^é]`, `[\n]`, `[^\n]`, `[\b]`, `[\A]`, `[\Qa]`, `[a-\x{7a}]`, `[\-a]`, `[a\-z]`,
	`\d`, `\D`, `\w`, `\W`, `\s`, `\S`, `\d+\.\d+`, `\s*\w+\s*`,
	`\ba`, `\b`, `\B`, `\bab\b`, `\b.+\b`, `a\b b`, `a\Bb`, `\B\B`, `(\b)*a`, `(?:\b|a)*`, `(?:\B|a)+b`, `.\b.`, `é\b`, `\bé`, `(a\b|b)*`,
	"^", "$", "^$", "^a$", "a^b", "a$b", "(^a|b)*", "(a$|b)*", "(?m)^a$", "(?m)a$\n^b", "(?m)(^.*$\n?)*", "(?m)a\n^", "a\n^", "(?m)$\n", "^*", "^+a", "$?", `\Aa\z`, `a\A`, `\za`, `a\Z`, "(?m:^)a", "(?m)(?-m)a\n^b",
	"(?i)a", "(?i)abc", "(?i)k", "(?i)s", "(?i)K", "(?i)[a-z]", "(?i)[^a-z]", "(?i)[k]", "(?i)[^k]", "(?i)[s-t]", `(?i)\w`, `(?i)\W`, "(?i)[[:lower:]]", "(?i)[[:^upper:]]", `(?i)[\W]`, `(?i)[^\W]`, "(?i)\u212a", "(?i)\u017f", "(?i)[\u212a]", "(?i)[\u017fx]",
	"(?i)1", "(?i)_", "(?i)[Z-a]", "(?i)[@-\\[]", `(?i)\Qab\E`, `(?i)\x61`, `(?i)\x{4b}`, "a(?i)b", "a(?i:b)c", "(?i:a)b", "(?i:a(?-i)b)c", "(a(?i)b|c)d", "a(?i)b|c", "(?i)a(?-i)b", "(?i)é", "(?i)[à-ü]", `(?i)[\x{80}-\x{10FFFF}]`, `(?i)[^\x00-\x7F]`, `(?i)[\x00-\x{10FFFF}]`, `(?i)[a-\x{10FFFF}]`, "(?i)😀", "(?i)\ufffd",
	"(a)", "(?:a)", "(?P<n>a)", "(?<n>a)", "(?P<n>a)(?P<n>b)", "(?P<1_x>a)", "(?P<>a)", "(?P<n", "(?P<n>", "(?P<n>a", "(?P<é>a)", "(?P=n)", "(?P>n)", "(?P", "(?P<n!>a)", "(?<n", "(?'n'a)",
	"(", ")", "(a", "a)", "(a))", "((a)", "a)(b", "(?", "(?:", "(?i", "(?i:", "(?)", "(?)a", "(?-)", "(?-:a)", "(?i-:a)", "(?--i)", "(?i-s)a", "(?i-s:a.)b", "(?ims-U)a", "(?U)a*", "(?U:a*?)", "(?x)a", "(?i-i)a", "(?is", "(?#a)", "(?-i-s)a",
	"(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?|a)", "a(?=b)", "a++",
	`\1`, `(a)\1`, `\8`, `\9`, `\0`, `\01`, `\012`, `\0123`, `\12`, `\123`, `\1234`, `\18`, `\400`, `\777`, `\08`,
	`\x41`, `\x4`, `\x`, `\xg1`, `\x1g`, `\x{41}`, `\x{}`, `\x{`, `\x{4`, `\x{0000041}`, `\x{10FFFF}`, `\x{110000}`, `\x{FFFFFFFFFFFF}`, `\x{d800}`, `\x{fffd}`, `\x{FFFD}a`, `a\x{fffd}`, "\ufffd", "\\x\u00e9", `[\x{d800}-\x{dfff}]`,
	`\a\f\n\r\t\v`, `\.`, `\*`, `\_`, `\-`, `\/`, `\"`, `\ `, `\é`, `\q`, `\y`, `\e`, `\G`, `\K`, `\R`, `\X`, `\h`, `\c`, `\u0041`, `\`, `a\`, `\\`, "\\\n", `\E`,
	`\pL`, `\p{Greek}`, `\PL`, `[\pL]`, `\p`, `\p{`, `\p{^L}`, `\C`, `[\C]`,
	"é", "日本", "é*", "(é|日)+", "[日-本]", "\xff", "a\xff", "[\xff]", "\\\xff", `\Q` + "\xff", "(?P<\xff>a)", "(\xff", `\x{` + "\xff", "(?\xff)",
	"/api/v[0-9]+/users/.*", "/(?:a|b)/[^/]+", `(?:\d{1,3}\.){3}\d{1,3}`, "[a-z]+(-[a-z]+)*", ".*(a|b).*(c|d).*", "(a+)+b", "(a|aa)+", "(x+x+)+y", "((((((a*)*)*)*)*)*)*b",
}

var texts = []string{
	"", "a", "b", "c", "d", "ab", "ba", "aa", "aaa", "aaaa", "abc", "abab", "ababab", "cd", "abcd", "foobaz", "foobarbaz", "baz", "bbb", "aab", "aaab", "bac", "acd", "ccd", "ababd", "aabb", "abbb",
	"\n", "a\n", "\na", "a\nb", "a\nb\n", "\n\n", "a\n\nb", "\r\n", "\t", " ", "\v", "\f", "a b", " a ", "ab cd", "a-b", "a.b", "-", "]", "[", "^", "{", "}", "a{", "a{}", "a{,2}", "a{01}", "a{2", "{,2}", "a{2,x}", "\\", "*", "\"", "/", "_", "@", "`", "|", ")", "(", "+", ",", ".",
	"A", "B", "AB", "aB", "Ab", "ABC", "aBC", "abC", "K", "k", "S", "s", "\u212a", "\u017f", "t", "T", "Z", "z", "x", "X", "y", "xxxy", "xxxx",
	"é", "É", "à", "日", "本", "日本", "éé", "é日", "aé", "éa", "é.", "😀", "\ufffd", "\ufffda", "a\ufffd", "\u0080", "\u00ff", "\U0010ffff", "\ue000",
	"\xff", "\xffa", "a\xff", "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80", "\xe6\x97", "é\xff", "\xff\xff",
	"0", "1", "7", "10", "1.5", "192.168.0.1", "\x00", "\x01", "\n3", "S4", "\x01a", "\x018", "\x008", "\x00\x38", "\x7f", "\u0100", "\u01ff", "\a\f\n\r\t\v",
	"/api/v12/users/ann", "/api/v/users/", "/a/x", "/b/x/y", "ab-cd-ef", "ab--cd", "xaxcx", "xbxdx", strings.Repeat("a", 1000), strings.Repeat("a", 1001), "a\nbb\nccc", "a.", "ax", "\nx\n", "\nx.",
}

// like holds an expression against package regexp, and reports whether both take it.
func like(t testing.TB, expr string, texts ...[]byte) bool {
	t.Helper()
	p, err := pattern.Compile(expr)
	_, wrong := syntax.Parse(expr, syntax.Perl)
	if wrong != nil {
		var mistake *syntax.Error
		// The sizes that package regexp bounds are its own.
		own := errors.As(wrong, &mistake) && (mistake.Code == syntax.ErrInvalidRepeatSize || mistake.Code == syntax.ErrNestingDepth || mistake.Code == syntax.ErrLarge)
		if err == nil && !own {
			t.Errorf("%q is taken; package regexp: %v", expr, wrong)
		}
		return false
	}
	if err != nil {
		must.Equal(t, documented(expr, err), true, "%q: %v", expr, err)
		return false
	}
	// Whether all of a text matches is asked in two ways, as a quotation may have no end.
	re := regexp.MustCompile(expr)
	re.Longest()
	if !strings.Contains(expr, `\Q`) {
		re = regexp.MustCompile(`\A(?:` + expr + `)\z`)
	}
	// The first of these two keeps what it learns, and the other thrashes.
	tight, _ := pattern.Compile(expr)
	tight.Tighten(100)
	for _, text := range texts {
		found := re.FindIndex(text)
		want := found != nil && found[0] == 0 && found[1] == len(text)
		for try, p := range [...]*pattern.Pattern{p, tight, p, tight} {
			must.Equal(t, p.Matches(text), want, "%q matches %q, try %d", expr, text, try)
		}
	}
	return true
}

// documented reports whether Compile may refuse an expression that package regexp takes.
func documented(expr string, err error) bool {
	problem := err.Error()
	switch {
	case len(expr) > pattern.MaxExpression:
		return strings.HasPrefix(problem, "more than 4096 bytes")
	case strings.Contains(problem, "a class of Unicode, which is not supported"):
		return strings.Contains(expr, `\p`) || strings.Contains(expr, `\P`)
	case strings.Contains(problem, "where case is ignored, which is not supported"):
		return strings.Contains(expr, "i") && (strings.Contains(expr, `\`) || strings.ContainsFunc(expr, func(r rune) bool { return r >= utf8.RuneSelf }))
	case strings.HasPrefix(problem, "a surrogate at"):
		return strings.Contains(strings.ToLower(expr), "d")
	case strings.Contains(problem, "larger than 2048 instructions"):
		return strings.Contains(expr, "{") || len(expr) > 1000
	}
	return strings.Contains(problem, "in more than 100 others")
}

func TestLikeRegexp(t *testing.T) {
	t.Parallel()
	var all [][]byte
	for _, text := range texts {
		all = append(all, []byte(text))
	}
	taken := 0
	for _, expr := range expressions {
		if like(t, expr, all...) {
			taken++
		}
	}
	t.Logf("%d of %d expressions are taken", taken, len(expressions))
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"a)":                       `a ) at byte 2 that closes nothing`,
		"a(b":                      `a ( at byte 2 that is not closed`,
		"(?i":                      `a ( at byte 1 that is not closed`,
		"a|*":                      `a * at byte 3 with nothing to repeat`,
		"a*{2}":                    `a {2} at byte 3 that repeats a repetition`,
		"a{1001}":                  `a {1001} at byte 2 that repeats more than 1000 times`,
		"a{3,2}":                   `a {3,2} at byte 2 whose ends are the wrong way round`,
		"x[a":                      `a [ at byte 2 that is not closed`,
		"[xb-a]":                   `a range at byte 3 whose ends are the wrong way round`,
		"[[:x:]]":                  `a [:name:] at byte 2 whose name is not that of a class`,
		`\pL`:                      `\p at byte 1, a class of Unicode, which is not supported`,
		`a[\P{Greek}]`:             `\P at byte 3, a class of Unicode, which is not supported`,
		`\C`:                       `\C at byte 1, a byte of a character, which is not supported`,
		`(a)\1`:                    `\1 at byte 4, a backreference, which RE2 does not have`,
		`a(?=b)`:                   `lookaround at byte 2, which RE2 does not have`,
		`(?<!a)b`:                  `lookaround at byte 1, which RE2 does not have`,
		`(?P<a-b>c)`:               `a group at byte 1 whose name is not made of letters, digits and _, in < and >`,
		`(?x)a`:                    `a (? at byte 1 with neither flags of i, m, s and U, nor a name, nor a :`,
		`\xzz`:                     `a \x at byte 1 that is neither \x7F nor \x{10FFFF}`,
		`[\x{dfff}]`:               `a surrogate at byte 2, which no text has`,
		`a\y`:                      `\y at byte 2, which is no escape`,
		`a\`:                       `a \ at byte 2 that nothing follows`,
		"a\xff":                    `a character at byte 2 that is not UTF-8`,
		"(?i)aé":                   `a character beyond ASCII at byte 6 where case is ignored, which is not supported`,
		"(?i)a[é]":                 `a character beyond ASCII at byte 7 where case is ignored, which is not supported`,
		"(a{1000}){1000}":          `something at byte 10 that makes the program larger than 2048 instructions`,
		strings.Repeat("a", 2048):  `something at byte 2048 that makes the program larger than 2048 instructions`,
		strings.Repeat("(", 4000):  `a group at byte 101 in more than 100 others`,
		strings.Repeat("\n", 4097): `more than 4096 bytes`,
	} {
		p, err := pattern.Compile(expr)
		must.Equal(t, fmt.Sprint(err), want, "%.20q", expr)
		must.Equal(t, p, nil, "%.20q: pattern", expr)
	}
}

func TestMatchesAllocatesNothing(t *testing.T) {
	for _, expr := range []string{"/api/users", "/api/.*", "(?i)[a-z/]+", `(?:\b\w+\b/?)*`, "(x+x+)+y", "(?:a?){200}a{200}"} {
		p := must.Get(pattern.Compile(expr))(t)
		for _, text := range [][]byte{[]byte("/api/users"), []byte(strings.Repeat("xa", 1000))} {
			must.Equal(t, testing.AllocsPerRun(100, func() { p.Matches(text) }), 0, "%s: allocations", expr)
		}
	}
}

// TestStepsWrap wants a pattern that has matched for as long as a step has a number of its own to go
// on.
func TestStepsWrap(t *testing.T) {
	t.Parallel()
	p := must.Get(pattern.Compile("[a-c]*(?:x|y)+"))(t)
	for left := range uint32(12) {
		p.Wear(left)
		for range 3 {
			if !p.Matches([]byte("abcabxyx")) || p.Matches([]byte("abcxa")) {
				t.Errorf("%d steps before the last one it is another pattern", left)
			}
		}
	}
}

// A pattern that is said to fit learns no more than it has then, and a pattern that does not fit
// thrashes.
func TestFits(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]bool{
		"/a": true, "/[^?]*(login|signup|reset)[^?]*/?": true, "/([a-z]*,?[a-z]*){100}x": true, `(?i).*\b(bot|crawler|spider)\b.*`: true,
		`[a-z]{1,63}(\.[a-z]{1,63}){1,10}`: true, "/[xy]*x[xy]{20}z": false, "/[xy]*x[xy]{0,500}z": false, "(?:.?){1000}": false,
	} {
		p := must.Get(pattern.Compile(expr))(t)
		must.Equal(t, p.Fits(), want, "%s fits", expr)
		if learned := p.Learned(); want {
			for _, text := range texts {
				p.Matches([]byte(text))
			}
			must.Equal(t, p.Learned(), learned, "%s: %d learned, and then", expr, learned)
		}
	}
}

// TestThrash wants a pattern that has no room for what texts come by to take no more steps than a
// simulation, and to learn little beside it.
func TestThrash(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, expr := range []string{"/[xy]*x[xy]{20}z?", "/[xy]*x[xy]{500}z?", `/[xy]*x\B[xy]{50}z?`} {
		p := must.Get(pattern.Compile(expr))(t)
		for _, size := range []int{50, 600, 55_000} {
			walked, learned, steps := 0, 0, p.Taken()
			texts := max(2, 60_000/size)
			for range texts {
				text := []byte("/")
				for range size {
					text = append(text, "xxxxyyyy"[r.IntN(8)])
				}
				if !p.Thrashed() { // or else the cache is emptied
					learned -= p.Learned()
				}
				p.Matches(text)
				learned += p.Learned()
				walked += len(text)
			}
			must.AtLeast(t, learned, 100, "%s: learned of %d texts of %d, which otherwise do not thrash", expr, texts, size)
			must.AtMost(t, p.Taken()-steps, walked+2*texts, "%s: steps for %d characters of %d texts", expr, walked, texts)
			// One filling, and a character for each eight that were simulated.
			must.AtMost(t, learned, 8_000+walked/8, "%s: learned of %d characters of %d texts", expr, walked, texts)
		}
	}
}

// FuzzLikeRegexp holds expressions and texts against package regexp.
func FuzzLikeRegexp(f *testing.F) {
	for i, expr := range expressions {
		f.Add(expr, []byte(texts[i%len(texts)]))
	}
	f.Fuzz(func(t *testing.T, expr string, text []byte) {
		if len(expr) > 1000 || len(text) > 1000 {
			t.Skip()
		}
		// Matches are rare: an expression's own bytes are a try.
		like(t, expr, text, []byte(expr), []byte(strings.Map(func(r rune) rune {
			if strings.ContainsRune(`\^$*+?()[]{}|`, r) {
				return -1
			}
			return r
		}, expr)))
	})
}

// FuzzHostile wants no expression and no text to panic, or to take more than is said.
func FuzzHostile(f *testing.F) {
	for _, expr := range expressions {
		f.Add(expr, "ab\n", uint16(1000))
	}
	f.Add("(a{1000}){1000}", "a", uint16(3))
	f.Add("((a{0,100}){0,10}){0,100}", "a", uint16(3))
	f.Add(strings.Repeat("(a?", 200), "a", uint16(65535))
	f.Fuzz(func(t *testing.T, expr, text string, length uint16) {
		p, err := pattern.Compile(expr)
		if err != nil {
			if p != nil || err.Error() == "" {
				t.Errorf("%q: %v, %v", expr, p, err)
			}
			return
		}
		if text == "" || len(text) > int(length) {
			text += "a"
		}
		hostile := []byte(strings.Repeat(text, int(length)/len(text)))
		p.Matches(hostile)
		// The step that finds the cache full is taken again.
		must.AtMost(t, p.Taken(), len(hostile)+2, "%q: steps for %d bytes", expr, len(hostile))
		must.AtMost(t, p.Instructions(), pattern.MaxProgram, "%q: instructions", expr)
		// A text that is simulated may have the next one learned again.
		for range 3 {
			p.Matches(hostile)
		}
		must.Equal(t, testing.AllocsPerRun(1, func() { p.Matches(hostile) }), 0, "%q: allocations", expr)
	})
}

func BenchmarkMatches(b *testing.B) {
	long := strings.Repeat("a", 64<<10)
	for _, c := range []struct{ name, expr, text string }{
		{"literal", "/api/v1/users", "/api/v1/users"},
		{"prefix", "/api/v1/.*", "/api/v1/users/4711/orders/0815"},
		{"segments", "/api/v[0-9]+/users/[^/]+/orders(?:/.*)?", "/api/v1/users/4711/orders/0815"},
		{"alternatives", "(?:GET|POST|PUT|DELETE) /(?:users|orders)/[0-9]+", "DELETE /orders/4711"},
		{"fold", "(?i)mozilla/[0-9.]+ .*bot.*", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"},
		{"hostile loops", "(x+x+)+y", strings.Repeat("x", 64<<10)},
		{"hostile program", "(?:a?){500}a{500}", long},
		{"largest program", "(?:.?){1000}", long},
		{"64 kB", "[a-z]*", long},
	} {
		p := must.Get(pattern.Compile(c.expr))(b)
		re := regexp.MustCompile(`\A(?:` + c.expr + `)\z`)
		text := []byte(c.text)
		b.Run(c.name+"/pattern", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Matches(text)
			}
		})
		b.Run(c.name+"/regexp", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				re.Match(text)
			}
		})
	}
}
