// Package page maintains the results of the studies in bench: a README.md with measured tables, and
// plots in one style.
package page

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Keep writes the files of a study, by their paths in its folder. With check it writes nothing, and
// returns an error if a file differs from its new content. The error says to run command.
func Keep(dir string, files map[string][]byte, check bool, command string) error {
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
			return fmt.Errorf("%s is out of date: run %s", path, command)
		}
	}
	return nil
}

// The tables of a README.md are between these lines.
const (
	tablesBegin = "\n```text\n"
	tablesEnd   = "```\n"
)

// WithTables returns a README.md with its blocks of text replaced, the first block by the first of
// tables, and so on. Each table must end with a line feed. If the numbers of blocks and tables
// differ, it returns an error.
func WithTables(readme []byte, tables ...string) ([]byte, error) {
	var out []byte
	rest := readme
	for i, table := range tables {
		before, block, begins := bytes.Cut(rest, []byte(tablesBegin))
		_, after, ends := bytes.Cut(block, []byte(tablesEnd))
		if !begins || !ends {
			return nil, fmt.Errorf("README.md has %d blocks of text for %d tables", i, len(tables))
		}
		out = slices.Concat(out, before, []byte(tablesBegin+table+tablesEnd))
		rest = after
	}
	if bytes.Contains(rest, []byte(tablesBegin)) {
		return nil, fmt.Errorf("README.md has more than %d blocks of text", len(tables))
	}
	return append(out, rest...), nil
}

// Between returns a README.md with the lines between two others replaced. Each of the two must be
// there exactly once.
func Between(readme []byte, begin, end, text string) ([]byte, error) {
	if bytes.Count(readme, []byte(begin+"\n")) != 1 || bytes.Count(readme, []byte(end+"\n")) != 1 {
		return nil, fmt.Errorf("README.md does not have %q and %q once each", begin, end)
	}
	before, rest, _ := bytes.Cut(readme, []byte(begin+"\n"))
	_, after, ends := bytes.Cut(rest, []byte(end+"\n"))
	if !ends {
		return nil, fmt.Errorf("README.md has %q before %q", end, begin)
	}
	return slices.Concat(before, []byte(begin+"\n"+text+end+"\n"), after), nil
}
