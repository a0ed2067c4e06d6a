package check_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/check"
)

// findings are a report's, one to a line.
func findings(report *check.Report) string {
	var b strings.Builder
	for _, f := range report.Findings {
		fmt.Fprintf(&b, "%d:%d: ", f.Line, f.Column)
		if f.Warning {
			b.WriteString("warning: ")
		}
		if f.Path != "" {
			b.WriteString(f.Path + ": ")
		}
		b.WriteString(f.Problem + "\n")
	}
	fmt.Fprintf(&b, "%d configurations\n", report.Configurations)
	return b.String()
}

// TestFiles checks each file of testdata, and wants what FILE.want has.
func TestFiles(t *testing.T) {
	t.Parallel()
	wants, err := filepath.Glob("testdata/*.want")
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob("testdata/*.*")
	if err != nil || len(all) != 2*len(wants) || len(wants) == 0 {
		t.Errorf("%d files with %d wanted, %v", len(all)-len(wants), len(wants), err)
	}
	for _, want := range wants {
		name := strings.TrimSuffix(want, ".want")
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			wanted, err := os.ReadFile(want)
			if err != nil {
				t.Fatal(err)
			}
			report := check.File(name, content)
			if got := findings(report); got != string(wanted) {
				t.Errorf("got\n%swant\n%s", got, wanted)
			}
			if refused := strings.Contains(strings.ReplaceAll(string(wanted), ": warning: ", ""), ": "); report.Refused() != refused {
				t.Errorf("refused is %t", report.Refused())
			}
		})
	}
}
