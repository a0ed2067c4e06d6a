package jsonpath_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"weir/internal/jsonpath"
	"weir/internal/must"
)

// settings are texts, and what they become when a path gets the value 7; empty if nothing may change.
var settings = []struct{ path, text, want string }{
	{"n", `{"n":8000}`, `{"n":7}`},
	{"n", `{ "n" : 8e3 , "x":1}`, `{ "n" : 7 , "x":1}`},
	{"n", `{"n":"800"}`, `{"n":7}`},
	{"n", `{"n":null}` + "\r\n", `{"n":7}` + "\r\n"},
	{"n", `{"x":[{"n":1}]}`, `{"x":[{"n":1}],"n":7}`},
	{"n", `{}`, `{"n":7}`},
	{"n", `{ } `, `{ "n":7} `},
	{"n", `{"n":1,"n":2}`, ``},
	{"n", `{"n":1,"N":2}`, ``},
	{"n", `{"N":2}`, ``},
	{"n", `{"n":{}}`, ``},
	{"n", `{"n":[1]}`, ``},
	{"n", `[{"n":1}]`, ``},
	{"n", `{"n":1}{}`, ``},
	{"n", `{"n":1`, ``},
	{"a.n", `{"a":{"n":5}}`, `{"a":{"n":7}}`},
	{"a.n", `{"a":{"x":5}}`, `{"a":{"n":7,"x":5}}`},
	{"a.n", `{"a":{ }}`, `{"a":{"n":7 }}`},
	{"a.n", `{"a":null,"n":1}`, `{"a":{"n":7},"n":1}`},
	{"a.n", `{"n":1}`, `{"n":1,"a":{"n":7}}`},
	{"a.n", `{"a":[]}`, ``},
	{"a.n", `{"a":{},"a":{"n":1}}`, ``},
	{"a.b.n", `{"x":1}`, `{"x":1,"a":{"b":{"n":7}}}`},
	{"a.b.n", `{"a":{"b":{"n":1}}}`, `{"a":{"b":{"n":7}}}`},
}

// set gives a path of a text, of which the last bytes come in a piece of a size, the value 7.
func set(t *testing.T, r *jsonpath.Reader, path, text string, size int) (changed string, ok bool) {
	t.Helper()
	p, err := jsonpath.Compile(path)
	if err != nil || !p.IsPlain() {
		t.Fatal(path, err)
	}
	r.ResetAll(p)
	start := max(len(text)-size, 0)
	r.Feed([]byte(text[:start]))
	r.Feed([]byte(text[start:]))
	_, e, ok := r.Set([]byte("before"), []byte("7"), []byte(text[start:]), start)
	if !ok {
		return text, false
	}
	at := start + e.At
	return text[:at] + string(e.Text) + text[at+e.Size:], true
}

func TestSet(t *testing.T) {
	t.Parallel()
	var r jsonpath.Reader
	for _, c := range settings {
		want := c.want
		if want == "" {
			want = c.text
		}
		if got, ok := set(t, &r, c.path, c.text, len(c.text)); got != want || ok != (c.want != "") {
			t.Errorf("%s of %s: %s, %v", c.path, c.text, got, ok)
		}
	}
	for path, plain := range map[string]bool{"a.b_c": true, "a.0": false, `a\"`: false, "é": false, `a\\b`: false, "a\n": false} {
		must.Equal(t, must.Get(jsonpath.Compile(path))(t).IsPlain(), plain, "%q", path)
	}
}

// FuzzSet wants a changed text to be to Go's parser and to gjson what it was before, but for the value.
func FuzzSet(f *testing.F) {
	for i, c := range settings {
		f.Add(c.text, uint8(i))
	}
	for _, c := range understated {
		f.Add(strings.ReplaceAll(c.text, "max_tokens", "n"), uint8(200))
	}
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		var r jsonpath.Reader
		for _, path := range []string{"n", "a.n", "a.b.n"} {
			got, ok := set(t, &r, path, text, int(size))
			var before, after any
			if !ok || json.Unmarshal([]byte(text), &before) != nil {
				continue
			}
			must.OKf(t, json.Unmarshal([]byte(got), &after), "%s of %q: %q", path, text, got)
			names := strings.Split(path, ".")
			object, _ := before.(map[string]any)
			for _, name := range names[:len(names)-1] {
				inner, _ := object[name].(map[string]any)
				if inner == nil {
					inner = map[string]any{}
					object[name] = inner
				}
				object = inner
			}
			object[names[len(names)-1]] = 7.0
			if !reflect.DeepEqual(before, after) || gjson.Get(got, path).Raw != "7" {
				t.Fatalf("%s of %q: %q", path, text, got)
			}
		}
	})
}
