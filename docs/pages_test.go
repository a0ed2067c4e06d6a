package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/internal/check"
	"weir/internal/must"
)

// pages returns the pages that a newcomer reads.
func pages(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{"../*.md", "*.md", "../envoy/*.md", "../bench/*.md", "../bench/*/*.md"} {
		found := must.Get(filepath.Glob(pattern))(t)
		files = append(files, found...)
	}
	return files
}

func read(t *testing.T, file string) string {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	return string(text)
}

var (
	fenced  = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	anyLink = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are those of a page's headings.
func anchors(text string) (slugs []string) {
	for _, found := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		slug := noSlug.ReplaceAllString(strings.ToLower(found[1]), "")
		slugs = append(slugs, strings.ReplaceAll(slug, " ", "-"))
	}
	return slugs
}

// TestLinks wants what every relative link leads to, and its anchor, to be there.
func TestLinks(t *testing.T) {
	checked := 0
	for _, page := range pages(t) {
		text := read(t, page)
		for _, found := range anyLink.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			target, anchor, hasAnchor := strings.Cut(found[1], "#")
			if strings.Contains(target, ":") {
				continue
			}
			checked++
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), target)
			}
			if info, err := os.Stat(file); err != nil {
				t.Errorf("%s: link to %s: %v", page, found[1], err)
			} else if hasAnchor && (info.IsDir() || !slices.Contains(anchors(read(t, file)), anchor)) {
				t.Errorf("%s: link to %s: no such heading", page, found[1])
			}
		}
	}
	if checked < 150 {
		t.Errorf("%d links found", checked)
	}
}

// TestConfigurations has weir check's own code read every configuration that a page shows.
func TestConfigurations(t *testing.T) {
	checked := 0
	for _, page := range pages(t) {
		for i, sample := range fenced.FindAllStringSubmatch(read(t, page), -1) {
			if sample[1] == "json" && strings.HasPrefix(sample[2], `"`) { // fields of a rule
				sample[2] = `{"rules": [{"name": "piece", "limits": [{"limit": 1, "window": "1m"}], "cost_on_response": "auto", ` + sample[2] + "}]}"
			}
			if sample[1] != "json" && sample[1] != "yaml" || !strings.Contains(sample[2], "rules") || !strings.Contains(sample[2], "limits") {
				continue
			}
			if strings.HasPrefix(sample[2], "# values.yaml\n") {
				continue // of the chart, which completes them: its own tests check what it renders
			}
			report := check.File("sample."+sample[1], []byte(sample[2]))
			if report.Configurations == 0 {
				t.Errorf("%s: sample %d: no configuration found", page, i)
			}
			for _, f := range report.Findings {
				if !f.Warning {
					t.Errorf("%s: sample %d: %d:%d: %s: %s", page, i, f.Line, f.Column, f.Path, f.Problem)
				}
			}
			checked++
		}
	}
	if checked < 4 {
		t.Errorf("%d samples found", checked)
	}
}

// TestPictures wants the pictures of the algorithms to be what these decide.
func TestPictures(t *testing.T) {
	cmd := exec.Command("go", "run", "./scripts/pictures", "-check")
	cmd.Dir = ".."
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// prelude is the program that a part of one is written into. It fails if the last error of the part is one.
const prelude = `package main

import (
	"log"
%s)

func main() {
	ctx := context.Background()
	{
%s
	use(ctx, %s)
	}
}

func use(all ...any) {
	for _, one := range all {
		if err, ok := one.(error); ok {
			log.Fatal(err)
		}
	}
}
`

var (
	inSample = []string{"context", "fmt", "net/http", "time", "weir/ratelimit", "weir/ratelimit/limithttp"}
	made     = regexp.MustCompile(`(?m)^([\w, ]+) :=`)
)

// inPrelude is the program of a sample that is a part of one.
func inPrelude(sample string) string {
	imports := ""
	for _, name := range inSample {
		if base := name[strings.LastIndex(name, "/")+1:]; base == "context" || strings.Contains(sample, base+".") {
			imports += fmt.Sprintf("\t%q\n", name)
		}
	}
	var used []string
	for _, m := range made.FindAllStringSubmatch(sample, -1) {
		used = append(used, m[1])
	}
	return fmt.Sprintf(prelude, imports, sample, strings.Join(used, ", "))
}

// TestPrograms runs the samples of Go that are parts of a program. TestLibrary runs the whole ones.
func TestPrograms(t *testing.T) {
	t.Parallel()
	root := must.Get(filepath.Abs(".."))(t)
	ran := 0
	for _, page := range pages(t) {
		for _, sample := range fenced.FindAllStringSubmatch(read(t, page), -1) {
			if sample[1] != "go" || strings.HasPrefix(sample[2], "package ") {
				continue
			}
			dir := t.TempDir()
			overlay := filepath.Join(dir, "overlay.json")
			text := must.Get(json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "docs", "sample", "sample.go"): filepath.Join(dir, "sample.go")}}))(t)
			for name, content := range map[string]string{overlay: string(text), filepath.Join(dir, "sample.go"): inPrelude(sample[2])} {
				must.OK(t, os.WriteFile(name, []byte(content), 0o600))
			}
			if out, err := exec.CommandContext(t.Context(), "go", "run", "-overlay", overlay, "weir/docs/sample").CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s\n%s", page, err, out, sample[2])
			}
			ran++
		}
	}
	if ran == 0 {
		t.Error("no sample was found")
	}
}
