package page_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"

	"weir/bench/page"
)

// Tables replace the previous tables, and the text around them stays.
func TestWithTables(t *testing.T) {
	readme := "# Title\n\n```text\nold 1\n```\nbetween\n```sh\nmake\n```\n\n```text\nold 2\n\nmore\n```\nafter\n"
	got, err := page.WithTables([]byte(readme), "new 1\n", "new 2\n")
	if err != nil {
		t.Fatal(err)
	}
	want := "# Title\n\n```text\nnew 1\n```\nbetween\n```sh\nmake\n```\n\n```text\nnew 2\n```\nafter\n"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if back, err := page.WithTables(got, "old 1\n", "old 2\n\nmore\n"); err != nil || string(back) != readme {
		t.Errorf("replacing the tables changed what is around them (%v)\n%s", err, back)
	}
	for _, tables := range [][]string{{"one\n"}, {"one\n", "two\n", "three\n"}} {
		if _, err := page.WithTables([]byte(readme), tables...); err == nil {
			t.Errorf("%d tables went into a README.md with two blocks", len(tables))
		}
	}
}

// The part between two lines is replaced, and the text around it stays.
func TestBetween(t *testing.T) {
	const begin, end = "<!-- begin -->", "<!-- end -->"
	for _, readme := range []string{"before\n<!-- begin -->\n<!-- end -->\nafter\n", "before\n<!-- begin -->\nold\n\nolder\n<!-- end -->\nafter\n"} {
		got, err := page.Between([]byte(readme), begin, end, "new\n")
		if want := "before\n<!-- begin -->\nnew\n<!-- end -->\nafter\n"; err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	for _, readme := range []string{"", "<!-- begin -->\n", "<!-- end -->\n", "<!-- end -->\n<!-- begin -->\n", "<!-- begin -->\n<!-- begin -->\n<!-- end -->\n"} {
		if got, err := page.Between([]byte(readme), begin, end, "new\n"); err == nil {
			t.Errorf("%q became %q", readme, got)
		}
	}
}

// A check finds files that differ or are missing, and writes nothing.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	files := map[string][]byte{"README.md": []byte("1\n"), "a.svg": []byte("<svg/>")}
	check := func() error { return page.Keep(dir, files, true, "go run ./study") }
	if err := check(); err == nil {
		t.Error("a check found what nobody had written")
	}
	if err := page.Keep(dir, files, false, ""); err != nil {
		t.Fatal(err)
	}
	if err := check(); err != nil {
		t.Error(err)
	}
	files["README.md"] = []byte("2\n")
	if err := check(); err == nil || !strings.HasSuffix(err.Error(), "README.md is out of date: run go run ./study") {
		t.Errorf("got error %v", err)
	}
	if there, err := os.ReadFile(filepath.Join(dir, "README.md")); err != nil || string(there) != "1\n" {
		t.Errorf("a check has written %q (%v)", there, err)
	}
}

// A chart has all of its lines and bounds in the legend, and is the same every time.
func TestChart(t *testing.T) {
	c := page.Chart{Title: "Title", X: "across", Y: "up", Bounds: []page.Bound{{Name: "a bound", At: 1, Horizontal: true}, {Name: "another", At: 2}},
		Lines: []page.Line{{Name: "first", Points: plotter.XYs{{X: 0, Y: 1}, {X: 2, Y: 3}}}, {Name: "second", Points: plotter.XYs{{X: 0, Y: 2}}, Apart: plotter.XYs{{X: 3, Y: 0}}}}}
	first, err := c.SVG()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"Title", "across", "up", "first", "second", "a bound", "another"} {
		if !strings.Contains(string(first), ">"+text+"<") {
			t.Errorf("the chart does not say %q", text)
		}
	}
	if second, err := c.SVG(); err != nil || !bytes.Equal(first, second) {
		t.Errorf("the chart differs the second time (%v)", err)
	}
}

// Bars begin at the top, each with its name, and are the same every time.
func TestBars(t *testing.T) {
	b := page.Bars{Title: "Title", X: "across", Bound: 1, Bars: []page.Bar{{Name: "first", At: 2, Low: 1, High: 4}, {Name: "second", At: 0.5, Low: 0.5, High: 0.5}}}
	drawn, err := b.SVG()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"Title", "across", "first", "second"} {
		if !strings.Contains(string(drawn), ">"+text+"<") {
			t.Errorf("the bars don't say %q", text)
		}
	}
	// Text is placed from the bottom up, as the plot is.
	if strings.Index(string(drawn), ">first<") < strings.Index(string(drawn), ">second<") {
		t.Error("the first bar is below the second")
	}
	if second, err := b.SVG(); err != nil || !bytes.Equal(drawn, second) {
		t.Errorf("the bars differ the second time (%v)", err)
	}
}

// Whole numbers have a comma between thousands.
func TestNumbers(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567.4: "1,234,567", -123456: "-123,456"} {
		if got := page.Thousands(n); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// The values of a spread may have any order, and its quantiles are among them.
func TestSpread(t *testing.T) {
	values := []float64{10, 1, 9, 2, 8, 3, 7, 4, 6, 5}
	if got, want := page.SpreadOf(values), (page.Spread{Median: 6, Low: 2, High: 10}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if values[0] != 10 {
		t.Error("the values were sorted in place")
	}
}
