package usage_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"weir/internal/jsonpath/jsontest"
	"weir/internal/must"
	"weir/internal/usage"
)

// members are members of answers, of several providers.
var members = []string{
	`"model":"a"`, `"model":"b"`, `"model":""`, `"model":"unlisted"`, `"modelVersion":"a"`, `"modelVersion":"unlisted"`, `"response":{"model":"a"}`, `"response":{"model":"unlisted"}`, `"x":"\"usage\""`, `"usage":null`, `"usage":-1`,
	`"usage":{"total_tokens":70}`, `"us\u0061ge":{"total_tokens":60}`, `"usage":{"prompt_tokens":5,"completion_tokens":7}`, `"message":{"model":"a","usage":{"input_tokens":3}}`,
	`"usage":{"iterations":[{"type":"compaction","input_tokens":70,"x":[{"output_tokens":1}]},{"type":"message","input_tokens":9},{"output_tokens":"8","type":"advisor_message"}],"input_tokens":2}`,
	`"usage":{"x":[[[[{"a":"]"}]]]],"in\u0070ut_tokens":"12","y":"` + strings.Repeat("y", 500) + `","output_tokens":0}`, `"usage":[{"input_tokens":99}]`, `"usage":{"input_tokens":{"n":1}}`,
	`"usageMetadata":{"totalTokenCount":9}`, `"response":{"model":"b","usage":{"input_tokens":4}}`, `"eval_count":4`, `"message":{"usage":{"output_tokens":-1}}`, `"a\/b":8`, `"c":6`,
	`"service_tier":"flex"`, `"service_tier":"default"`, `"service_tier":"auto"`, `"response":{"service_tier":"flex","usage":{"output_tokens":5}}`, `"usage":{"output_tokens":6,"service_tier":"flex"}`,
	`"usage":{"speed":"fast","output_tokens":6,"service_tier":"flex"}`, `"tool_usage":{"image_gen":{"output_tokens":4}}`, `"usage":{"prompt_tokens":9,"cache_read_input_tokens":5,"prompt_tokens_details":{"cached_tokens":5}}`,
	`"predictions":[{"embeddings":{"statistics":{"token_count":6},"values":[0.5,[1]]}},7,[{"embeddings":{}}],{"embeddings":{"statistics":{"token_count":"7"}}}]`, `"predictions":{"embeddings":{"statistics":{"token_count":5}}}`,
}

// answer returns a random body.
func answer(random *rand.Rand, format usage.Format) []byte {
	var body bytes.Buffer
	if format == usage.Events && random.IntN(4) == 0 {
		body.WriteString("\ufeff")
	}
	members := slices.Clone(members)
	object := func() string {
		random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		return "{" + strings.Join(members[:1+random.IntN(4)], ",") + "}"
	}
	for i := range 1 + random.IntN(6) {
		text := object()
		switch {
		case format == usage.Events:
			end := []string{"\n", "\r\n", "\r"}[random.IntN(3)]
			body.WriteString([]string{"", ":" + end, "event: x" + end, end}[random.IntN(4)] + "data: " + text + end + []string{end, "\n", "\r\n", "\r\r\n\n"}[random.IntN(4)])
		case format == usage.Lines:
			body.WriteString(text + "\n")
		case format == usage.AmazonEvents && random.IntN(2) == 0:
			within := fmt.Sprintf(`"bytes":"%s"`, base64.StdEncoding.EncodeToString([]byte(object())))
			body.WriteString(message([]string{"{" + within + "," + text[1:], text[:len(text)-1] + "," + within + "}"}[random.IntN(2)]))
		case format == usage.AmazonEvents:
			body.WriteString(message(text))
		case i == 0:
			body.WriteString("[" + text)
		default:
			body.WriteString("," + text)
		}
	}
	return body.Bytes()
}

