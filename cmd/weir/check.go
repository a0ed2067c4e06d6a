package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"weir/config"
	"weir/internal/check"
	"weir/internal/ratelimitservice"
	"weir/internal/schema"
)

// errRefused means that a configuration has mistakes, which were printed.
var errRefused = errors.New("configuration refused")

const checkHelp = `
Files are JSON or YAML; - is standard input. A file is a configuration, or a document of Envoy
(a bootstrap, listeners, routes), Istio (EnvoyFilter, WasmPlugin, TrafficExtension) or Envoy Gateway
(EnvoyExtensionPolicy), or a RateLimitPolicy, or a file of Envoy's rate limit service, with a domain and
its descriptors: see weir serve --descriptors; or a ConfigMap of Kubernetes with some of these in it. In
a document, weir check reads each plugin that loads a module with "weir" in its name, or has rules with limits. A
file that begins with { or [ is JSON, unless its name ends in .yaml or .yml. In a folder, weir check
reads the files below it whose names end in .json, .yaml or .yml, if they have such plugins or rules;
it passes over the others, and over templates. If all these files are of the rate limit service, it reads the
folder as weir serve --descriptors does: all files together, whatever their names. It reads a ConfigMap as the
folder that it becomes. MERGE_DOMAIN_CONFIG and STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT hold as for weir ratelimit.

  weir check my.json
  weir check deploy/
  weir check --strict --format github envoy.yaml
  kubectl get envoyfilters -A -o yaml | weir check -

Formats:

  text    FILE:LINE:COLUMN: PATH: PROBLEM, with "warning: " before the path of a warning; and a note
          for a configuration without a backend, unless it says "sync_rate": -1
  json    an array of objects with file, line, column, severity (error, warning), path and problem
  github  annotations of GitHub's workflows

Exit codes: 0 if the plugin takes all configurations; 1 if it refuses a configuration, if a file can't
be read, if no file has a configuration and --allow-none is not given, or with --strict after a
warning; 2 if the command line is wrong.
`

func checkFiles(_ context.Context, args []string, env environment) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	format := flags.String("format", "text", "`format` to print: text, json or github")
	none := flags.Bool("allow-none", false, "do not fail if there is no configuration, and pass over files of other programs")
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
	v := variables{getenv: env.getenv}
	options := v.options()
	if err := v.err(); err != nil {
		return err
	}
	out := printed(env)
	refused, configurations := 0, 0
	checked := 0
	tell := func(name string, content []byte, report *check.Report) {
		checked++
		configurations += report.Configurations
		if report.Refused() || *strict && len(report.Findings) > 0 {
			refused++
		}
		out.file(name, content, report)
	}
	checkOne := func(name string, read func(name string, content []byte, readers ...check.Reader) *check.Report, passed bool) {
		content, report := checkFile(name, env, passed, read, checkDescriptors(options))
		if !passed || report.Configurations+len(report.Findings) > 0 {
			tell(name, content, report)
		}
	}
	for _, name := range flags.Args() {
		files, isFolder := filesIn(name)
		if areDescriptors(files, env) {
			together, err := ratelimitservice.ReadFiles(name)
			if err != nil {
				tell(name, nil, unread(err))
			}
			reports := descriptorReports(together, options)
			for _, f := range together {
				tell(f.Name, f.Text, reports[f.Name])
			}
			continue
		}
		for _, name := range files {
			checkOne(name, check.Found, true)
		}
		switch {
		case isFolder:
		case *none:
			checkOne(name, check.Found, false)
		default:
			checkOne(name, check.File, false)
		}
	}
	if err := out.end(); err != nil {
		return err
	}
	switch {
	case refused > 0 && checked == 1:
		return errRefused
	case refused > 0:
		return fmt.Errorf("%w: %d of %d", errRefused, refused, checked)
	case configurations == 0 && !*none:
		return errors.New("want a file with a configuration, got none; with --allow-none that is no mistake")
	}
	return nil
}

// filesIn returns the JSON and YAML files in a folder and its subfolders, ordered by name. It
// leaves out hidden files and node_modules. A folder that can't be listed is included, so that
// reading it returns the error.
func filesIn(name string) (files []string, isFolder bool) {
	if info, err := os.Stat(name); err != nil || !info.IsDir() {
		return nil, false
	}
	root := name + string(filepath.Separator) // without it, a link to a folder is not followed
	// Reading the files will return the same errors.
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		hidden := path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules")
		switch {
		case path == root && err != nil:
			files = append(files, name)
		case err != nil:
			files = append(files, path)
		case entry.IsDir() && hidden:
			return fs.SkipDir
		case !entry.IsDir() && !hidden && isJSONOrYAML(path):
			files = append(files, path)
		}
		return nil
	})
	return files, true
}

