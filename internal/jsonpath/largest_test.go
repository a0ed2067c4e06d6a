package jsonpath_test

import (
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"weir/internal/jsonpath"
	"weir/internal/must"
)

// numbersOf reads all of a text in pieces of some size.
func numbersOf(t *testing.T, r *jsonpath.Reader, path, text string, size int) jsonpath.Numbers {
	t.Helper()
	r.ResetAll(must.Get(jsonpath.CompileNumber(path))(t))
	feed(r, text, size)
	return r.Numbers()
}

// understated are texts by which a client could have another number read than the number that
// counts.
var understated = []struct {
	path, text string
	want       jsonpath.Numbers
}{
	{"n", `{"n":1}`, jsonpath.Numbers{1, true, false, true}},
	{"n", `{"n":1,"n":8000}`, jsonpath.Numbers{8000, true, false, true}},
	{"n", `{"n":8000,"n":1}`, jsonpath.Numbers{8000, true, false, true}},
	{"n", `{"n":1,"n":"8000"}`, jsonpath.Numbers{8000, true, false, true}},
	{"n", `{"n":1,"N":8000}`, jsonpath.Numbers{8000, true, false, true}},
	{"n", `{"N":8000}`, jsonpath.Numbers{8000, true, true, true}},
	{"task", `{"task":1,"TaſK":8000}`, jsonpath.Numbers{8000, true, false, true}},
	{"task", `{"task":1,"Ta\u017f\u212a":8000}`, jsonpath.Numbers{8000, true, false, true}},
	{"n", `{"n":1,"nn":8000,"":7,"ñ":7}`, jsonpath.Numbers{1, true, false, true}},
	{"max_tokens", `{"max_tokens":1,"max\u005ftokens":8000}`, jsonpath.Numbers{8000, true, false, true}},
	{"n", `{"n":1,"n":null}`, jsonpath.Numbers{1, true, true, true}},
	{"n", `{"n":null}`, jsonpath.Numbers{0, false, true, true}},
	{"n", `{"n":8e3}`, jsonpath.Numbers{8000, true, false, true}},
	{"n", `{"n":1e999}`, jsonpath.Numbers{math.MaxUint64, true, false, true}},
	{"n", `{"n":-5}`, jsonpath.Numbers{}},
	{"n", `{"n":-0}`, jsonpath.Numbers{}},
	{"n", `{"n":1.5}`, jsonpath.Numbers{}},
	{"n", `{"n":1,"n":true}`, jsonpath.Numbers{1, true, false, false}},
	{"n", `{"n":1,"n":[8000]}`, jsonpath.Numbers{1, true, false, false}},
	{"n", `{"n":1,"n":"8_000"}`, jsonpath.Numbers{1, true, false, false}},
	{"a.n", `{"a":{"n":1},"a":{"n":8000}}`, jsonpath.Numbers{8000, true, false, true}},
	{"a.n", `{"a":{"n":8000},"a":{"n":1}}`, jsonpath.Numbers{8000, true, false, true}},
	{"a.n", `{"a":{"n":1},"a":{}}`, jsonpath.Numbers{1, true, true, true}},
	{"a.n", `{"a":{"n":1},"a":7}`, jsonpath.Numbers{1, true, true, true}},
	{"a.n", `{"a":{"n":1},"a":null}`, jsonpath.Numbers{1, true, true, true}},
	{"a.n", `{"a":{"n":1},"A":{"N":8000}}`, jsonpath.Numbers{8000, true, false, true}},
	{"a.n", `{"a":{"n":1},"A":{}}`, jsonpath.Numbers{1, true, false, true}},
	{"a.n", `{"A":{"n":1}}`, jsonpath.Numbers{1, true, true, true}},
	{"a.1.n", `{"a":[{"n":5},{"n":6},{"n":7}]}`, jsonpath.Numbers{6, true, false, true}},
	{"a.1.n", `{"a":[{"n":5},6]}`, jsonpath.Numbers{0, false, true, true}},
	{"#", `[{"id":1},[2,3],{},"#",[]]`, jsonpath.Numbers{5, true, false, true}},
	{"#", `[]`, jsonpath.Numbers{0, true, false, true}},
	{"#", `[1,]`, jsonpath.Numbers{}},
	{"#", `[1,2`, jsonpath.Numbers{}},
	{"#", `{"id":1}`, jsonpath.Numbers{0, false, true, true}},
	{"#", `{"#":3}`, jsonpath.Numbers{0, false, true, true}},
	{"a.#", `{"a":{"#":0}}`, jsonpath.Numbers{0, false, true, true}},
	{"a.#", `{"a":[1,2],"a":[1,2,3]}`, jsonpath.Numbers{3, true, false, true}},
	{"a.#", `{"A":[1,2,3],"a":[1]}`, jsonpath.Numbers{3, true, false, true}},
	{"a.#", `{"a":[1],"b":[1,2,3]}`, jsonpath.Numbers{1, true, false, true}},
	{"a.#", `{"a":[1],"a":null}`, jsonpath.Numbers{1, true, true, true}},
	{"1.#", `[[1],[1,2]]`, jsonpath.Numbers{2, true, false, true}},
	{"n", `{}`, jsonpath.Numbers{0, false, true, true}},
	{"n", ``, jsonpath.Numbers{0, false, true, true}},
	{"n", " \r\n", jsonpath.Numbers{0, false, true, true}},
	{"n", " \n{\"n\":1}\t", jsonpath.Numbers{1, true, false, true}},
	{"n", "\ufeff{\"n\":1}", jsonpath.Numbers{}},
	{"n", "{\x00\"\x00n\x00\"\x00:\x001\x00}\x00", jsonpath.Numbers{}},
	{"n", "\xff\xfe{\x00}\x00", jsonpath.Numbers{}},
	{"n", `{"n":1}{"n":8000}`, jsonpath.Numbers{1, true, false, false}},
	{"n", `{"n":1}=&n=8000`, jsonpath.Numbers{1, true, false, false}},
	{"n", `{"n":1`, jsonpath.Numbers{}},
	{"n", `{"n":1,`, jsonpath.Numbers{1, true, false, false}},
	{"n", `7`, jsonpath.Numbers{}},
	{"n", `1=&n=8000`, jsonpath.Numbers{}},
	{"n", "--b\r\n\r\n{\"n\":1}\r\n--b--", jsonpath.Numbers{}},
	{"n", "{\"x\":[\"\r\n--b\r\nn: 8000\"]}", jsonpath.Numbers{}},
	{"n", `{"x":[/*"*/],"n":8000,"y":["*/ 1"]}`, jsonpath.Numbers{}},
	{"n", `{"x":['"'],"n":8000,"y":['"']}`, jsonpath.Numbers{}},
	{"n", "{\"x\":[#\"\n],\"n\":8000,\"y\":[\"\"]}", jsonpath.Numbers{}},
	{"n", `{"n":"` + strings.Repeat("1", jsonpath.MaxValue+1) + `"}`, jsonpath.Numbers{}},
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	var r jsonpath.Reader
	for _, c := range understated {
		for _, size := range []int{1, 2, 3, 5, 1 << 20} {
			must.Equal(t, numbersOf(t, &r, c.path, c.text, size), c.want, "%s of %.60q in pieces of %d", c.path, c.text, size)
		}
	}
}