// A body costs the same, and has the same model, wherever its pieces end.
func TestPiecesAreAlike(t *testing.T) {
	t.Parallel()
	list := new(usage.PriceList)
	list.Add("a", &usage.Rates{usage.Input: usage.Parts, usage.Output: 2 * usage.Parts})
	list.Add("b", &usage.Rates{usage.Input: 3 * usage.Parts, usage.Output: 7 * usage.Parts})
	list.Add("service_tier=flex/a", &usage.Rates{usage.Input: 50 * usage.Parts, usage.Output: 60 * usage.Parts})
	list.Add("service_tier=fast/a", &usage.Rates{usage.Input: 70 * usage.Parts, usage.Output: 80 * usage.Parts})
	list.Add("service_tier=flex/b", &usage.Rates{usage.Input: 20 * usage.Parts, usage.Output: 20 * usage.Parts})
	unlisted := &usage.Rates{usage.Input: 100 * usage.Parts, usage.Output: 110 * usage.Parts}
	kinds := []*usage.Fields{fields(field(1, "a/b", "usage.total_tokens", "c"), field(3, "usage.prompt_tokens", "eval_count"))}
	for i := range usage.Presets {
		kinds = append(kinds, fieldsOf(t, &usage.Presets[i], true), fieldsOf(t, &usage.Presets[i], false))
	}
	random := rand.New(rand.NewPCG(6, 32))
	for n := range 20000 {
		format := usage.JSON + usage.Format(n%4)
		of, body := kinds[random.IntN(len(kinds))], answer(random, format)
		guesses, asks, asked := random.IntN(2) == 0, random.IntN(2) == 0, []string{"", "a"}[random.IntN(2)]
		want := ""
		for _, most := range []int{len(body), 1, 1 + random.IntN(9), 1 + random.IntN(99)} {
			var r usage.Reader
			r.Reset(of, format, unlisted)
			if asks {
				r.Ask(list, asked, "", []byte(asked))
			}
			if guesses {
				r.CountEvents()
			}
			for rest := body; len(rest) > 0; {
				piece := rest[:min(len(rest), most)]
				if random.IntN(2) == 0 && len(piece) < len(rest) {
					piece = usage.WholeEvents(piece)
				}
				r.Feed(bytes.Clone(piece))
				rest = rest[len(piece):]
			}
			cost, found := r.Cost()
			got := fmt.Sprintf("%d, %t, model %q", cost, found, r.Model())
			if guesses {
				got += fmt.Sprintf(", %d untold", r.Untold())
			}
			if want == "" {
				want = got
			}
			must.EqualOrEnd(t, got, want, "in pieces of %d, %s in a single piece of format %d, body %d: %q", most, want, format, n, body)
		}
	}
}

// The model that a body names first has the prices, even if that text has no number.
func TestFirstModelCounts(t *testing.T) {
	t.Parallel()
	list := new(usage.PriceList)
	list.Add("a", &usage.Rates{usage.Output: 2 * usage.Parts})
	list.Add("b", &usage.Rates{usage.Output: 7 * usage.Parts})
	const number = "\n\ndata: {\"usage\":{\"total_tokens\":10}}\n\n"
	for body, want := range map[string]uint64{
		`data: {"model":"a"}` + number: 20, `data: {}` + number + `data: {"model":"b"}` + "\n\n": 70, `data: {"model":""}` + "\n\n" + `data: {"model":"b"}` + number: 70,
		`data: {"model":"a"}` + number + `data: {"model":"b"}` + number: 20, `data: {"model":"c"}` + "\n\n" + `data: {"model":"a"}` + number: 1000, number: 1000,
	} {
		var r usage.Reader
		r.Reset(fieldsOf(t, &usage.Presets[0], true), usage.Events, &usage.Rates{usage.Output: 100 * usage.Parts})
		r.Ask(list, "", "", nil)
		r.Feed([]byte(body))
		if got, found := r.Cost(); got != want || !found {
			t.Errorf("%q costs %d, %t, want %d", body, got, found, want)
		}
	}
}

