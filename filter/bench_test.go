package filter_test

import (
	"fmt"
	"testing"

	"weir/internal/must"
	"weir/internal/proxywasm"
)

// BenchmarkMatch finds the rules of a request and their keys. The floor reads one header of the
// same fake host.
func BenchmarkMatch(b *testing.B) {
	rules := func(n int, match func(i int) string) string {
		document := `{"rules": [`
		for i := range n {
			if i > 0 {
				document += ", "
			}
			document += fmt.Sprintf(`{"name": "rule-%d", %s "key": [{"header": "x-user"}], "limits": [{"limit": 1000, "window": "1m"}]}`, i, match(i))
		}
		return document + `]}`
	}
	all := func(int) string { return "" }
	last := func(i int) string {
		return fmt.Sprintf(`"match": {"path": {"prefix": %q}},`, map[bool]string{true: "/api/", false: fmt.Sprintf("/v%d/", i)}[i == 9])
	}
	request := map[string][]byte{":method": []byte("GET"), ":path": []byte("/api/items?page=2"), "x-user": []byte("user-000001")}
	for _, test := range []struct {
		name, configuration string
		matches             int
	}{
		{"one rule", rules(1, all), 1},
		{"no rule of nine", rules(9, last), 0},
		{"one rule of ten", rules(10, last), 1},
		{"ten rules of ten", rules(10, all), 10},
	} {
		b.Run(test.name, func(b *testing.B) {
			p := newProxy(b)
			v := p.start(test.configuration)
			v.request, p.calls = request, nil
			defer proxywasm.Use(v)()
			b.ReportAllocs()
			for b.Loop() {
				checks := v.plugin.Find()
				must.EqualOrEnd(b, len(checks), test.matches, "rules that match")
			}
		})
	}
	b.Run("floor", func(b *testing.B) {
		p := newProxy(b)
		v := p.start(rules(1, all))
		v.request, p.calls = request, nil
		defer proxywasm.Use(v)()
		var key []byte
		for b.Loop() {
			value, _ := proxywasm.RequestHeader("x-user")
			key = append(key[:0], value...)
		}
	})
}
