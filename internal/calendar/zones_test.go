package calendar

import (
	"archive/zip"
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write zones.txt")

// The table has the zones of Go's own, and what it says of them until 2100.
func TestZones(t *testing.T) {
	t.Parallel()
	from, until := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	lines := map[string][]string{}
	for name, data := range tables(t) {
		location, err := time.LoadLocationFromTZData(name, data)
		if err != nil {
			t.Fatal(err)
		}
		text := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
		rule := string(text[len(text)-1])
		z := parse(rule)
		if z == nil {
			t.Fatalf("%s: the rule %q has another form", name, rule)
		}
		var all, needed []changed
		for at := from; at.Before(until); {
			_, offset := at.In(location).Zone()
			before := int64(offset)
			if len(all) > 0 {
				before = all[len(all)-1].offset
			}
			if at == from || before != int64(offset) {
				all = append(all, changed{at.Unix(), int64(offset)})
			}
			if z.offset(at.Unix()) != int64(offset) || at != from && z.offset(at.Unix()-1) != before {
				needed = all
			}
			_, next := at.In(location).ZoneBounds()
			if !next.After(at) {
				break // there is none
			}
			at = next
		}
		if len(needed) > 0 {
			needed = all[:min(len(needed)+1, len(all))] // the last change is by the rule, or to what it says
		}
		line, last := rule, changed{}
		for _, c := range needed {
			line += fmt.Sprintf(" %d:%d", (c.at-last.at)/900, (c.offset-last.offset)/900)
			last = c
		}
		lines[line] = append(lines[line], name)
	}
	var b strings.Builder
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		slices.Sort(lines[line])
		fmt.Fprintf(&b, "%s %s \n", line, strings.Join(lines[line], " "))
	}
	if *update {
		if err := os.WriteFile("zones.txt", []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if b.String() != zones {
		t.Errorf("zones.txt is not of this Go: go test ./internal/calendar -update")
	}
}

// tables are Go's own, by the names of the zones.
func tables(t *testing.T) map[string][]byte {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	all := map[string][]byte{}
	for _, f := range archive.File {
		if strings.HasSuffix(f.Name, "/") || f.Name == "Factory" {
			continue
		}
		file, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if all[f.Name], err = io.ReadAll(file); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// location is a zone of Go's own table.
func location(t *testing.T, name string) *time.Location {
	t.Helper()
	l, err := time.LoadLocationFromTZData(name, tables(t)[name])
	if err != nil {
		t.Fatal(err)
	}
	return l
}
