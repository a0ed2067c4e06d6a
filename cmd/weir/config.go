package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"weir/internal/check"
)

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
