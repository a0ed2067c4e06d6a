package usage_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/usage"
)

// searched are fields with all kinds of hints, by name.
func searched(t testing.TB) map[string]*usage.Fields {
	all := map[string]*usage.Fields{
		"a byte": fields(field(1, "n")), "two bytes": fields(field(1, "ab"), field(1, "aq")),
		"no ASCII": fields(field(1, "größe.füße"), field(1, "\xdf\xf4kens")), "many": fields(
			field(1, "tokens_total"), field(1, "zTotals"), field(1, "a_tally"), field(1, "quantity"), field(1, "aaaaaa"), field(1, "]uvwxyz")),
	}
	for i := range usage.Presets {
		p := &usage.Presets[i]
		all[p.Name] = fieldsOf(t, p, false)
		all[p.Name+", priced"] = fieldsOf(t, p, true)
	}
	return all
}

// Few passes find all hints: the hints of the providers begin alike.
func TestPasses(t *testing.T) {
	t.Parallel()
	all := searched(t)
	for name, want := range map[string]int{"openai": 1, "openai, priced": 3, "anthropic": 1, "gemini": 3, "auto": 3, "a byte": 2, "two bytes": 2} {
		must.Equal(t, all[name].Passes(), want, "%s: passes for %q", name, all[name].Hints())
	}
}

// sameSearch compares both searches of a text.
func sameSearch(t *testing.T, name string, f *usage.Fields, text []byte) {
	t.Helper()
	must.EqualOrEnd(t, f.MayBeIn(text), f.HintIn(text), "%s: %q in %q", name, f.Hints(), text)
	f.Passed(text, func(pass, got, want int) {
		t.Fatalf("%s: search %d comes to %d, want %d of %d bytes: %q", name, pass, got, want, len(text), text)
	})
}

// A hint is found wherever it begins and ends, and not beyond the end of the text. Texts have all
// lengths up to three words of a processor beyond the bytes that are compared at once, at all
// places of a word.
func TestSearch(t *testing.T) {
	t.Parallel()
	const longest = 2*32 + 24
	random := rand.New(rand.NewPCG(1, 2))
	alphabets := []string{"\x00", " ", "\xff", `_\]^tuvTokensCx`, "_\xdf\x5ct\xf4u\xf5\x75", "\u00e9\u5b57a", `_t\u_T`}
	for name, f := range searched(t) {
		hints := f.Hints()
		for length := range longest {
			for at := range length + 1 {
				// The bytes around the text are hints as well, and don't count.
				memory := bytes.Repeat(hints[random.IntN(len(hints))], 2*longest)
				from := 8 + random.IntN(8)
				text := memory[from : from+length]
				alphabet := alphabets[random.IntN(len(alphabets))]
				for i := range text {
					text[i] = alphabet[random.IntN(len(alphabet))]
				}
				sameSearch(t, name, f, text)
				hint := hints[random.IntN(len(hints))]
				copy(text[at:], hint)
				sameSearch(t, name, f, text)
				if found := f.MayBeIn(text); at+len(hint) <= length && !found {
					t.Fatalf("%s: no hint in %q", name, text)
				}
			}
		}
	}
}

// The same holds for texts that are as long as pieces of bodies, with hints only at their edges.
func TestSearchLong(t *testing.T) {
	t.Parallel()
	for name, f := range searched(t) {
		for _, filler := range []string{"x", "_]", "\xdf\xf4", oneEvent} {
			text := []byte(strings.Repeat(filler, 16<<10/len(filler)))
			sameSearch(t, name, f, text)
			for _, hint := range f.Hints() {
				for _, at := range []int{0, 1, len(text) / 2, len(text) - len(hint) - 1, len(text) - len(hint), len(text) - len(hint) + 1} {
					whole := bytes.Clone(text)
					copy(whole[at:], hint)
					sameSearch(t, name, f, whole)
				}
			}
		}
	}
}

const oneEvent = "data: {\"id\":\"chatcmpl-123\",\"object\":\"chat.completion.chunk\",\"created\":1694268190,\"model\":\"gpt\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" some\"},\"finish_reason\":null}],\"usage\":null}\n\n"

func FuzzSearch(f *testing.F) {
	for _, text := range []string{"", "_tokens", `"total_tokens":1`, `\u005f`, "\xdf\xf4okens_t", oneEvent, strings.Repeat("_", 40) + "tokens", "tokenCount"} {
		f.Add([]byte(text), byte(0))
	}
	all := searched(f)
	f.Fuzz(func(t *testing.T, text []byte, from byte) {
		moved := append(make([]byte, from%64), text...)[from%64:]
		for name, fields := range all {
			sameSearch(t, name, fields, moved)
		}
	})
}
