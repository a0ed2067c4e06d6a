package config_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"weir/config"
	"weir/internal/jsonpath/jsontest"
	"weir/internal/must"
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
		must.Equal(t, strings.Contains(err.Error(), "not JSON"), want, "%q: %v, want it to be no JSON", text, err)
		if texts++; want {
			refused++
		}
	}
	t.Logf("%d texts, %d of them no JSON", texts, refused)
	must.AtLeast(t, refused, 10_000, "texts that are no JSON")
}
