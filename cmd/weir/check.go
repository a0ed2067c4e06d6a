package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"weir/internal/check"
)

// errRefused says that a configuration has mistakes, which have been printed.
var errRefused = errors.New("configuration refused")

const checkHelp = `
Files are JSON or YAML; - is standard input. A file is a configuration, or a document of Envoy
(a bootstrap, listeners, routes), Istio (EnvoyFilter, WasmPlugin) or Envoy Gateway
(EnvoyExtensionPolicy). Of such a document all plugins are checked that load a module with "weir" in
its name, or have rules with limits. A file that begins with { or [ is JSON, unless its name ends in
.yaml or .yml.

  weir check my.json
  weir check --strict --format github envoy.yaml
  kubectl get envoyfilters -A -o yaml | weir check -

Formats:

  text    FILE:LINE:COLUMN: PATH: PROBLEM, with "warning: " before the path of a warning
  json    an array of objects with file, line, column, severity (error, warning), path and problem
  github  annotations of GitHub's workflows

Exit codes: 0 if the plugin takes all configurations; 1 if it refuses one, a file can't be read, or
no file has one (with --strict, if there are warnings too); 2 if the command line is wrong.
`

// checkFiles is weir check.
func checkFiles(_ context.Context, args []string, env environment) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	format := flags.String("format", "text", "print as `text`, json or github")
	strict := flags.Bool("strict", false, "exit with 1 after warnings too")
	if err := parseFlags(flags, args, env, "FILE…"); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return fmt.Errorf("%w: want the names of files, or - for standard input", errUsage)
	}
	printed := newFindings[*format]
	if printed == nil {
		return fmt.Errorf("%w: --format: want text, json or github, got %q", errUsage, *format)
	}
	out := printed(env.stdout)
	refused, configurations := 0, 0
	for _, name := range flags.Args() {
		report := checkFile(name, env)
		configurations += report.Configurations
		if report.Refused() || *strict && len(report.Findings) > 0 {
			refused++
		}
		out.file(name, report)
	}
	if err := out.end(); err != nil {
		return err
	}
	switch {
	case refused > 0:
		return fmt.Errorf("%w: %d of %d", errRefused, refused, flags.NArg())
	case configurations == 0:
		return errors.New("want a file with a configuration, got none")
	}
	return nil
}

func checkFile(name string, env environment) *check.Report {
	content, err := readFile(name, env)
	if err != nil {
		return &check.Report{Findings: []check.Finding{{Problem: err.Error()}}}
	}
	return check.File(name, content)
}

func readFile(name string, env environment) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(env.stdin)
	}
	content, err := os.ReadFile(name)
	if errors.Is(err, syscall.EISDIR) {
		return nil, fmt.Errorf("%s is a directory: want a file", name)
	}
	return content, err
}

// findings prints what files have.
type findings interface {
	file(name string, report *check.Report)
	end() error
}

var newFindings = map[string]func(w io.Writer) findings{
	"text":   func(w io.Writer) findings { return textFindings{w} },
	"json":   func(w io.Writer) findings { return &jsonFindings{w: w, all: []jsonFinding{}} },
	"github": func(w io.Writer) findings { return githubFindings{w} },
}

// message is a finding without its place. There is no place in a file that can't be read.
func message(f *check.Finding) string {
	if f.Path == "" {
		return f.Problem
	}
	return f.Path + ": " + f.Problem
}

// place is where a finding is, as it stands behind the file's name.
func place(f *check.Finding) string {
	if f.Line == 0 {
		return ""
	}
	return fmt.Sprintf(":%d:%d", f.Line, f.Column)
}

type textFindings struct{ w io.Writer }

func (t textFindings) file(name string, report *check.Report) {
	for i := range report.Findings {
		f := &report.Findings[i]
		warning := ""
		if f.Warning {
			warning = "warning: "
		}
		fmt.Fprintf(t.w, "%s%s: %s%s\n", name, place(f), warning, message(f))
	}
	switch n := report.Configurations; {
	case report.Refused():
	case n == 0:
		fmt.Fprintf(t.w, "%s: no configuration\n", name)
	case n == 1:
		fmt.Fprintf(t.w, "%s: ok\n", name)
	default:
		fmt.Fprintf(t.w, "%s: ok, %d configurations\n", name, n)
	}
}

func (textFindings) end() error { return nil }

type jsonFindings struct {
	w   io.Writer
	all []jsonFinding
}

type jsonFinding struct {
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Severity string `json:"severity"`
	Path     string `json:"path,omitempty"`
	Problem  string `json:"problem"`
}

func (j *jsonFindings) file(name string, report *check.Report) {
	for _, f := range report.Findings {
		j.all = append(j.all, jsonFinding{name, f.Line, f.Column, severity(&f), f.Path, f.Problem})
	}
}

func (j *jsonFindings) end() error {
	e := json.NewEncoder(j.w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(j.all)
}

func severity(f *check.Finding) string {
	if f.Warning {
		return "warning"
	}
	return "error"
}

type githubFindings struct{ w io.Writer }

// What would end a workflow command, or a property of one, is escaped.
var (
	escapeMessage  = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	escapeProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

func (g githubFindings) file(name string, report *check.Report) {
	for i := range report.Findings {
		f := &report.Findings[i]
		place := ""
		if f.Line > 0 {
			place = fmt.Sprintf(",line=%d,col=%d", f.Line, f.Column)
		}
		fmt.Fprintf(g.w, "::%s file=%s%s::%s\n", severity(f), escapeProperty.Replace(name), place, escapeMessage.Replace(message(f)))
	}
}

func (githubFindings) end() error { return nil }
