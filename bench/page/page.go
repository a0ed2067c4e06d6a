// Package page is what the programs in bench share: how they start and end, and how their tables get into a README.md.
package page

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"weir/internal/must"
)

// Main runs a program until it ends or is interrupted. Its flags must be defined before.
func Main(name string, run func(ctx context.Context) error) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Matching returns which names match a regular expression, the value of the flag -only. It returns an error if none does.
func Matching(only string, names []string) (map[string]bool, error) {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	matching := map[string]bool{}
	for _, name := range names {
		if pattern.MatchString(name) {
			matching[name] = true
		}
	}
	if len(matching) == 0 {
		return nil, fmt.Errorf("-only: want one of %s, got %.40q", strings.Join(names, ", "), only)
	}
	return matching, nil
}

// Keep writes tables into a page, each into the block of its name, and leaves its other blocks.
func Keep(file string, tables map[string]string) error {
	readme, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	written := string(readme)
	for name, table := range tables {
		head, end := "\n<!-- figures of "+name+" -->\n", "<!-- end of figures -->\n"
		before, rest, begins := strings.Cut(written, head)
		_, after, ends := strings.Cut(rest, end)
		if !begins || !ends {
			return fmt.Errorf("%s has no block of figures of %s", file, name)
		}
		written = before + head + table + "\n" + end + after
	}
	return os.WriteFile(file, []byte(written), 0o644)
}

// quick is the file with the tables that a study's test makes anew.
const quick = "testdata/quick.txt"

// KeepStudy is [Keep] of the README.md in a study's folder, and keeps the tables of its test.
func KeepStudy(study, fast string, tables map[string]string) error {
	dir := filepath.Join("bench", study)
	return errors.Join(Keep(filepath.Join(dir, "README.md"), tables), os.WriteFile(filepath.Join(dir, quick), []byte(fast), 0o644))
}

// Kept fails a test unless it has the tables that the study has kept, so that a change comes with new figures.
func Kept(t testing.TB, study, tables string) {
	t.Helper()
	kept := must.Get(os.ReadFile(quick))(t)
	if tables != string(kept) {
		t.Errorf("figures have changed: run go run ./bench/%s\ngot:\n%s\nwant:\n%s", study, tables, kept)
	}
}

// Table returns a table in Markdown. Its rows have tabs between their cells; the first is its heading.
func Table(rows ...string) string {
	table := Head(strings.Split(rows[0], "\t")...)
	for _, row := range rows[1:] {
		table += Row(strings.Split(row, "\t")...)
	}
	return table
}

// Head returns the first rows of a table in Markdown: its heading, and the alignment of its columns.
func Head(cells ...string) string {
	return "\n" + Row(cells...) + "| ---" + strings.Repeat(" | --:", len(cells)-1) + " |\n"
}

// Row returns a row of a table in Markdown.
func Row(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }

// Spread describes values by their median, and their 10 % and 90 % quantiles.
type Spread struct{ Median, Low, High float64 }

// SpreadOf returns the spread of values. There must be at least one.
func SpreadOf(values []float64) Spread {
	return Spread{Median: Quantile(values, 0.5), Low: Quantile(values, 0.1), High: Quantile(values, 0.9)}
}

// Quantile returns the value below which a share of values is. There must be at least one.
func Quantile(values []float64, share float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

// Thousands formats a whole number with commas.
func Thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
