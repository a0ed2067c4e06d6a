package pattern_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/pattern"
)

// longest is about as long a path as Envoy takes.
const longest = 55_000

// hostile are expressions that rules have or that an attacker would wish for, each with the texts
// that are dear to it.
func hostile() (cases []hostileCase) {
	r := rand.New(rand.NewPCG(1, 2))
	var coins strings.Builder
	for range longest - 1 {
		coins.WriteByte("xy"[r.IntN(2)])
	}
	words := strings.Repeat("login/signup-reset+", longest/19)
	var ten []string
	for _, word := range []string{"login|signup|reset", "admin|root|sudo", "cart|order|pay", "v1|v2|v3", "search|find|list", "img|css|js", "graph|query|ql", "hook|event|push", "user|team|org", "export|report|csv"} {
		ten = append(ten, "/[^?]*("+word+")[^?]*/?")
	}
	return []hostileCase{
		{"one", ten[:1], "/" + strings.Repeat("a", longest-1)},
		{"ten", ten, "/" + strings.Repeat("a", longest-1)},
		{"ten words", ten, "/" + words},
		{"ten beyond ASCII", ten, "/" + strings.Repeat("é", longest/2)},
		{"ten invalid", ten, "/" + strings.Repeat("\xc3", longest-1)},
		{"ten hangul", ten, "/" + strings.Repeat("한", longest/3)},
		{"commas none", []string{"/([a-z]*,?[a-z]*){100}x"}, "/" + strings.Repeat("a", longest-1)},
		{"commas rare", []string{"/([a-z]*,?[a-z]*){100}x"}, "/" + strings.Repeat(strings.Repeat("a", 600)+",", longest/601)},
		{"states small", []string{"/[xy]*x[xy]{20}z"}, "/" + coins.String()},
		{"states large", []string{"/[xy]*x[xy]{500}z"}, "/" + coins.String()},
		{"states optional", []string{"/[xy]*x[xy]{0,500}z"}, "/" + coins.String()},
		{"words", []string{`/(?:.*\b(?:x|y)\b)*z`}, "/" + words},
	}
}

type hostileCase struct {
	name  string
	exprs []string
	text  string
}

// BenchmarkHostile matches a text against all expressions of a case.
func BenchmarkHostile(b *testing.B) {
	for _, c := range hostile() {
		var patterns []*pattern.Pattern
		for _, expr := range c.exprs {
			p := must.Get(pattern.Compile(expr))(b)
			patterns = append(patterns, p)
		}
		text := []byte(c.text)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, p := range patterns {
					p.Matches(text)
				}
			}
		})
	}
}
