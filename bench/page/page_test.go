package page_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/bench/page"
	"weir/internal/must"
)

// Named tables go into their own blocks, and nothing else changes. A name without a block is an error.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "README.md")
	with := func(a, b string) string {
		return "# Title\n\n<!-- figures of a -->\n" + a + "\n<!-- end of figures -->\nbetween\n\n<!-- figures of b -->\n" + b + "\n<!-- end of figures -->\nlast\n"
	}
	must.OK(t, os.WriteFile(file, []byte(with("", "old")), 0o600))
	must.OK(t, page.Keep(file, map[string]string{"a": "\n| new |\n"}))
	must.Equal(t, must.Text(t, file), with("\n| new |\n", "old"), "")
	must.Fails(t, page.Keep(file, map[string]string{"c": ""}), "a table that goes nowhere")
}

// Whole numbers have a comma between thousands. The values of a spread may have any order, and stay as they are.
func TestNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -123456: "-123,456"} {
		must.Equal(t, page.Thousands(n), want, "")
	}
	values := []float64{10, 1, 9, 2, 8, 3, 7, 4, 6, 5}
	must.Equal(t, page.SpreadOf(values), page.Spread{Median: 6, Low: 2, High: 10}, "spread")
	must.Equal(t, values[0], 10, "the first value")
}

// A host ends everything that it has started, in turn, and reports all failures.
func TestHosted(t *testing.T) {
	var ends []string
	err := page.Hosted(func(t testing.TB) error {
		t.Cleanup(func() { ends = append(ends, "first") })
		t.Cleanup(func() {
			ends = append(ends, "last")
			t.Error("not tidy")
		})
		t.Fatalf("server: %v", errors.New("gone"))
		return errors.New("went on")
	})
	must.Equal(t, strings.Join(ends, " "), "last first", "ended")
	must.Equal(t, fmt.Sprint(err), "server: gone\nnot tidy", "")
}
