// Package page keeps what the studies of bench leave in their folders: a README.md with tables that
// were measured, and plots in one style.
package page

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Keep writes the files of a study, by their paths in its folder; or with check, writes nothing and
// fails if a file there is not what it would have written. The error says to run command.
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

// A README.md has its tables between these.
const (
	tablesBegin = "\n```text\n"
	tablesEnd   = "```\n"
)

// WithTables returns a README.md with its blocks of text replaced: the first one by the first of
// tables, and so on. Each table ends with a line's end. It is an error if there are more blocks
// than tables, or fewer.
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

// Between returns a README.md with the lines between two others replaced, each of which is there
// once.
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
