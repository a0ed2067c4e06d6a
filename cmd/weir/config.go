package main

import (
	"fmt"
	"strconv"
	"strings"

	"weir/internal/check"
)

// configUsage is of --config.
const configUsage = "`file` with the plugin's configuration, or a document of Envoy, Istio or Envoy Gateway that has one, in JSON or YAML; " +
	"of several, FILE:LINE is the one that begins there"

// readConfiguration reads the configuration that --config names, from any file that weir check reads.
// It prints the mistakes that the file has.
func readConfiguration(name string, env environment) (document []byte, err error) {
	name, line := cutLine(name)
	content, err := readFile(name, env)
	if err != nil {
		return nil, err
	}
	report := check.File(name, content)
	if report.Refused() {
		var mistakes []string
		for i := range report.Findings {
			if f := &report.Findings[i]; !f.Warning {
				mistakes = append(mistakes, name+place(f)+": "+message(f))
			}
		}
		fmt.Fprintln(env.stderr, strings.Join(mistakes, "\n"))
		return nil, errRefused
	}
	var lines []string
	for _, c := range report.Accepted {
		if c.Line == line || line == 0 && len(report.Accepted) == 1 {
			return c.Document, nil
		}
		lines = append(lines, strconv.Itoa(c.Line))
	}
	switch {
	case len(lines) == 0:
		return nil, fmt.Errorf("%s has no configuration", name)
	case line == 0:
		return nil, fmt.Errorf("%w: --config: %s has configurations in lines %s: want one of them, as in %s:%s", errUsage, name, strings.Join(lines, ", "), name, lines[0])
	}
	return nil, fmt.Errorf("%w: --config: %s has no configuration that begins in line %d, but in %s", errUsage, name, line, strings.Join(lines, ", "))
}

// cutLine takes the line out of FILE:LINE; it is 0 if there is none.
func cutLine(name string) (file string, line int) {
	if i := strings.LastIndexByte(name, ':'); i > 0 {
		if n, err := strconv.Atoi(name[i+1:]); err == nil && n > 0 {
			return name[:i], n
		}
	}
	return name, 0
}
