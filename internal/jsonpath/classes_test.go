package jsonpath_test

import (
	"encoding/json"
	"strings"
	"testing"

	"weir/internal/jsonpath"
	"weir/internal/jsonpath/jsontest"
	"weir/internal/must"
)

// TestClasses changes JSON at each place, and wants the reader to tell what is no JSON any more, as encoding/json does.
// Objects and arrays that the path does not lead through are skipped, and in them it tells less.
func TestClasses(t *testing.T) {
	t.Parallel()
	path := must.Get(jsonpath.Compile("missing.x"))(t)
	var r jsonpath.Reader
	texts, malformed := 0, 0
	check := func(text string) {
		if rest := strings.TrimLeft(text, " \t\r\n"); rest == "" || rest[0] != '{' && rest[0] != '[' {
			return // the path leads nowhere
		}
		var first json.RawMessage
		want := jsonpath.Missing // also where something follows, which nobody reads
		if json.NewDecoder(strings.NewReader(text)).Decode(&first) != nil {
			want = jsonpath.Malformed
			malformed++
		}
		texts++
		skips := strings.Count(text, "[")+strings.Count(text, "{") > 1
		for _, size := range []int{1, 1000} {
			if _, got := read(&r, path, text, size); got != want && (!skips || got != jsonpath.Missing) {
				t.Errorf("%q in pieces of %d: kind %d, want %d", text, size, got, want)
			}
		}
	}
	for text := range jsontest.Texts() {
		check(text)
	}
	t.Logf("%d texts, %d of them no JSON", texts, malformed)
	must.AtLeast(t, malformed, 10_000, "texts that are no JSON")
}
