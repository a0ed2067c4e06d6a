package jsonpath_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"weir/internal/jsonpath"
	"weir/internal/must"
)

var documents = []string{
	`{}`, `[]`, ` { } `, `{"a":1}`, `{"a":{"b":2}}`, `{"a":[1,2,{"b":3}]}`, `[[1,[2]],{"a":4}]`,
	`{"a":null,"b":true,"c":false,"d":-1.5e+10,"e":"x"}`, `{"a":0,"b":-0,"c":0.0,"d":1E5,"e":[0]}`, "{\"a\" :\r\n\t[ 1 , 2 ] , \"b\":\"y\" }",
	`{"a":1,"a":2}`, `{"a":{"x":1},"a":{"b":2}}`, `{"a":"s","a":{"b":2}}`, `{"a":[],"a":[7]}`, `{"a":{"b":{"x":1}},"a":{"b":{"c":5}},"b":6}`,
	`{"b":{"a":1},"a":3}`, `{"x":{"a":{"b":1}},"y":[{"a":1}],"a":{"b":9}}`, `{"x":"{\"a\":5}","a":6}`, `{"x":"\\","a":7}`, `{"x":"]}\"[{","a":8}`, `{"x":["]","\\\"]"],"a":9}`,
	`{"0":"member","1":{"0":"deep"}}`, `["element",["deep","deeper"]]`, `{"a":{"0":1,"00":2}}`, `{"a":["zero","one"]}`, `[0,1,2,3,4,5,6,7,8,9,10,11]`,
	`{"a":"\u00e9\n\t\"\\\/\b\f\r"}`, `{"a":"\ud83d\ude00"}`, `{"a":"\ud83d"}`, `{"a":"\ude00"}`, `{"a":"\ud83dx"}`, `{"a":"\ud83d\n"}`, `{"a":"\ud83d\u0041"}`, `{"a":"\ud83d\ud83d\ude00"}`, `{"a":"\ude00\ud83d"}`, `{"a":"\uD83D\uDE00\u0000"}`,
	`{"\u0061":"escaped"}`, `{"a\u002eb":"dot","a":{"b":"level"}}`, `{"a.b":"dot"}`, `{"\ud83d":"half"}`, `{"` + "\ufffd" + `":"replaced"}`, `{"😀":"face","a":{"é":"accent"}}`, `{"\ud83d\ude00":"face"}`, "{\"a\":\"\xff\xfe\",\"\xff\":1}",
	`{"":"empty"}`, `{"a":""}`, `{"a":{}}`, `{"a":[]}`, `{"ab":1,"a":2,"abc":3}`, `{"a*":1,"a?":2,"#":3,"@type":4,"!":5,"a|b":6,"{":7,"[0]":8,"a\\b":9,"*":10,"a[0]":11,"x@y":12}`,
	`"a"`, `1`, `null`, `true`, ` `, ``, `{"choices":[{"message":{"content":"{\"a\":[1,2]}"}}],"usage":{"prompt_tokens":12,"total_tokens":42}}`,
	`{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `,"b":1}`, `{"a":[` + strings.Repeat(`{"b":[],"a":"`+strings.Repeat("x", 50)+`"},`, 20) + `{}]}`,
	`{"a":"` + strings.Repeat("y", jsonpath.MaxValue) + `"}`, `{"a":[1,{"b":"c"}, [ ] ]}`,
}

var paths = []string{
	"a", "b", "c", "d", "e", "a.b", "a.b.c", "a.0", "a.00", "a.1", "a.2.b", "a.20", "a.20.a", "0", "1", "11", "0.1.0", "1.0", "1.a", "a.-1", "0.0", "1.1", "x.a", "y.0.a", "10",
	`a\.b`, `a\*`, `a\?`, `\#`, `\@type`, `\!`, `a\|b`, `\{`, `\[0]`, `a\\b`, `\*`, "a[0]", "x@y", `\a`, `\0`, `a.\0`, "é", "😀", "a.é", "\ufffd", "\xff", "missing", "ab", "abc",
	"usage.total_tokens", "choices.0.message.content", "choices.0.message", "choices", "choices.1", "99999999999", "a.99999999999.b",
}