// isJSONOrYAML reports whether a file is JSON or YAML by its name.
func isJSONOrYAML(name string) bool {
	extension := strings.ToLower(filepath.Ext(name))
	return extension == ".json" || extension == ".yaml" || extension == ".yml"
}

// areDescriptors reports whether the files that were found in a folder are the rate limit service's: all may
// be, and one evidently is.
func areDescriptors(files []string, env environment) bool {
	evident := false
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			return false // checkFile says why
		}
		content, err := readFile(name, env)
		if err != nil || !mayBeDescriptors(content, &evident) {
			return false
		}
	}
	return evident
}

// mayBeDescriptors reports whether a file that was found may be the rate limit service's. It sets evident if it is.
func mayBeDescriptors(content []byte, evident *bool) bool {
	if ratelimitservice.IsConfiguration(content, true) {
		*evident = true
		return true
	}
	isTemplate := bytes.Contains(content, []byte("{{"))
	return !isTemplate && ratelimitservice.IsConfiguration(content, false)
}

// checkDescriptors returns the reader of files of the rate limit service: of one, or of those that a folder will have.
func checkDescriptors(o ratelimitservice.Options) check.Reader {
	return func(texts []check.Text, found bool) (all []*check.Report) {
		named := func(f check.Text) bool { return isJSONOrYAML(f.Name) }
		if !found && !ratelimitservice.IsConfiguration(texts[0].Content, false) {
			return nil
		}
		some, evident := slices.ContainsFunc(texts, named), !found
		var files []ratelimitservice.File
		for _, f := range texts {
			if len(texts) > 1 && strings.HasPrefix(f.Name, ".") {
				continue // in a folder it is not read
			}
			if found && (named(f) || !some) && !mayBeDescriptors(f.Content, &evident) {
				return nil
			}
			files = append(files, ratelimitservice.File{Name: f.Name, Text: f.Content})
		}
		if !evident {
			return nil
		}
		slices.SortFunc(files, func(a, b ratelimitservice.File) int { return strings.Compare(a.Name, b.Name) })
		reports := descriptorReports(files, o)
		for _, f := range texts {
			all = append(all, cmp.Or(reports[f.Name], &check.Report{}))
		}
		return all
	}
}

// descriptorReports checks files of the rate limit service together, and returns the report of each by its name.
func descriptorReports(files []ratelimitservice.File, o ratelimitservice.Options) map[string]*check.Report {
	reports := map[string]*check.Report{}
	for _, f := range files {
		reports[f.Name] = &check.Report{Configurations: 1}
	}
	mistakes, warnings := ratelimitservice.Check(files, o)
	for i, m := range append(mistakes, warnings...) {
		of := reports[m.File]
		of.Findings = append(of.Findings, check.Finding{Line: m.Line, Column: m.Column, Path: m.Path, Problem: m.Problem, Warning: i >= len(mistakes)})
	}
	return reports
}

// unread is the report of a file that can't be read.
func unread(err error) *check.Report {
	return &check.Report{Findings: []check.Finding{{Problem: err.Error()}}}
}

// checkFile reads and checks a file. The user has not named the files of a folder, and one may be a pipe
// without a writer, so these must be regular.
func checkFile(name string, env environment, ofFolder bool, read func(name string, content []byte, readers ...check.Reader) *check.Report, reader check.Reader) ([]byte, *check.Report) {
	if info, err := os.Stat(name); ofFolder && err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return nil, &check.Report{Findings: []check.Finding{{Problem: "want a regular file"}}}
	}
	content, err := readFile(name, env)
	if err != nil {
		return nil, unread(err)
	}
	return content, read(name, content, reader)
}

// longestFile bounds a file in bytes: a device may have no end.
const longestFile = 64 << 20