// A model that has answered in the place of the request's counts where it is dearer. A version of the
// same model costs what the request's model does, also where another beginning fits its name better.
func TestDearerModelCounts(t *testing.T) {
	t.Parallel()
	rates := func(input, output uint64) *usage.Rates {
		return &usage.Rates{usage.Input: input * usage.Parts, usage.Output: output * usage.Parts}
	}
	list := new(usage.PriceList)
	for name, r := range map[string]*usage.Rates{
		"mid": rates(3, 3), "mid-0613": rates(4, 4), "mid-pro": rates(9, 9), "mid*": rates(20, 20), "cheap": rates(1, 1), "dear": rates(5, 50), "reads": rates(30, 1), "*": rates(90, 90),
	} {
		list.Add(name, r)
	}
	for model, want := range map[string]struct {
		cost  uint64
		entry string
	}{
		"mid": {60, ""}, "cheap": {60, ""}, "dear": {550, "dear"}, "reads": {310, "reads"}, "unlisted": {60, ""}, "mid-pro": {180, "mid-pro"}, "mid-0613": {80, "mid-0613"},
		"mid-2025-08-07": {60, ""}, "mid-20250807": {60, ""}, "mid@20250807": {60, ""}, "mid-001": {60, ""},
		"mid-5": {400, "mid*"}, "mid-5-20250807": {400, "mid*"}, "mid-2025x": {400, "mid*"}, "mid-": {400, "mid*"}, "middle": {400, "mid*"}, "mid2025": {400, "mid*"},
	} {
		var r usage.Reader
		r.Reset(fieldsOf(t, &usage.Presets[len(usage.Presets)-1], true), usage.JSON, rates(3, 3))
		r.Ask(list, "mid", "", []byte("mid"))
		r.Feed([]byte(`{"model":"` + model + `","usage":{"prompt_tokens":10,"completion_tokens":10}}`))
		if got, found := r.Cost(); got != want.cost || !found || r.Model() != want.entry {
			t.Errorf("%s costs %d, %t, as %q, want %d as %q", model, got, found, r.Model(), want.cost, want.entry)
		}
		if got, least := r.Guessed(1), want.cost/20; got < least && model != "reads" {
			t.Errorf("%s: a token is guessed at %d, want %d at least", model, got, least)
		}
	}
}

// priced returns a list with a price for tokens that go in, and for those that come out, by name.
func priced(of map[string]uint64) *usage.PriceList {
	list := new(usage.PriceList)
	for name, price := range of {
		list.Add(name, &usage.Rates{usage.Input: price * usage.Parts, usage.Output: price * usage.Parts})
	}
	return list
}

// read reads an answer of a model, with 10 tokens in and 10 out, to a request that names an entry.
func read(t *testing.T, r *usage.Reader, list *usage.PriceList, asked, tier, model string) (cost uint64) {
	t.Helper()
	var f usage.Finder
	rates, _, _ := f.Find(list, tier, []byte(cmp.Or(strings.TrimPrefix(asked, tier), model)))
	r.Reset(fieldsOf(t, &usage.Presets[len(usage.Presets)-1], true), usage.JSON, rates)
	r.Ask(list, asked, tier, []byte(strings.TrimPrefix(asked, tier)))
	r.Feed([]byte(`{"model":"` + model + `","usage":{"prompt_tokens":10,"completion_tokens":10}}`))
	cost, found := r.Cost()
	must.Equal(t, found, true, "%s tells no cost", model)
	return cost
}

// Who hides the tier pays the highest prices of all tiers, also those of long prompts, whatever entries the model has.
func TestHiddenTier(t *testing.T) {
	t.Parallel()
	var r usage.Reader
	for _, of := range []map[string]uint64{
		{"m": 1, "service_tier=flex/m": 1, "service_tier=priority/m*": 2, "above=5/service_tier=priority/m*": 4},
		{"m*": 1, "service_tier=priority/m": 2, "above=5/service_tier=priority/m": 4},
		{"*": 1, "service_tier=priority/m": 2, "above=5/service_tier=priority/m": 4},
		{"*": 2, "service_tier=priority/m": 1, "above=5/*": 4},
	} {
		of["other"] = 3
		list := priced(of)
		must.Equal(t, read(t, &r, list, "", usage.AnyTier, "m"), 80, "%v: costs", of)
		must.Equal(t, read(t, &r, list, "", usage.AnyTier, "other"), 60, "%v: another model costs", of)
		r.Reset(fieldsOf(t, &usage.Presets[len(usage.Presets)-1], true), usage.JSON, &usage.Rates{})
		r.Ask(list, "", usage.AnyTier, []byte("m"))
		r.Feed([]byte(`{"model":"m","response":{"model":"unlisted"},"usage":{"prompt_tokens":10,"completion_tokens":10}}`))
		got, _ := r.Cost()
		must.Equal(t, got, 80, "%v: beside a name that is not on the list costs", of)
	}
}

