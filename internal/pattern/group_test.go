package pattern_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/pattern"
)

// A group takes what package regexp takes, of random expressions and texts. An empty part counts as absent.
func TestGroup(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var expression func(depth int) string
	expression = func(depth int) string {
		if depth == 0 {
			return []string{"a", "b", "-", "[ab]", "[^-]", ".", "\\b", "^", "$", "(?i:A)"}[r.IntN(10)]
		}
		switch r.IntN(6) {
		case 0:
			return "(?:" + expression(depth-1) + "|" + expression(depth-1) + ")"
		case 1:
			return "(?:" + expression(depth-1) + ")" + []string{"*", "+", "?", "{2}", "{1,3}", "{2,}"}[r.IntN(6)]
		case 2:
			return "[ab-]" + []string{"*", "+", "?"}[r.IntN(3)]
		}
		return expression(depth-1) + expression(depth-1)
	}
	taken, none := 0, 0
	for range 3000 {
		group := "(" + expression(r.IntN(3)) + ")"
		if r.IntN(3) == 0 {
			group += []string{"*", "+", "?", "{1,2}"}[r.IntN(4)]
		}
		expr := expression(r.IntN(3)) + group + expression(r.IntN(3))
		if r.IntN(4) == 0 {
			expr = expression(1) + "|" + expr
		}
		g, err := pattern.CompileGroup(expr)
		if err != nil {
			continue // more than the bounds, or a repetition of a repetition
		}
		re := regexp.MustCompile("^(?:" + expr + ")$")
		for range 30 {
			var text strings.Builder
			for range r.IntN(9) {
				text.WriteString([]string{"a", "b", "-", "A", "\n", "é", "\xff"}[min(r.IntN(20)/3, 6)])
			}
			want := append(re.FindStringSubmatch(text.String()), "", "")[1]
			if got, _ := g.Of([]byte(text.String())); string(got) != want {
				t.Errorf("%q of %q: got %q, want %q", expr, text.String(), got, want)
				break
			}
			if want != "" {
				taken++
			} else {
				none++
			}
		}
	}
	must.AtLeast(t, taken, 500, "parts that are taken")
	must.AtLeast(t, none, 3000, "parts that are not there")
}

func TestGroups(t *testing.T) {
	for _, c := range []struct{ expr, text, want string }{
		{"Bearer (.+)", "Bearer x.y", "x.y"},
		{"Bearer (.+)", "Basic x", ""},
		{"tenant-([0-9]+)-.*", "tenant-42-7-8", "42"},
		{".*@([^@]+)", "a@b@c", "c"},
		{"/v1/(?P<org>[^/]+)(?:/.*)?", "/v1/acme", "acme"},
		{"(?:x|(y))z", "xz", ""},
		{"(a|ab)(?:c|bcd)", "abcd", "a"},
		{"(.*)", strings.Repeat("x", pattern.MaxGroupText+1), ""},
	} {
		g := must.Get(pattern.CompileGroup(c.expr))(t)
		got, _ := g.Of([]byte(c.text))
		must.Equal(t, string(got), c.want, "%s of %s", c.expr, c.text)
		if n := testing.AllocsPerRun(10, func() { g.Of([]byte(c.text)) }); n > 0 && len(c.text) < 33 {
			t.Errorf("%s: %v allocations", c.expr, n)
		}
	}
	for expr, want := range map[string]string{
		"a": "one with other than one group", "(a)(b)": "one with other than one group", "(a": "is not closed", "(a+?)": "a lazy +?",
		"(?U:a*)(b)": "a lazy *", "([ab]{100}){5}": "larger than 256 instructions",
	} {
		_, err := pattern.CompileGroup(expr)
		must.Contains(t, fmt.Sprint(err), want, "%s", expr)
	}
}