// readFile reads a file, a pipe such as the shell's <(COMMAND), or standard input for -.
func readFile(name string, env environment) ([]byte, error) {
	if name == "-" {
		return readAll("standard input", env.stdin)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	content, err := readAll(name, file)
	if errors.Is(err, syscall.EISDIR) {
		err = fmt.Errorf("%s is a directory: want a file", name)
	}
	return content, errors.Join(err, file.Close())
}

func readAll(name string, in io.Reader) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(in, longestFile+1))
	if err == nil && len(content) > longestFile {
		return nil, fmt.Errorf("%s: want at most %d MiB", name, longestFile>>20)
	}
	return content, err
}

type findings interface {
	file(name string, content []byte, report *check.Report)
	end() error
}

var newFindings = map[string]func(env environment) findings{
	"text":   func(env environment) findings { return textFindings{env} },
	"json":   func(env environment) findings { return &jsonFindings{w: env.stdout, all: []jsonFinding{}} },
	"github": func(env environment) findings { return githubFindings{env.stdout} },
}

// message returns a finding without its place, for people. A file that can't be read has no place.
func message(f *check.Finding) string {
	if f.Path == "" {
		return legible(f.Problem)
	}
	return legible(f.Path + ": " + f.Problem)
}

// place returns the place of a finding in the form that follows the file's name.
func place(f *check.Finding) string {
	if f.Line == 0 {
		return ""
	}
	return fmt.Sprintf(":%d:%d", f.Line, f.Column)
}

type textFindings struct{ env environment }

func (t textFindings) file(name string, content []byte, report *check.Report) {
	w, name := t.env.stdout, legible(name)
	lines := bytes.Split(content, []byte("\n"))
	// Mistakes come last, where a terminal still shows them.
	for _, warnings := range [...]bool{true, false} {
		for i := range report.Findings {
			f := &report.Findings[i]
			if f.Warning != warnings {
				continue
			}
			at, warning := colored(t.env, w, red, name+place(f)+":"), ""
			if f.Warning {
				at, warning = name+place(f)+":", colored(t.env, w, yellow, "warning:")+" "
			}
			fmt.Fprintf(w, "%s %s%s\n", at, warning, message(f))
			if !f.Warning && 0 < f.Line && f.Line <= len(lines) && terminalOf(w) != nil { // scripts read a line for each
				fmt.Fprint(w, excerpt(lines[f.Line-1], f.Column))
			}
		}
	}
	for _, c := range report.Accepted {
		if countsAlone(&c) {
			fmt.Fprintf(w, "%s:%d:%d: note: counts in each proxy alone: a backend makes one limit of all proxies\n", name, c.Line, c.Column)
		}
		for i := range c.Config.Rules {
			if rule := &c.Config.Rules[i]; rule.Share {
				fmt.Fprintf(w, "%s:%d:%d: note: rule %s: %s\n", name, c.Line, c.Column, rule.Name, parts(rule, c.Config.Replicas))
			}
		}
	}
	switch n := report.Configurations; {
	case report.Refused():
	case n == 0:
		fmt.Fprintf(w, "%s: no configuration\n", name)
	case n == 1:
		fmt.Fprintf(w, "%s: ok\n", name)
	default:
		fmt.Fprintf(w, "%s: ok, %d configurations\n", name, n)
	}
}

// parts tells what a proxy has of a rule's limits, which are divided.
func parts(rule *config.Rule, replicas uint64) string {
	if replicas == 0 {
		return "each proxy has its part of the limits, once a property tells how many there are"
	}
	var each []string
	for i := range rule.Limits {
		each = append(each, fmt.Sprintf("%d of limits[%d]", rule.Limits[i].Max, i))
	}
	return fmt.Sprintf("each of %d proxies has %s, whatever the others leave unused", replicas, strings.Join(each, ", "))
}

// excerpt returns what a line has around a column, and a caret under the column.
func excerpt(line []byte, column int) string {
	const around = 50
	shown := []rune(strings.TrimRight(string(line), "\r"))
	for i, r := range shown {
		if !unicode.IsPrint(r) {
			shown[i] = ' ' // a terminal might obey it
		}
	}
	column = min(max(column, 1)-1, len(shown))
	from := max(0, column-around)
	return fmt.Sprintf("    %s\n    %*s\n", string(shown[from:min(len(shown), column+around)]), column-from+1, "^")
}

