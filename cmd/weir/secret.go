package main

import (
	"flag"
	"fmt"
	"strings"

	"weir/internal/trust"
)

// secret is a value that a flag may give, but should not, because other users of the machine can
// see command lines. A file, named by the flag with the suffix -file, or the environment is better.
type secret struct {
	name, variable string
	value, file    string
}

func (s *secret) define(flags *flag.FlagSet, name, usage, fileUsage string) {
	s.name, s.variable = name, "WEIR_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	flags.StringVar(&s.value, name, "", usage)
	flags.StringVar(&s.file, name+"-file", "", fileUsage)
}

// given returns the secret from the flag or the environment, unless a file is named. Errors wrap
// [errUsage].
func (s *secret) given(env environment) (string, error) {
	switch {
	case s.value != "" && s.file != "":
		return "", fmt.Errorf("%w: --%s: want either this or --%s-file, not both", errUsage, s.name, s.name)
	case s.value != "" || s.file != "":
		return s.value, nil
	}
	return env.getenv(s.variable), nil
}

// origin returns what gives the secret: a flag or a variable.
func (s *secret) origin() string {
	switch {
	case s.file != "":
		return "--" + s.name + "-file"
	case s.value != "":
		return "--" + s.name
	}
	return s.variable
}

// read returns the secret from the flag, the file or the environment, without a line break at its
// end.
func (s *secret) read(env environment) (string, error) {
	value, err := s.given(env)
	if err != nil || s.file == "" {
		return value, err
	}
	content, err := trust.ReadFile(s.file)
	if err != nil {
		return "", fmt.Errorf("--%s-file: %w", s.name, err)
	}
	// Errors do not repeat the file's content.
	value = strings.TrimRight(string(content), "\r\n")
	if value == "" || strings.ContainsAny(value, "\r\n") {
		return "", fmt.Errorf("%w: --%s-file: want one line in %s", errUsage, s.name, s.file)
	}
	return value, nil
}
