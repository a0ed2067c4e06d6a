package config

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"weir/internal/must"
)

// ArchiveFile is a document of an archive in testdata, and its mistakes as they are told.
type ArchiveFile struct {
	Name             string
	Content, Refused []byte
}

// ReadArchive reads the files of an archive in the format of golang.org/x/tools/txtar, in their
// order. Each begins with a line "-- name --", and the text before the first is a comment. A line
// with a mistake begins with "! ". That module has 15 MB, and tests of documents need only this.
func ReadArchive(t testing.TB, name string) (files []ArchiveFile) {
	t.Helper()
	archive := must.Get(os.ReadFile("testdata/" + name))(t)
	seen := map[string]bool{}
	for line := range bytes.Lines(archive) {
		if title, ok := strings.CutPrefix(string(line), "-- "); ok {
			title, ok = strings.CutSuffix(title, " --\n")
			if !ok || title == "" || seen[title] {
				t.Fatalf("testdata/%s: the line %q is no title, or a second of its name", name, line)
			}
			seen[title] = true
			files = append(files, ArchiveFile{Name: title})
		} else if len(files) > 0 {
			last := &files[len(files)-1]
			if mistake, ok := bytes.CutPrefix(line, []byte("! ")); ok {
				last.Refused = append(last.Refused, mistake...)
			} else {
				last.Content = append(last.Content, line...)
			}
		}
	}
	if len(files) == 0 {
		t.Fatalf("testdata/%s has no files", name)
	}
	return files
}

// plainRule stands in mistakes.txt where a document has RULE.
const plainRule = `"name": "r", "limits": [{"limit": 5, "window": "1m"}]`

// ReadMistakes reads the documents with mistakes: those of testdata/bad.txtar, and those of
// testdata/mistakes.txt. There a line has a document's name, a space and the document, and its
// errors follow.
func ReadMistakes(t testing.TB) []ArchiveFile {
	t.Helper()
	files := ReadArchive(t, "bad.txtar")
	text := must.Get(os.ReadFile("testdata/mistakes.txt"))(t)
	for line := range strings.Lines(string(text)) {
		if mistake, ok := strings.CutPrefix(line, "! "); ok {
			last := &files[len(files)-1]
			last.Refused = append(last.Refused, mistake...)
			continue
		}
		name, document, _ := strings.Cut(line, " ")
		files = append(files, ArchiveFile{Name: name, Content: []byte(strings.ReplaceAll(document, "RULE", plainRule))})
	}
	return files
}
