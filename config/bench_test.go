package config_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"weir/config"
	"weir/internal/must"
)

// BenchmarkDocument reads and checks a configuration of ten rules. The floor only reads it, with
// the standard library.
func BenchmarkDocument(b *testing.B) {
	rules := make([]string, 10)
	for i := range rules {
		rules[i] = fmt.Sprintf(`{"name": "rule-%d", "match": {"path": {"prefix": "/v%d/"}}, "key": ["client_ip", {"header": "x-user"}],
			"limits": [{"limit": 10, "window": "1s"}, {"limit": 1000, "window": "1h", "algorithm": "fixed_window"}]}`, i, i)
	}
	document := []byte(`{"namespace": "bench", "rules": [` + strings.Join(rules, ", ") + `]}`)
	b.Run("ten rules", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			must.Get(config.Parse(document))(b)
		}
	})
	b.Run("floor", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v any
			must.OK(b, json.Unmarshal(document, &v))
		}
	})
}
