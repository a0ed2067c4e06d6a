package config

import (
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"weir/internal/must"
)

func TestParseDuration(t *testing.T) {
	const huge = math.MaxInt64
	tests := []struct {
		text   string
		millis int64
		ok     bool
	}{
		{"500ms", 500, true},
		{"1s", 1000, true},
		{"90s", 90_000, true},
		{"1h30m", 5_400_000, true},
		{"30m1h", 5_400_000, true},
		{"1d", 86_400_000, true},
		{"1d1h1m1s1ms", 90_061_001, true},
		{"1m1ms", 60_001, true},
		{"1m1m", 120_000, true},
		{"007s", 7000, true},
		{"0s", 0, true},
		{"9223372036854775807ms", huge, true},
		{"9223372036854775807ms1ms", huge, true},
		{"9223372036854775808ms", huge, true},
		{"1ms9223372036854775807ms", huge, true},
		{"106751991168d", huge, true},
		{strings.Repeat("9", 400) + "d", huge, true},
		{"1s" + strings.Repeat("9", 400) + "d2s", huge, true},
		{"", 0, false},
		{"1", 0, false},
		{"s", 0, false},
		{"-1s", 0, false},
		{"+1s", 0, false},
		{"1.5s", 0, false},
		{"1 s", 0, false},
		{" 1s", 0, false},
		{"1s ", 0, false},
		{"1s2", 0, false},
		{"1S", 0, false},
		{"1w", 0, false},
		{"1us", 0, false},
		{"1sm", 0, false},
		{"1 minute", 0, false},
		{"1_000s", 0, false},
		{"１s", 0, false},
		{"1h٣m", 0, false},
	}
	for _, tt := range tests {
		millis, ok := parseDuration(tt.text)
		if ok != tt.ok || ok && millis != tt.millis {
			t.Errorf("parseDuration(%.40q) = %d, %t, want %d, %t", tt.text, millis, ok, tt.millis, tt.ok)
		}
	}
}

func TestDurationString(t *testing.T) {
	for d, want := range map[Duration]string{
		Millisecond:                "1ms",
		Minute:                     "1m",
		366 * day:                  "366d",
		26*Hour + 1001*Millisecond: "1d2h1s1ms",
	} {
		must.Equal(t, d.String(), want, "%d", d)
	}
}

// FuzzParseDuration compares with time.ParseDuration where the grammars overlap.
func FuzzParseDuration(f *testing.F) {
	for _, seed := range []string{"1h30m", "1d", "500ms", "", "1", "-1s", "9223372036854775807ms1ms", "1.5h", "1µs"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		millis, ok := parseDuration(text)
		if millis < 0 {
			t.Fatalf("parseDuration(%q) = %d", text, millis)
		}
		if strings.Trim(text, "0123456789hms") != "" {
			return
		}
		// It refuses durations beyond the 292 years of a Duration.
		want, err := time.ParseDuration(text)
		if err == nil && text != "0" && (!ok || millis != want.Milliseconds()) {
			t.Errorf("parseDuration(%q) = %d, %t, want %d", text, millis, ok, want.Milliseconds())
		}
		if err != nil && ok && millis <= math.MaxInt64/int64(Millisecond) {
			t.Errorf("parseDuration(%q) = %d, want none: %v", text, millis, err)
		}
	})
}

func TestDecimal(t *testing.T) {
	tests := []struct {
		raw   string
		shift int
		n     int64
		whole bool
	}{
		{"100", 0, 100, true},
		{"100.0", 0, 100, true},
		{"1e+02", 0, 100, true},
		{"1E2", 0, 100, true},
		{"1000e-1", 0, 100, true},
		{"0.0001e6", 0, 100, true},
		{"999999999999999", 0, 999_999_999_999_999, true},
		{"9.99999999999999e+14", 0, 999_999_999_999_999, true},
		{"999999999999999.5", 0, 0, false},
		{"0", 0, 0, true},
		{"-0", 0, 0, true},
		{"0e999999999999", 0, 0, true},
		{"0.000", 0, 0, true},
		{"9999999999999999999", 0, math.MaxInt64, true},
		{"-1", 0, -1, true},
		{"1.5", 0, 0, false},
		{"1e-1", 0, 0, false},
		{"1e400", 0, math.MaxInt64, true},
		{"-1e400", 0, -math.MaxInt64, true},
		{"1e99999999999999999999", 3, math.MaxInt64, true},
		{"1e-99999999999999999999", 3, 0, false},
		{"0." + strings.Repeat("0", 300) + "1e301", 0, 1, true},
		{"1" + strings.Repeat("0", 300) + "e-300", 0, 1, true},
		{"0.5", 3, 500, true},
		{"0.0005", 3, 0, false},
	}
	for _, tt := range tests {
		n, whole := parseDecimal(tt.raw).scaled(tt.shift)
		must.Equal(t, n, tt.n, "%.40s shifted by %d", tt.raw, tt.shift)
		must.Equal(t, whole, tt.whole, "%.40s shifted by %d is a whole number", tt.raw, tt.shift)
	}
}