// feed feeds a text in pieces of some size, until the result is known.
func feed(r *jsonpath.Reader, text string, size int) {
	for len(text) > 0 {
		n := min(size, len(text))
		piece := []byte(text[:n])
		done := r.Feed(piece)
		if clear(piece); done { // the caller may change a piece afterwards
			return
		}
		text = text[n:]
	}
}

// read reads a text in pieces of some size.
func read(r *jsonpath.Reader, path *jsonpath.Path, text string, size int) (string, jsonpath.Kind) {
	r.Reset(path)
	feed(r, text, size)
	value, kind := r.Value()
	return string(value), kind
}

// want returns the find of gjson, which looks for an object even in a string.
func want(text, path string) (string, jsonpath.Kind) {
	if text := strings.TrimLeft(text, " \t\r\n"); text == "" || text[0] != '{' && text[0] != '[' {
		return "", jsonpath.Missing
	}
	result := gjson.Get(text, path)
	value, kind := result.Raw, jsonpath.Missing
	switch result.Type {
	case gjson.Null:
		if result.Exists() {
			kind = jsonpath.Null
		}
	case gjson.True, gjson.False:
		kind = jsonpath.Bool
	case gjson.Number:
		kind = jsonpath.Number
	case gjson.String:
		value, kind = result.Str, jsonpath.String
	case gjson.JSON:
		kind = jsonpath.Composite
	}
	if len(value) > jsonpath.MaxValue {
		return "", jsonpath.TooLong
	}
	return value, kind
}

func TestLikeGjson(t *testing.T) {
	t.Parallel()
	var r jsonpath.Reader
	found := 0
	for _, path := range paths {
		p, err := jsonpath.Compile(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		for _, text := range documents {
			wantValue, wantKind := want(text, path)
			if wantKind != jsonpath.Missing {
				found++
			}
			for _, size := range []int{1, 2, 3, 7, 1 << 20} {
				if value, kind := read(&r, p, text, size); value != wantValue || kind != wantKind {
					t.Errorf("%s of %.100s in pieces of %d: %q of kind %d, want %q of kind %d", path, text, size, value, kind, wantValue, wantKind)
				}
			}
		}
	}
	t.Logf("%d values", found)
}

func TestCompile(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"":                                      "an empty name at byte 1",
		"a.":                                    "an empty name at byte 3",
		".a":                                    "an empty name at byte 1",
		"a..b":                                  "an empty name at byte 3",
		`a\`:                                    `a \ at byte 2 that nothing follows`,
		"a.b*":                                  `a * at byte 4, which is supported only with a \ before it`,
		"a?":                                    `a ? at byte 2, which is supported only with a \ before it`,
		"a.#":                                   `a # at byte 3, which is supported only with a \ before it`,
		`a.#(b=1)`:                              `a # at byte 3, which is supported only with a \ before it`,
		"a|b":                                   `a | at byte 2, which is supported only with a \ before it`,
		"@this":                                 `a @ at byte 1, which is supported only with a \ before it`,
		"a.@type":                               `a @ at byte 3, which is supported only with a \ before it`,
		"!true":                                 `a ! at byte 1, which is supported only with a \ before it`,
		"{a,b}":                                 `a { at byte 1, which is supported only with a \ before it`,
		"a.[b,c]":                               `a [ at byte 3, which is supported only with a \ before it`,
		strings.Repeat("a", jsonpath.MaxPath+1): "a character at byte 1025, but 1024 bytes are the most",
	} {
		p, err := jsonpath.Compile(path)
		must.Equal(t, fmt.Sprint(err), want, "%.20s", path)
		must.Equal(t, p, nil, "%.20s: path", path)
	}
}

