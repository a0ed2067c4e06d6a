package named_test

import (
	"testing"

	"weir/config"
	"weir/internal/must"
	"weir/internal/named"
)

// What the keys of a class share has an empty value in the place of the last, and no other.
func TestSharedKeys(t *testing.T) {
	for _, test := range []struct {
		fair     bool
		last     string
		accepted bool
	}{{true, "", true}, {true, "10.0.0.1", false}, {true, "ann", false}, {false, "", false}, {false, "10.0.0.1", true}} {
		rule := config.Rule{Name: "r", Key: []config.Selector{{Kind: config.SelectClientIP}}, Classes: &config.Classes{Fair: test.fair}}
		must.Equal(t, named.Check(&rule, []string{test.last, "batch"}) == nil, test.accepted, "fair %v, %q: accepted", test.fair, test.last)
	}
}
