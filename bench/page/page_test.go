package page_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/bench/page"
	"weir/internal/must"
)

const readme = "# Title\n\n<!-- figures -->\nold 1\n\n<!-- end of figures -->\nbetween\n```sh\nmake\n```\n<!-- figures -->\n\n<!-- end of figures -->\nafter\n"

// Tables replace the previous tables, and the text around them stays.
func TestWithTables(t *testing.T) {
	got, err := page.WithTables(readme, "new 1\n", "\n| new | 2 |\n")
	want := "# Title\n\n<!-- figures -->\nnew 1\n\n<!-- end of figures -->\nbetween\n```sh\nmake\n```\n<!-- figures -->\n\n| new | 2 |\n\n<!-- end of figures -->\nafter\n"
	if err != nil || got != want {
		t.Errorf("got\n%s, %v, want\n%s", got, err, want)
	}
	if back, err := page.WithTables(got, "old 1\n", ""); err != nil || back != readme {
		t.Errorf("replacing the tables changed what is around them (%v)\n%s", err, back)
	}
	for _, tables := range [][]string{{"one\n"}, {"one\n", "two\n", "three\n"}} {
		if _, err := page.WithTables(readme, tables...); err == nil {
			t.Errorf("%d tables went into a README.md with two blocks", len(tables))
		}
	}
}

// A check finds files that differ or are missing, and writes nothing.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "README.md"), []byte(readme), 0o600))
	keep := func(check bool, table string) error {
		return page.Keep(dir, check, map[string]string{"quick.txt": "1\n"}, table, "2\n")
	}
	if keep(true, "old 1\n") == nil {
		t.Error("a check found what nobody had written")
	}
	must.OK(t, keep(false, "old 1\n"))
	must.Report(t, keep(true, "old 1\n"))
	before, _ := os.ReadFile(filepath.Join(dir, "README.md"))
	if err := keep(true, "new\n"); err == nil || !strings.HasSuffix(err.Error(), "README.md is out of date: run go run ./"+dir) {
		t.Errorf("got error %v", err)
	}
	if after, err := os.ReadFile(filepath.Join(dir, "README.md")); err != nil || string(after) != string(before) {
		t.Errorf("a check has written %q (%v)", after, err)
	}
}

// Named tables go into their own blocks, and nothing else changes. A name without a block is an error.
func TestKeepNamed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "README.md")
	with := func(a, b string) string {
		return readme + "\n<!-- figures of a -->\n" + a + "\n<!-- end of figures -->\nbetween\n\n<!-- figures of b -->\n" + b + "\n<!-- end of figures -->\nlast\n"
	}
	must.OK(t, os.WriteFile(file, []byte(with("", "old")), 0o600))
	must.OK(t, page.KeepNamed(file, map[string]string{"a": "\n| new |\n"}))
	if got, err := os.ReadFile(file); err != nil || string(got) != with("\n| new |\n", "old") {
		t.Errorf("got\n%s, %v", got, err)
	}
	if err := page.KeepNamed(file, map[string]string{"c": ""}); err == nil {
		t.Error("a table went nowhere")
	}
}

// Whole numbers have a comma between thousands. The values of a spread may have any order, and stay as they are.
func TestNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -123456: "-123,456"} {
		if got := page.Thousands(n); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	values := []float64{10, 1, 9, 2, 8, 3, 7, 4, 6, 5}
	if got, want := page.SpreadOf(values), (page.Spread{Median: 6, Low: 2, High: 10}); got != want || values[0] != 10 {
		t.Errorf("got %+v, want %+v of %v", got, want, values)
	}
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
	if got := strings.Join(ends, " "); got != "last first" {
		t.Errorf("ended %q", got)
	}
	if err == nil || err.Error() != "server: gone\nnot tidy" {
		t.Errorf("got %v", err)
	}
}