// TestMalformed has texts that are no JSON, which is noticed before there is a value, and those in
// which the value is complete before.
func TestMalformed(t *testing.T) {
	t.Parallel()
	var r jsonpath.Reader
	p := must.Get(jsonpath.Compile("a.b"))(t)
	for _, c := range []struct {
		text string
		kind jsonpath.Kind
	}{
		{`}`, jsonpath.Malformed}, {`x`, jsonpath.Malformed}, {"\xef\xbb\xbf{}", jsonpath.Malformed}, {`{`, jsonpath.Malformed}, {`[`, jsonpath.Malformed}, {`{a`, jsonpath.Malformed}, {`{"a"}`, jsonpath.Malformed}, {`{"a":}`, jsonpath.Malformed},
		{`{,}`, jsonpath.Malformed}, {`{"x":1,}`, jsonpath.Malformed}, {`{"x":1 "a":2}`, jsonpath.Malformed}, {`{"x":1]`, jsonpath.Malformed}, {`[1}`, jsonpath.Malformed}, {`[1,]`, jsonpath.Malformed}, {`[,1]`, jsonpath.Malformed}, {`{]`, jsonpath.Malformed},
		{`{"x":tru}`, jsonpath.Malformed}, {`{"x":truf,"a":{"b":1}}`, jsonpath.Malformed}, {`{"x":nul`, jsonpath.Malformed}, {`{"x":01,"a":{"b":1}}`, jsonpath.Malformed}, {`{"x":1.}`, jsonpath.Malformed}, {`{"x":-}`, jsonpath.Malformed}, {`{"x":1e}`, jsonpath.Malformed}, {`{"x":1e+}`, jsonpath.Malformed}, {`{"x":+1}`, jsonpath.Malformed}, {`{"x":.5}`, jsonpath.Malformed}, {`{"x":1x}`, jsonpath.Malformed}, {`{"x":NaN}`, jsonpath.Malformed},
		{"{\"x\":\"\n\"}", jsonpath.Malformed}, {`{"x":"\q"}`, jsonpath.Malformed}, {`{"x":"\u12g4"}`, jsonpath.Malformed}, {`{"x":"`, jsonpath.Malformed}, {`{"x\`, jsonpath.Malformed}, {`{"x":[[]`, jsonpath.Malformed},
		{`{"a":{"b":1`, jsonpath.Malformed}, {`{"a":{"b":"x`, jsonpath.Malformed}, {`{"a":{"b":[1`, jsonpath.Malformed}, {`{"a":{"b":1-`, jsonpath.Malformed},
		{`{"a":{"b":1,`, jsonpath.Number}, {`{"a":{"b":"x"x`, jsonpath.String}, {`{"a":{"b":[}`, jsonpath.Composite}, {`{"a":{"b":null`, jsonpath.Null},
		{`{"x":{a:[}},"a":{"b":true`, jsonpath.Bool}, {`{} x`, jsonpath.Missing}, {`7 x`, jsonpath.Missing}, {" \n", jsonpath.Missing}, {"", jsonpath.Missing},
	} {
		for _, size := range []int{1, 1000} {
			value, kind := read(&r, p, c.text, size)
			must.Equal(t, kind, c.kind, "%s in pieces of %d: the kind of %q", c.text, size, value)
		}
	}
}

// TestTooLong has values at the bound, which is one of what is returned, and not of what is written.
func TestTooLong(t *testing.T) {
	t.Parallel()
	var r jsonpath.Reader
	p := must.Get(jsonpath.Compile("a"))(t)
	const most = jsonpath.MaxValue
	for _, c := range []struct {
		value string
		kind  jsonpath.Kind
	}{
		{`"` + strings.Repeat("x", most) + `"`, jsonpath.String}, {`"` + strings.Repeat("x", most+1) + `"`, jsonpath.TooLong},
		{`"` + strings.Repeat(`\u0041`, most) + `"`, jsonpath.String}, {`"` + strings.Repeat(`\n`, most+1) + `"`, jsonpath.TooLong},
		{`"` + strings.Repeat("x", most-3) + `\ud800"`, jsonpath.String}, {`"` + strings.Repeat("x", most-2) + `\ud800"`, jsonpath.TooLong}, {`"` + strings.Repeat("x", most-3) + `\ud800\ud800"`, jsonpath.TooLong}, {`"` + strings.Repeat("x", most-2) + `\ud800\u0041"`, jsonpath.TooLong},
		{strings.Repeat("1", most), jsonpath.Number}, {strings.Repeat("1", most+1), jsonpath.TooLong},
		{`[` + strings.Repeat(" ", most-2) + `]`, jsonpath.Composite}, {`[` + strings.Repeat(" ", most-1) + `]`, jsonpath.TooLong},
	} {
		for _, size := range []int{1, 1000, 1 << 20} {
			value, kind := read(&r, p, `{"a":`+c.value+`}`, size)
			if kind != c.kind || len(value) > most || kind == jsonpath.TooLong && value != "" {
				t.Errorf("%d bytes in pieces of %d: %d bytes of kind %d, want %d", len(c.value), size, len(value), kind, c.kind)
			}
		}
	}
}

// TestPart takes strings in parts, also one that is longer than any value.
func TestPart(t *testing.T) {
	t.Parallel()
	p := must.Get(jsonpath.Compile("a"))(t)
	long := strings.Repeat("xyz/", jsonpath.MaxValue)
	for text, want := range map[string]string{
		`{"b":"x","a":"` + strings.ReplaceAll(long, "/", `\/`) + `","c":"y"}`: long, `{"a":"x`: "x", "{\"a\":\"x\n": "x", `{"a":""}`: "", `{"a":12}`: "", `{"a":["x"]}`: "", `{"b":"x"}`: "",
	} {
		for _, size := range []int{1, 2, 1000} {
			var r jsonpath.Reader
			r.Reset(p)
			got, from := "", -1
			for at, done := 0, false; at < len(text) && !done; {
				piece := text[at:min(at+size, len(text))]
				done = r.Feed([]byte(piece))
				at += len(piece)
				part, since := r.Part()
				if got += string(part); since > 0 {
					from = at - since
				}
			}
			must.Equal(t, got == want, true, "%.20q in pieces of %d: the string of %d bytes, not %d", text, size, len(want), len(got))
			_, behind, is := strings.Cut(text, `"a":"`)
			if !is {
				behind = text + " "
			}
			must.Equal(t, from, len(text)-len(behind), "%.20q in pieces of %d: it begins", text, size)
		}
	}
}

// TestReadingAllocatesNothing reads texts a million deep, and values at the bound.
func TestReadingAllocatesNothing(t *testing.T) {
	p := must.Get(jsonpath.Compile("a.b.1"))(t)
	var r jsonpath.Reader
	for _, c := range []struct {
		text []byte
		kind jsonpath.Kind
	}{
		{[]byte(`{"a":{"b":["` + strings.Repeat("x", 1<<20) + `",7]}}`), jsonpath.Number},
		{[]byte(`{"x":` + strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20) + `,"a":{"b":[0,"` + strings.Repeat(`\u00e9`, 2048) + `"]}}`), jsonpath.String},
		{[]byte(`{"a":{"b":` + strings.Repeat(`{"b":`, 1<<18)), jsonpath.Malformed},
		{[]byte(`{"a":{"b":[0,` + strings.Repeat(`[`, 1<<18)), jsonpath.TooLong},
	} {
		reading := func() {
			r.Reset(p)
			for rest := c.text; len(rest) > 0; {
				n := min(16<<10, len(rest))
				if r.Feed(rest[:n]) {
					break
				}
				rest = rest[n:]
			}
		}
		reading()
		_, kind := r.Value()
		must.Equal(t, kind, c.kind, "%.20s: kind", c.text)
		must.Equal(t, testing.AllocsPerRun(3, reading), 0, "%.20s: allocations", c.text)
	}
}

// FuzzLikeGjson holds readings of valid JSON, in two pieces and some, against gjson.
func FuzzLikeGjson(f *testing.F) {
	for i, text := range documents {
		f.Add(text, paths[i%len(paths)], uint16(i), uint8(i))
	}
	f.Fuzz(func(t *testing.T, text, path string, split uint16, size uint8) {
		p, err := jsonpath.Compile(path)
		if err != nil || !gjson.Valid(text) || differs(path) {
			t.Skip()
		}
		wantValue, wantKind := want(text, path)
		var r jsonpath.Reader
		if value, kind := read(&r, p, text, int(size)+1); value != wantValue || kind != wantKind {
			t.Errorf("%q of %q in pieces of %d: %q of kind %d, want %q of kind %d", path, text, int(size)+1, value, kind, wantValue, wantKind)
		}
		r.Reset(p)
		at := min(int(split), len(text))
		if !r.Feed([]byte(text[:at])) {
			r.Feed([]byte(text[at:]))
		}
		if value, kind := r.Value(); string(value) != wantValue || kind != wantKind {
			t.Errorf("%q of %q in pieces at %d: %q of kind %d, want %q of kind %d", path, text, at, value, kind, wantValue, wantKind)
		}
	})
}

// differs reports whether gjson takes a path for another path: in an array it does not look at \,
// so that an escaped | is a pipe and an escaped # a count; numbers beyond 64 bits begin anew.
func differs(path string) bool {
	if strings.Contains(path, `\|`) || strings.Contains(path, `\#`) {
		return true
	}
	for _, name := range strings.Split(path, ".") {
		if len(name) > 18 {
			return true
		}
	}
	return false
}

// FuzzHostile wants no text and no path to panic, to take more memory than is said, or to be read as
// another one if it comes in other pieces.
func FuzzHostile(f *testing.F) {
	for i, text := range documents {
		f.Add([]byte(text), paths[i%len(paths)], uint8(i))
		f.Add([]byte(text[:len(text)/2]), paths[i%len(paths)], uint8(i))
	}
	f.Fuzz(func(t *testing.T, text []byte, path string, size uint8) {
		p, err := jsonpath.Compile(path)
		if err != nil {
			if p != nil || !strings.Contains(err.Error(), " at byte ") {
				t.Errorf("%q: %v", path, err)
			}
			return
		}
		var r jsonpath.Reader
		whole, kind := read(&r, p, string(text), len(text)+1)
		if len(whole) > jsonpath.MaxValue || kind > jsonpath.Malformed || whole != "" && (kind == jsonpath.Missing || kind >= jsonpath.TooLong) {
			t.Errorf("%q of %q: %q of kind %d", path, text, whole, kind)
		}
		if value, other := read(&r, p, string(text), int(size)+1); value != whole || other != kind {
			t.Errorf("%q of %q in pieces of %d: %q of kind %d, in one %q of kind %d", path, text, int(size)+1, value, other, whole, kind)
		}
		if _, err := strconv.ParseFloat(whole, 64); kind == jsonpath.Number && err != nil && !strings.Contains(err.Error(), "range") {
			t.Errorf("%q of %q: the number %q", path, text, whole)
		}
	})
}

func BenchmarkFeed(b *testing.B) {
	text := []byte(`{"id":"x","choices":[{"message":{"content":"` + strings.Repeat("the quick brown fox ", 200) + `"}}],"usage":{"prompt_tokens":12,"total_tokens":42}}`)
	p := must.Get(jsonpath.Compile("usage.total_tokens"))(b)
	b.Run("jsonpath", func(b *testing.B) {
		var r jsonpath.Reader
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			r.Reset(p)
			r.Feed(text)
		}
	})
	b.Run("gjson", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			gjson.GetBytes(text, "usage.total_tokens")
		}
	})
}