// FuzzNumbers wants no parser to find more in a text than was read of it, unless that tells that it
// may: gjson, which takes the first of names, and Go's, which takes the last, and takes no notice
// of capitals where it fills a struct. A sound text is JSON, as far as the names of the path have a
// part in it.
func FuzzNumbers(f *testing.F) {
	for _, c := range understated {
		f.Add(strings.ReplaceAll(c.text, `"n"`, `"max_tokens"`), uint8(3))
		f.Add(`{"a":`+strings.ReplaceAll(c.text, `"n"`, `"max_tokens"`)+`}`, uint8(1))
	}
	for _, text := range append(documents, `[1,2,{"a":[1]}]`, `{"a":[1,[2]],"A":[1],"a":{}}`, `{"a":[[],{}],"#":1}`) {
		f.Add(text, uint8(7))
	}
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		var r jsonpath.Reader
		for _, path := range []string{"max_tokens", "a.max_tokens", "#", "a.#"} {
			got := numbersOf(t, &r, path, text, len(text)+1)
			must.EqualOrEnd(t, numbersOf(t, &r, path, text, int(size)+1), got, "%s of %q: in pieces of %d, %+v in one", path, text, int(size)+1, got)
			if !got.Found && got.Largest != 0 || got.Sound && !got.Found && !got.Lacking {
				t.Fatalf("%s of %q: %+v", path, text, got)
			}
			if !strings.HasSuffix(path, "#") {
				wantOnly(t, &r, path, text, int(size)+1)
			}
			for parser, found := range map[string]any{"first": first(path, text), "last": last(path, text), "struct": filled(path, text)} {
				if !got.Sound {
					continue
				}
				number, ok := found.(json.Number)
				if !ok {
					must.EqualOrEnd(t, got.Lacking, true, "%s of %q: the %s is %v, got %+v", path, text, parser, found, got)
					continue
				}
				if n, ok := jsonpath.Natural([]byte(number)); !ok || n > got.Largest {
					t.Fatalf("%s of %q: the %s is %s, got %+v", path, text, parser, number, got)
				}
			}
		}
	})
}

