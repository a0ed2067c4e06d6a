package convert

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"weir/internal/must"
)

// Every text belongs to one of the classes, and the example of a class fulfils what the class does.
func TestClassesHoldAllTexts(t *testing.T) {
	t.Parallel()
	texts := []text{
		{prefix, "/a"}, {exact, "/a/b"}, {regex, `.*\.(gif|png)`}, {regex, `(?i)/A/.*b`}, {suffix, "b"}, {regex, `/\bab\b.*`}, {regex, "/[^a]+"}, {regex, "(?:.*a$)|.*^/b"},
	}
	classes, ok := classesOf(texts, "/", "?")
	must.EqualOrEnd(t, ok, true, "too much work")
	holds := func(of string) (all []bool) {
		for _, t := range texts {
			all = append(all, t.matches(of))
		}
		return all
	}
	for _, c := range classes {
		must.Same(t, holds(c.example), c.holds, "%q fulfils", c.example)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		of := "/" + randomText(random, "aAb/.gifpn", 8)
		if !slices.ContainsFunc(classes, func(c class) bool { return slices.Equal(c.holds, holds(of)) }) {
			t.Fatalf("%q belongs to no class", of)
		}
	}
}

func randomText(random *rand.Rand, of string, most int) string {
	var b strings.Builder
	for range random.IntN(most + 1) {
		b.WriteByte(of[random.IntN(len(of))])
	}
	return b.String()
}

// The expressions for what does not begin, or end, with some texts hold for exactly that.
func TestExpressionsOfTheRest(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 60 {
		var paths []text
		var endings []string
		for range 1 + random.IntN(4) {
			kind := exact
			if random.IntN(2) == 0 {
				kind = prefix
			}
			paths = append(paths, text{kind, "/a" + randomText(random, "ab-^.", 3) + "a"})
			endings = append(endings, "."+randomText(random, "ab]", 3))
		}
		without, withQuery := without("/a", paths, false), without("/a", paths, true)
		expr, _ := before("", endings)
		notEnding := text{regex, expr}
		for range 60 {
			of := "/" + randomText(random, "ab-^.]", 6)
			begins := strings.HasPrefix(of, "/a") && !slices.ContainsFunc(paths, func(t text) bool { return t.matches(of) })
			if without.matches(of) != begins || withQuery.matches(of+"?q") != begins || withQuery.matches(of) != begins {
				t.Fatalf("%q, but for %v: want %t of %v and %v", of, paths, begins, without, withQuery)
			}
			if ends := slices.ContainsFunc(endings, func(end string) bool { return strings.HasSuffix(of, end) }); notEnding.matches(of) == ends {
				t.Fatalf("%q, with the endings %q: %v", of, endings, notEnding)
			}
		}
	}
}
