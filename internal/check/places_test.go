package check

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"weir/internal/must"
)

// FuzzPlaces wants the JSON that is made of YAML to lead back to where each value and each name is
// written, and characters of a string to where they are.
func FuzzPlaces(f *testing.F) {
	for _, seed := range []string{
		"a: [1, {b: é}]\nc: |\n   x\n\n    y\nd: >2-\n    folded\n  text\n", `"a\u00e4\U0001f600\x41\e\_\
   b\n\tc": 'it''s'`, "- &x !!str |+\n\n  a\n- *x\n- [&y {a: b}, *y]", "a: plain\n  on two lines\nb: \"q\n\n  r\"",
		"? a\n: <<: {b: 1}\n", "a: 0x10\nb: 1e2\nc: yes\n", "- - - |2-\n        x\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if !utf8.Valid(content) {
			return
		}
		documents, _ := readYAML(content, placesOf(content))
		for _, root := range documents {
			for _, of := range []yamlOf{ours, envoysYAML, kubernetesYAML} {
				d := asJSON(root, of)
				if !json.Valid(d.text) && len(d.text) < maxDocument {
					t.Fatalf("not JSON: %.500s", d.text)
				}
				if len(d.text) < maxDocument {
					compare(t, d, readJSON(d.text), root, 0)
				}
			}
		}
	})
}

// compare wants the same value at the same place.
func compare(t *testing.T, d *document, got, want *node, depth int) {
	t.Helper()
	if depth > maxDepth {
		return
	}
	must.EqualOrEnd(t, d.from(got.at), want.at, "%q: from", got.text)
	must.EqualOrEnd(t, len(got.children), len(want.children), "%q: children", got.text)
	must.EqualOrEnd(t, len(got.names), len(want.names), "%q: names", got.text)
	if len(got.children) == 0 && got.kind == want.kind && got.text != want.text && want.envoys == "" {
		t.Fatalf("got %q, want %q", got.text, want.text)
	}
	for i, name := range got.names {
		if from := d.from(name.at); from != want.names[i].at || name.text != want.names[i].text {
			t.Fatalf("name %q: from %d, want %v", name.text, from, want.names[i])
		}
	}
	for i := range got.children {
		compare(t, d, got.children[i], want.children[i], depth+1)
	}
}

// FuzzAlign wants each character of a string where the file has it, whatever the string is and
// however it is written.
func FuzzAlign(f *testing.F) {
	f.Add("{\"a\": [1, \"é\"]}\n{}")
	f.Add("it's \t\"quoted\" \\ and\n\n   indented")
	f.Add("\U0001f600\u00a0\u2028\x7f\x00")
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		quoted := must.Get(json.Marshal(text))(t)
		file := append([]byte("  "), quoted...)
		n := readJSON(file)
		places := align(file, n)
		for i, r := range text {
			at := places[i]
			if found, _ := utf8.DecodeRune(file[at:]); !white(r) && found != r && found != '\\' {
				t.Fatalf("%q, %d: %q is at %d of %s, want %q", text, i, found, at, file, r)
			}
			if i > 0 && at < places[i-1] {
				t.Fatalf("%q, %d: goes back", text, i)
			}
		}
	})
}