// refused stands for the find of a parser in a text that it does not take.
const refused = json.Number("0")

func first(path, text string) any {
	result := gjson.Get(text, path)
	if before, counts := strings.CutSuffix(path, "#"); counts {
		in := gjson.Parse(text)
		if before != "" {
			in = gjson.Get(text, strings.TrimSuffix(before, "."))
		}
		if gjson.Valid(text) && !in.IsArray() {
			return nil // that is a member's name
		}
	}
	switch {
	case !gjson.Valid(text):
		return refused
	case result.Type == gjson.Number:
		return json.Number(result.Raw)
	case result.Type == gjson.String:
		return json.Number(result.Str)
	}
	return nil
}

func last(path, text string) any {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var found any
	if decoder.Decode(&found) != nil {
		return refused
	}
	for _, name := range strings.Split(path, ".") {
		switch in := found.(type) {
		case map[string]any:
			if found = in[name]; name == "#" {
				found = nil // that is no array
			}
		case []any:
			if found = nil; name == "#" {
				found = json.Number(strconv.Itoa(len(in)))
			}
		default:
			found = nil
		}
	}
	if s, ok := found.(string); ok {
		return json.Number(s)
	}
	return found
}

func filled(path, text string) any {
	type numbers struct {
		Tokens any `json:"max_tokens"`
	}
	var document struct {
		numbers
		A numbers `json:"a"`
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&document) != nil {
		return refused
	}
	found := document.Tokens
	switch path {
	case "a.max_tokens":
		found = document.A.Tokens
	case "#", "a.#":
		return last(path, text)
	}
	if s, ok := found.(string); ok {
		return json.Number(s)
	}
	return found
}

func TestNatural(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint64{
		"0": 0, "8000": 8000, "8000.0": 8000, "8e3": 8000, "8E+3": 8000, "80e2": 8000, "0.8e4": 8000, "8000000e-3": 8000, "8000.000e0": 8000, "0e-999": 0, "0.0": 0,
		"18446744073709551615": math.MaxUint64, "18446744073709551616": math.MaxUint64, "1e999": math.MaxUint64, "1e99999999999999999999": math.MaxUint64,
		"0e99999999999999999999": 0, "0008": 8, "1844674407370955161.5e1": math.MaxUint64,
	} {
		if got, ok := jsonpath.Natural([]byte(text)); !ok || got != want {
			t.Errorf("%s: %d, %t", text, got, ok)
		}
	}
	for _, text := range []string{"", "-1", "-0", "+1", "1.", ".5", "1.5", "1e", "1e+", "e3", "15e-1", "1e-1", "1e-99999999999999999999", "1_000", " 1", "1 ", "0x1", "1e3.0", "1.0.0", "ten", "Infinity", "NaN", "１"} {
		if got, ok := jsonpath.Natural([]byte(text)); ok {
			t.Errorf("%q: %d", text, got)
		}
	}
}

// FuzzNatural holds numbers against those of math/big.
func FuzzNatural(f *testing.F) {
	for _, text := range []string{"8000", "8e3", "1.50e1", "1e20", "1e-1", "-1", "00.10e01", "1e"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := jsonpath.Natural([]byte(text))
		// A float's grammar is that of the number, but for hexadecimals and words.
		if _, err := strconv.ParseFloat(text, 64); (err != nil && !strings.Contains(err.Error(), "range")) || len(text) == 0 || strings.Trim(text, "0123456789.eE+-") != "" || text[0] < '0' || text[0] > '9' {
			must.EqualOrEnd(t, ok, false, "%q: %d", text, got)
			return
		}
		if !utf8.ValidString(text) || strings.Contains(text, ".e") || strings.Contains(text, ".E") || text[len(text)-1] == '.' {
			return // which JSON does not have
		}
		mantissa, power, _ := strings.Cut(strings.ToLower(text), "e")
		if n, err := strconv.Atoi(power); power != "" && (err != nil || n > 3000 || n < -3000) || len(mantissa) > 300 {
			return // large, and slow there
		}
		want, exact := new(big.Rat).SetString(text)
		must.EqualOrEnd(t, exact, true, "%q is no number", text)
		switch most := new(big.Int).SetUint64(math.MaxUint64); {
		case !want.IsInt():
			must.EqualOrEnd(t, ok, false, "%q: %d", text, got)
		case !ok:
			t.Fatalf("%q is none", text)
		case want.Num().Cmp(most) >= 0:
			must.EqualOrEnd(t, got, math.MaxUint64, "%q", text)
		case want.Num().Uint64() != got:
			t.Fatalf("%q: %d, want %s", text, got, want)
		}
	})
}