// countsAlone reports whether nothing is shared, and nothing says that this is meant.
func countsAlone(c *check.Configuration) bool {
	var written struct {
		SyncRate any `json:"sync_rate"`
		Rules    []struct {
			SyncRate any `json:"sync_rate"`
		} `json:"rules"`
	}
	if c.Config.Backend.Cluster != "" || json.Unmarshal(c.Document, &written) != nil || written.SyncRate != nil {
		return false
	}
	for _, rule := range written.Rules {
		if rule.SyncRate != nil {
			return false
		}
	}
	return true
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

func (j *jsonFindings) file(name string, _ []byte, report *check.Report) {
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

// Characters that would end a workflow command, or one of its properties, are escaped.
var (
	escapeMessage  = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	escapeProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

func (g githubFindings) file(name string, _ []byte, report *check.Report) {
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

const configUsage = "`file` with the plugin's configuration, or a document of Envoy, Istio or Envoy Gateway that has one, in JSON or YAML; " +
	"- is standard input; FILE:LINE, or FILE:LINE:COLUMN, is the configuration that begins there"

// placed matches the name of a file followed by a line, and perhaps a column.
var placed = regexp.MustCompile(`^(.+?):([0-9]+(?::[0-9]+)?)$`)

// readConfiguration reads one configuration from a file, as weir check does. If a file has several,
// the name must end in the place of one: FILE:LINE or FILE:LINE:COLUMN, as weir check prints
// places. It prints mistakes.
func readConfiguration(name string, env environment) (*check.Configuration, error) {
	where := ""
	content, err := readFile(name, env)
	if parts := placed.FindStringSubmatch(name); parts != nil && errors.Is(err, fs.ErrNotExist) {
		name, where = parts[1], parts[2]
		content, err = readFile(name, env)
	}
	if err != nil {
		return nil, err
	}
	report := check.File(name, content)
	if report.Refused() {
		for i := range report.Findings {
			if f := &report.Findings[i]; !f.Warning {
				fmt.Fprintf(env.stderr, "%s%s: %s\n", name, place(f), message(f))
			}
		}
		return nil, errRefused
	}
	all := report.Accepted
	chosen := at(all, where)
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("%s: want a configuration, or a document of Envoy, Istio or Envoy Gateway with one, got none", name)
	case len(chosen) == 0:
		return nil, fmt.Errorf("%w: no configuration begins at %s:%s; choose one of\n%s", errUsage, name, where, choices(name, all))
	case len(chosen) > 1:
		return nil, fmt.Errorf("%w: %s has several configurations; choose one of\n%s", errUsage, name, choices(name, chosen))
	}
	return &chosen[0], nil
}

func compileExpressions(_ context.Context, args []string, env environment) error {
	flags := flag.NewFlagSet("compile", flag.ContinueOnError)
	if err := parseFlags(flags, args, env, "FILE"); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("%w: want the name of one file, or - for standard input", errUsage)
	}
	read, err := readConfiguration(flags.Arg(0), env)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.stdout, "%s\n", bytes.TrimSpace(read.Document))
	return err
}

// at returns the configurations that begin at a place: a line, a line and a column, or empty for
// anywhere. It returns only the first of equal configurations.
func at(all []check.Configuration, where string) (some []check.Configuration) {
	for i := range all {
		c := &all[i]
		equal := func(other check.Configuration) bool { return bytes.Equal(other.Document, c.Document) }
		if where != "" && !strings.HasPrefix(fmt.Sprintf("%d:%d:", c.Line, c.Column), where+":") || slices.ContainsFunc(some, equal) {
			continue
		}
		some = append(some, *c)
	}
	return some
}

// choices lists configurations with their places, one to a line.
func choices(name string, all []check.Configuration) string {
	const most = 5
	lines := make([]string, len(all))
	for i := range all {
		rules := all[i].Config.Rules
		var names []string
		for j := range rules[:min(len(rules), most)] {
			names = append(names, rules[j].Name)
		}
		if more := len(rules) - most; more > 0 {
			names = append(names, fmt.Sprintf("%d more", more))
		}
		lines[i] = fmt.Sprintf("  %s:%d:%d (namespace %s, rules %s)", name, all[i].Line, all[i].Column, all[i].Config.Namespace, strings.Join(names, ", "))
	}
	return strings.Join(lines, "\n")
}

func printSchema(_ context.Context, args []string, env environment) error {
	if err := parseFlags(flag.NewFlagSet("schema", flag.ContinueOnError), args, env); err != nil {
		return err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, schema.JSON, "", "  "); err != nil {
		return err
	}
	_, err := env.stdout.Write(indented.Bytes())
	return err
}
