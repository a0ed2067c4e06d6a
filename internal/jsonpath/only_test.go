package jsonpath_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"weir/internal/jsonpath"
	"weir/internal/must"
)

// onlyOf reads all of a text in pieces of some size.
func onlyOf(t *testing.T, r *jsonpath.Reader, path, text string, size int) (value string, found, sound bool) {
	t.Helper()
	r.ResetOnly(must.Get(jsonpath.Compile(path))(t))
	feed(r, text, size)
	only, found, sound := r.Only()
	return string(only), found, sound
}

func TestOnly(t *testing.T) {
	t.Parallel()
	const differs = "-"
	var r jsonpath.Reader
	for _, c := range []struct{ path, text, want string }{
		{"model", `{"model":"gpt-5"}`, "=gpt-5"},
		{"model", `{"x":[{"model":"y"}],"model" : "gpt\u002d5" , "z":{}}`, "=gpt-5"},
		{"model", `{"model":""}`, "="},
		{"model", `{"model":7}`, "=7"}, {"model", `{"model":7.00}`, "=7"}, {"model", `{"model":70e-1}`, "=7"}, {"model", `{"model":-7e0}`, "=-7"}, {"model", `{"model":-0}`, "=0"},
		{"model", `{"model":7.5}`, differs}, {"model", `{"model":1e99}`, differs}, {"model", `{"model":18446744073709551615}`, differs}, {"model", `{"model":18446744073709551614}`, "=18446744073709551614"},
		{"model", `{"model":true}`, "=true"}, {"model", `{"model":false}`, "=false"},
		{"model", `{"model":null}`, ""}, {"model", `{}`, ""}, {"model", ``, ""}, {"model", " \n", ""}, {"model", `[]`, ""},
		{"model", `{"model":{}}`, differs}, {"model", `{"model":["a"]}`, differs},
		{"model", `{"model":"a","model":"a"}`, "=a"}, {"model", `{"model":7,"model":"7","MODEL":7.0}`, "=7"},
		{"model", `{"model":"a","model":"b"}`, differs}, {"model", `{"model":"a","model":null}`, differs}, {"model", `{"model":null,"model":"a"}`, differs},
		{"model", `{"model":"","model":"a"}`, differs}, {"model", `{"model":"a","Model":"b"}`, differs}, {"model", `{"model":"a","Model":"a"}`, "=a"}, {"model", `{"Model":"a"}`, differs},
		{"model", `{"model":"a","model":["b"]}`, differs}, {"model", `{"model":"a","m\u006fdel":"b"}`, differs},
		{"a.b", `{"a":{"b":"x"}}`, "=x"}, {"a.b", `{"a":{"b":"x"},"a":{}}`, differs}, {"a.b", `{"a":{"b":"x"},"a":{"b":"x"}}`, "=x"}, {"a.b", `{"a":7}`, ""},
		{"a.1", `{"a":["x","y"]}`, "=y"}, {"a.2", `{"a":["x","y"]}`, ""},
		{"model", `{"model":"a"`, differs}, {"model", `{"model":"a"}{`, differs}, {"model", `{"model":"a"}x`, differs}, {"model", "\ufeff{}", differs}, {"model", `"model"`, differs}, {"model", `model=a`, differs},
		{"model", `{"model":"` + strings.Repeat("m", jsonpath.MaxValue) + `"}`, "=" + strings.Repeat("m", jsonpath.MaxValue)},
		{"model", `{"model":"` + strings.Repeat("m", jsonpath.MaxValue+1) + `"}`, differs},
	} {
		for _, size := range []int{1, 2, 3, 5, 1 << 20} {
			value, found, sound := onlyOf(t, &r, c.path, c.text, size)
			got := ""
			if !sound {
				got = differs
			} else if found {
				got = "=" + value
			}
			if got != c.want || (!found && value != "") || (found && !sound) {
				t.Errorf("%s of %.60q in pieces of %d: %.60q, %t, %t, want %.60q", c.path, c.text, size, value, found, sound, c.want)
			}
		}
	}
}

// wantOnly wants that parsers find what is found, each the same, or that they may differ. Two of
// Go's parsers are among them: the first takes the last of equal names, and the second takes no
// notice of their capitals.
func wantOnly(t *testing.T, r *jsonpath.Reader, path, text string, size int) {
	t.Helper()
	value, found, sound := onlyOf(t, r, path, text, len(text)+1)
	if v, f, s := onlyOf(t, r, path, text, size); v != value || f != found || s != sound {
		t.Fatalf("%s of %q: %q, %t, %t in pieces of %d, %q, %t, %t in one", path, text, v, f, s, size, value, found, sound)
	}
	if !sound || !utf8.ValidString(text) || !json.Valid([]byte(text)) {
		return
	}
	type in struct {
		Tokens any `json:"max_tokens"`
	}
	var folded struct {
		in
		A any `json:"a"`
	}
	var whole any
	decode(text, &folded)
	decode(text, &whole)
	object, _ := whole.(map[string]any)
	last, inStruct := object["max_tokens"], folded.Tokens
	if path != "max_tokens" {
		object, _ := object["a"].(map[string]any)
		last = object["max_tokens"]
		var deeper struct {
			A in `json:"a"`
		}
		decode(text, &deeper)
		inStruct = deeper.A.Tokens
	}
	for parser, got := range map[string]any{"last": last, "struct": inStruct} {
		want, is := "", true
		switch got := got.(type) {
		case string:
			want = got
		case bool:
			want = strconv.FormatBool(got)
		case json.Number:
			digits, negative := strings.CutPrefix(string(got), "-")
			n, _ := jsonpath.Natural([]byte(digits))
			if want = strconv.FormatUint(n, 10); negative && n > 0 {
				want = "-" + want
			}
		default:
			is = false
		}
		if is != found || want != value {
			t.Fatalf("%s of %q: the %s is %v, got %q, %t", path, text, parser, got, value, found)
		}
	}
}

// decode decodes as much as fits.
func decode(text string, into any) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	_ = decoder.Decode(into)
}
