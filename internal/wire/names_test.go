package wire

import (
	"regexp"
	"strings"
	"testing"

	"weir/internal/must"
)

// Names consist of the characters that errors and documents say, and are no longer.
func TestNames(t *testing.T) {
	t.Parallel()
	name, namespace := regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`), regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	texts := []string{"", strings.Repeat("r", MaxName), strings.Repeat("r", MaxName+1), "per-user", "shop.example", "a\nb", "ä", "a\n"}
	for c := range 256 {
		texts = append(texts, string([]byte{byte(c)}), string([]byte{'r', byte(c)}))
	}
	for _, text := range texts {
		must.Equal(t, IsName(text), name.MatchString(text), "rule %q", text)
		must.Equal(t, IsNamespace(text), namespace.MatchString(text), "namespace %q", text)
	}
}
