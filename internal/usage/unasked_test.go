package usage_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"weir/internal/usage"
)

// takeOut returns what passes of a stream that comes in pieces whose sizes come from a seed: 0 means
// 1 byte, and inOne the whole.
func takeOut(t *testing.T, u *usage.Unasked, stream string, seed uint64) string {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	u.Begin()
	var passed, scratch []byte
	for rest := []byte(stream); ; {
		n := min(1, len(rest))
		if seed == inOne {
			n = len(rest)
		} else if seed > 0 {
			n = min(random.IntN(1<<random.IntN(10)), len(rest)) // may be 0
		}
		end := n == len(rest)
		piece := bytes.Clone(rest[:n])
		kept, same := u.Read(scratch[:0], piece, end)
		if same {
			if len(kept) > 0 {
				t.Fatal("the same was appended")
			}
			kept = piece
		}
		passed = append(passed, kept...)
		if rest, scratch = rest[n:], kept; end {
			return string(passed)
		}
	}
}

const inOne = 1 << 20

// naive takes the usage out of a whole stream.
func naive(stream string) string {
	var passed strings.Builder
	used, taken := false, false
	for len(stream) > 0 {
		line, ending := stream, ""
		if i := strings.IndexAny(stream, "\r\n"); i >= 0 {
			line, ending = stream[:i], stream[i:i+1]
			if strings.HasPrefix(stream[i:], "\r\n") {
				ending = "\r\n"
			}
		}
		stream = stream[len(line)+len(ending):]
		switch {
		case isUsageLine(line):
			taken = true
		case line != "":
			used = true
			passed.WriteString(line + ending)
		default:
			if !taken || used {
				passed.WriteString(ending)
			}
			used, taken = false, false
		}
	}
	return passed.String()
}

func isUsageLine(line string) bool {
	text, isData := strings.CutPrefix(line, "data:")
	var chunk map[string]any // a struct would take names in other capitals
	if !isData || json.Unmarshal([]byte(text), &chunk) != nil || !strings.Contains(text, "_tokens") {
		return false
	}
	choices, isList := chunk["choices"].([]any)
	_, isObject := chunk["usage"].(map[string]any)
	return isList && len(choices) == 0 && isObject
}

const (
	chunkOf   = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-5","choices":[{"index":0,"delta":{"content":"hi"}}],"usage":null}`
	usageOf   = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-5","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}`
	spacedOf  = `data:  { "usage" : { "total_tokens" : 11 } , "choices" : [ ] } `
	filtersOf = `data: {"choices":[],"created":0,"prompt_filter_results":[{"prompt_index":0}]}`
	withBoth  = `data: {"choices":[{"delta":{}}],"usage":{"total_tokens":11}}`
)

// Only the chunk that has nothing but the usage is taken out, wherever pieces and lines end.
func TestUnasked(t *testing.T) {
	for _, events := range [][]string{
		{chunkOf, "", usageOf, "", "data: [DONE]", "", ""},
		{usageOf, "", ""},
		{chunkOf, "", spacedOf, "", "data: [DONE]", "", ""},
		{": a comment", "", chunkOf, "", ": another", usageOf, "", "data: [DONE]", "", ""},
		{usageOf, "id: 7", "", chunkOf, "", ""},
		{filtersOf, "", withBoth, "", "data: [DONE]", "", ""},
		{"", "", usageOf, "", "", "", chunkOf, "", usageOf},
		{"data: {" + strings.Repeat("x", 20_000), "", usageOf, "", ""},
		{`data: {"choices":[],"usage":{"total_tokens":11}`, "", chunkOf[:40]},
		{"\xef\xbb\xbf" + usageOf, "", "dat", "datum: 1", "data", "data:", "data: ", ""},
	} {
		for _, ending := range []string{"\n", "\r\n", "\r"} {
			stream := strings.Join(events, ending)
			var u usage.Unasked
			for seed := range uint64(200) {
				if got, want := takeOut(t, &u, stream, seed), naive(stream); got != want && !broken(stream) {
					t.Fatalf("%q, seed %d:\n%q passed, want\n%q", stream, seed, got, want)
				}
			}
			if strings.Contains(naive(stream), usageOf+ending) && !strings.HasPrefix(stream, "\xef") {
				t.Errorf("%q has the usage still", naive(stream))
			}
		}
	}
}

// broken reports whether a line with the usage is no JSON, of which less is read than whole.
func broken(stream string) bool {
	for line := range strings.SplitSeq(strings.ReplaceAll(stream, "\r", "\n"), "\n") {
		if text, isData := strings.CutPrefix(line, "data:"); isData && strings.Contains(text, "_tokens") && !json.Valid([]byte(text)) {
			return true
		}
	}
	return false
}

// What passes of any stream is the same wherever its pieces end, and all lines but those of the usage.
func FuzzUnasked(f *testing.F) {
	f.Add(chunkOf+"\n\n"+usageOf+"\n\ndata: [DONE]\n\n", uint64(1))
	f.Add(usageOf+"\r\n\r\n"+spacedOf+"\r\r", uint64(2))
	f.Fuzz(func(t *testing.T, stream string, seed uint64) {
		var u usage.Unasked
		whole := takeOut(t, &u, stream, inOne)
		if pieces := takeOut(t, &u, stream, seed); pieces != whole {
			t.Fatalf("%q: %q passed whole, and %q in pieces", stream, whole, pieces)
		}
		if !strings.Contains(stream, "_tokens") && whole != stream {
			t.Fatalf("%q: %q passed", stream, whole)
		}
		for line := range strings.SplitSeq(strings.ReplaceAll(whole, "\r", "\n"), "\n") {
			if len(line) < 1000 && isUsageLine(line) && !strings.Contains(line, `\`) &&
				strings.Count(line, `"choices"`) == 1 && strings.Count(line, `"usage"`) == 1 {
				t.Fatalf("%q: %q passed", stream, line)
			}
		}
	})
}
