package config_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"weir/config"
	"weir/internal/jsonpath/jsontest"
)

// TestClasses wants a document to be refused as no JSON if and only if it is none, or no well-formed Unicode.
func TestClasses(t *testing.T) {
	t.Parallel()
	texts, refused := 0, 0
	for text := range jsontest.Texts() {
		if rest := strings.TrimLeft(text, " \t\r\n"); rest == "" || rest[0] != '{' && rest[0] != '[' {
			continue // of another form
		}
		if strings.Contains(strings.ToLower(text), `\ud`) && json.Valid([]byte(text)) {
			continue // a surrogate may be alone
		}
		want := !json.Valid([]byte(text)) || !utf8.ValidString(text)
		_, err := config.Parse([]byte(text))
		if err == nil {
			t.Errorf("%q is a configuration", text)
			continue
		}
		if got := strings.Contains(err.Error(), "not JSON"); got != want {
			t.Errorf("%q: %v, want it to be no JSON: %t", text, err, want)
		}
		if texts++; want {
			refused++
		}
	}
	if t.Logf("%d texts, %d of them no JSON", texts, refused); refused < 10_000 {
		t.Errorf("only %d are no JSON", refused)
	}
}
