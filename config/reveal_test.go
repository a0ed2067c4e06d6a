package config

import (
	"fmt"
	"testing"

	"weir/internal/must"
)

func TestReveal(t *testing.T) {
	parse := func(value string) (*Config, error) {
		return Parse([]byte(`{"rules": [{"name": "r", ` + value + `"limits": [{"limit": 1, "window": "1m"}]}]}`))
	}
	for value, want := range map[string]uint8{
		``: 0, `"reveal": "hash", `: 0, `"reveal": "plain", `: RevealPlain, `"reveal": 1, `: 1, `"reveal": 6.4e+01, `: 64,
	} {
		must.Equal(t, must.Get(parse(value))(t).Rules[0].Reveal, want, "%s", value)
	}
	for _, value := range []string{`"Plain"`, `0`, `65`, `1.5`, `-1`, `true`, `null`, `[4]`, `""`} {
		_, err := parse(`"reveal": ` + value + `, `)
		must.Contains(t, fmt.Sprint(err), `rules[0].reveal: want "hash", "plain", or an integer from 1 to 64, got `, "%s", value)
	}
}
