package config_test

import (
	"os"
	"regexp"
	"testing"

	"weir/config"
	"weir/internal/must"
)

// The configurations in the pages are valid. The tests of envoy/ run the configuration inside
// Envoy's.
func TestPages(t *testing.T) {
	t.Parallel()
	for page, least := range map[string]int{"../docs/configuration.md": 2} {
		text := must.Get(os.ReadFile(page))(t)
		shown := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(text, -1)
		must.AtLeast(t, len(shown), least, "%s shows configurations", page)
		for _, document := range shown {
			_, err := config.Parse(document[1])
			must.Reportf(t, err, "%s: %s", page, document[1])
		}
	}
}