// A list is the same in whatever order its names come, and each name is found.
func TestOrderOfNames(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(8, 82))
	for n := range 40 {
		var names []string
		for i := range n {
			names = append(names, strings.Repeat("m", 1+random.IntN(3))+fmt.Sprint(i)+[]string{"", "*"}[random.IntN(2)])
		}
		rates := func(name string) *usage.Rates {
			return &usage.Rates{usage.Input: uint64(1 + slices.Index(names, name))}
		}
		sorted, list := new(usage.PriceList), new(usage.PriceList)
		for _, name := range slices.Sorted(slices.Values(names)) {
			must.Equal(t, sorted.Add(name, rates(name)), true, "%q of %q is new", name, names)
		}
		for again := range 2 {
			for _, i := range random.Perm(n) {
				must.Equal(t, list.Add(names[i], rates(names[i])), again == 0, "%q of %q is new, round %d", names[i], names, again)
			}
		}
		must.Equal(t, list.Equal(sorted), true, "%q: the lists are the same", names)
		for _, name := range names {
			got, entry, known := list.Find([]byte(strings.TrimSuffix(name, "*")))
			if entry != name || !known || *got != *rates(name) {
				t.Errorf("%q of %q: found %q, %t, at %d", name, names, entry, known, got[usage.Input])
			}
		}
	}
}

// The highest price is that of the time of day.
func TestMostOfTime(t *testing.T) {
	t.Parallel()
	list := priced(map[string]uint64{"m": 9, "n": 4, "time=01:00-02:00/m": 2, "time=01:00-02:00/n": 3, "time=03:00-04:00/n": 11})
	for minute, want := range map[int]uint64{0: 9, 60: 3, 180: 11} {
		now, _ := list.At(minute, -1)
		must.Equal(t, now.Most()[usage.Output], want*usage.Parts, "minute %d", minute)
	}
}

// Long prompts to models that the list lacks cost what it says of these, as they reserve.
func TestLongPromptsToOtherModels(t *testing.T) {
	t.Parallel()
	list := priced(map[string]uint64{"*": 1, "above=5/*": 2, "above=10/*": 9, "m": 1})
	var f usage.Finder
	rates, entry, _ := f.Find(list, "", []byte("new"))
	if answer, in := list.Highest(rates, entry, 10); answer != 2*usage.Parts || in != 2*usage.Parts {
		t.Errorf("reserves %d and %d for a token", answer, in)
	}
	var r usage.Reader
	must.Equal(t, read(t, &r, list, "", "", "new"), 40, "costs")
	must.Equal(t, read(t, &r, list, "", "", "m"), 20, "a model of the list costs")
}

// A dated model that the list has in a tier is a model of its own there, as it is without one.
func TestDearerModelOfTier(t *testing.T) {
	t.Parallel()
	list := priced(map[string]uint64{"mid": 3, "mid-0613": 4, "service_tier=flex/mid": 3, "service_tier=flex/mid-0613": 4, "service_tier=flex/mid*": 20})
	var r usage.Reader
	for _, tier := range []string{"", "service_tier=flex/"} {
		must.Equal(t, read(t, &r, list, tier+"mid", tier, "mid-0613"), 80, "%q: costs", tier)
		must.Equal(t, r.Model(), tier+"mid-0613", "%q: model", tier)
		must.Equal(t, read(t, &r, list, tier+"mid", tier, "mid-0614"), 60, "%q: a version costs", tier)
		must.Equal(t, r.Model(), "", "%q: model of a version", tier)
	}
}

// A beginning of models' names that is also one of the mark of tiers says nothing of tiers.
func TestBeginningOfMark(t *testing.T) {
	t.Parallel()
	list := priced(map[string]uint64{"gpt-5": 3, "s*": 9, "service_tier=flex/other": 2})
	var f usage.Finder
	for _, tier := range []string{"", "service_tier=flex/", usage.AnyTier} {
		if rates, entry, known := f.Find(list, tier, []byte("gpt-5")); entry != "gpt-5" || rates[usage.Input] != 3*usage.Parts || !known {
			t.Errorf("%q: %q at %d, %t", tier, entry, rates[usage.Input], known)
		}
		if _, entry, known := f.Find(list, tier, []byte("new")); entry != "*" || known {
			t.Errorf("%q: the list knows a new model as %q", tier, entry)
		}
	}
}