// FuzzDecimal compares with math/big.
func FuzzDecimal(f *testing.F) {
	f.Add(int64(15), uint8(1), int16(1), 0)
	f.Add(int64(-1), uint8(0), int16(-400), 3)
	f.Fuzz(func(t *testing.T, digits int64, point uint8, exponent int16, shift int) {
		if shift < 0 || shift > 3 {
			return
		}
		raw := strconv.FormatInt(digits, 10)
		sign, raw := raw[:len(raw)-len(strings.TrimLeft(raw, "-"))], strings.TrimLeft(raw, "-")
		if i := int(point); i > 0 && i < len(raw) {
			raw = raw[:i] + "." + raw[i:]
		}
		raw = sign + raw + "e" + strconv.Itoa(int(exponent%500))
		want, ok := new(big.Rat).SetString(raw)
		must.EqualOrEnd(t, ok, true, "%s is no number", raw)
		want.Mul(want, new(big.Rat).SetInt64(int64(math.Pow10(shift))))
		n, whole := parseDecimal(raw).scaled(shift)
		must.EqualOrEnd(t, whole, want.IsInt(), "%s shifted by %d: whole is", raw, shift)
		if limit := big.NewInt(1e18); whole && want.Num().CmpAbs(limit) < 0 && want.Num().Int64() != n {
			t.Fatalf("%s shifted by %d is %d, want %s", raw, shift, n, want.Num())
		} else if whole && want.Num().CmpAbs(limit) >= 0 && (n != math.MaxInt64*int64(want.Sign())) {
			t.Fatalf("%s shifted by %d is %d, want the nearest int64", raw, shift, n)
		}
	})
}

// FuzzSyntax compares with encoding/json, which lets lone surrogates, invalid UTF-8 and more depth
// pass.
func FuzzSyntax(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `[1, 2.5e-3, -0, "a\n\u00e4\ud83d\ude00", true, false, null, {"a": [{}], "b": ""}]`, ` "x" `,
		`tru`, `{"a" 1}`, `[1,]`, `{"a":1,}`, `[}`, `01`, `1.`, `1e`, `-`, `"\`, `"\u12"`, `"\ud800"`,
		`"\ud800\u0041"`, `"\udc00\ud800"`,
		"\"\x00\"", "\"\xff\"", "\x00", "{} {}", "\ufeff{}", "[\v1]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		problem, _ := checkSyntax(text)
		valid := json.Valid([]byte(text))
		if problem == "" && (!valid || !utf8.ValidString(text)) {
			t.Errorf("%q passes", text)
		}
		stricter := !utf8.ValidString(text) || strings.Contains(strings.ToLower(text), `\ud`) || strings.Count(text, "[")+
			strings.Count(text, "{") > maxDepth
		if problem != "" && valid && !stricter {
			t.Errorf("%q: %s", text, problem)
		}
	})
}

func TestSuggest(t *testing.T) {
	fields := []field{{name: "window"}, {name: "limit"}, {name: "sync_rate"}, {name: "key"}}
	for name, want := range map[string]string{
		"windwo":    `did you mean "window"?`,
		"Window":    `did you mean "window"?`,
		"syncRate":  `did you mean "sync_rate"?`,
		"SYNC-RATE": `did you mean "sync_rate"?`,
		"limits":    `did you mean "limit"?`,
		"keyed_by":  `did you mean "key"?`,
		"colour":    "want window, limit, sync_rate or key",
		"":          "want window, limit, sync_rate or key",

		strings.Repeat("window", 1000): "want window, limit, sync_rate or key",
	} {
		must.Equal(t, suggest(name, fields), want, "suggest(%.20q)", name)
	}
}
