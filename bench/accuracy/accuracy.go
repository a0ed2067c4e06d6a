// Command accuracy measures how far the sliding window counter and sub-buckets are from a true sliding log, on generated
// traffic. It prints tables, and keeps README.md, the plots and the tests' table beside it up to date with them. With -check
// it writes nothing, and fails if these aren't what it would have written.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	dir := flag.String("dir", filepath.Join("bench", "accuracy"), "folder of README.md and the plots")
	check := flag.Bool("check", false, "write nothing; fail if what is in the folder is out of date")
	flag.Parse()
	if err := run(*dir, *check); err != nil {
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

func run(dir string, check bool) error {
	full := measure(full()...)
	fmt.Print(full)
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		return err
	}
	files, err := full.plots()
	if err != nil {
		return err
	}
	if files["README.md"], err = withTables(readme, full.String()); err != nil {
		return err
	}
	files[quickTables] = []byte(measure(quick()).String())
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		if !check {
			if err := os.WriteFile(path, files[name], 0o644); err != nil {
				return err
			}
			continue
		}
		there, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(there, files[name]) {
			return fmt.Errorf("%s is out of date: run go run ./bench/accuracy", path)
		}
	}
	return nil
}

// quickTables is the file that has the tables of the quick study.
const quickTables = "testdata/quick.txt"

// README.md has the tables between these.
const (
	tablesBegin = "\n```text\n"
	tablesEnd   = "```\n"
)

// withTables returns README.md with its tables replaced.
func withTables(readme []byte, tables string) ([]byte, error) {
	before, rest, begins := bytes.Cut(readme, []byte(tablesBegin))
	_, after, ends := bytes.Cut(rest, []byte(tablesEnd))
	if !begins || !ends {
		return nil, fmt.Errorf("README.md has no block of text for the tables")
	}
	return slices.Concat(before, []byte(tablesBegin+tables+tablesEnd), after), nil
}