// A token that a stream has not told yet is guessed at the price of the long prompt, as the told ones cost it.
func TestGuessedAfterLongPrompt(t *testing.T) {
	t.Parallel()
	list := priced(map[string]uint64{"mid": 3, "above=5/mid": 6, "above=10/mid": 9, "dear": 4, "above=5/dear": 8, "service_tier=flex/mid*": 5, "above=5/service_tier=flex/mid*": 7, "*": 1, "above=5/*": 2})
	var r usage.Reader
	for _, test := range []struct {
		asked, tier, model string
		want               uint64
	}{
		{"mid", "", "mid", 6}, {"mid", "", "dear", 8}, {"", "", "mid", 6}, {"", "", "new", 2}, {"", usage.AnyTier, "mid", 7},
	} {
		if cost, guess := read(t, &r, list, test.asked, test.tier, test.model), r.Guessed(1); cost != 20*test.want || guess != test.want {
			t.Errorf("%+v: 20 tokens cost %d, and one more %d", test, cost, guess)
		}
	}
	r.Reset(fieldsOf(t, &usage.Presets[len(usage.Presets)-1], true), usage.JSON, &usage.Rates{usage.Output: 3 * usage.Parts})
	r.Ask(list, "mid", "", []byte("mid"))
	must.Equal(t, r.Guessed(1), 3, "while the prompt's tokens are not told")
}

// A text may have some characters of a name as short escapes.
func TestNamesWithShortEscapes(t *testing.T) {
	t.Parallel()
	for name, escaped := range map[string]string{
		"a/b": `a\/b`, "tokens_in/out": `tokens_in\/out`, "a\tb": `a\tb`, "/": `\/`, "total\n": `total\n`, "a\rb": `a\rb`, "\b\f": `\b\f`, `"total"`: `\"total\"`, "é/": `é\/`,
	} {
		for _, body := range []string{"data: {\"" + escaped + "\":5}\n\n", ":\n\ndata: {\"" + escaped + "\":5}\n\n"} {
			var r usage.Reader
			for seed := range uint64(3) {
				if got, found := costOf(&r, fields(field(1, name)), usage.Events, []byte(body), 2*seed+1); got != 5 || !found {
					t.Errorf("%q in %q, seed %d: %d, %t", name, body, seed, got, found)
				}
			}
			r.Reset(fields(field(1, name)), usage.Events, nil)
			r.Feed([]byte(body))
			if got, found := r.Cost(); got != 5 || !found {
				t.Errorf("%q in %q: %d, %t", name, body, got, found)
			}
		}
	}
}

// Objects that are no JSON end no stream, whatever their strings and brackets are.
func TestBrokenObjects(t *testing.T) {
	t.Parallel()
	preset := &usage.Presets[slices.IndexFunc(usage.Presets, func(p usage.Preset) bool { return p.Name == "auto" })]
	of := fieldsOf(t, preset, false)
	var r usage.Reader
	read := func(text string) {
		for _, most := range []int{len(text), 1, 3} {
			r.Reset(of, usage.JSON, nil)
			for piece := range slices.Chunk([]byte(text), most) {
				r.Feed(piece)
			}
			r.Cost()
		}
	}
	for text := range jsontest.Texts() {
		read(`{"usage":` + text + `}`)
		read(`{"predictions":[` + text + `]}`)
	}
	random := rand.New(rand.NewPCG(7, 33))
	parts := []string{`"`, `\u`, `\`, `,`, `:`, `[`, `]`, `{`, `}`, `1`, `e`, `null`, `"iterations"`, `"input_tokens":`, `}}}}`, `]]]]`, ` `}
	for range 20_000 {
		text := []string{`{"usage":{"a":`, `{"predictions":[{"a":`}[random.IntN(2)]
		for range random.IntN(20) {
			text += parts[random.IntN(len(parts))]
		}
		read(text)
	}
}
