package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"weir/config"
)

// errRefused says that a configuration has mistakes, which have been printed.
var errRefused = errors.New("configuration refused")

// check is weir check.
func check(_ context.Context, args []string, env environment) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	if err := parseFlags(flags, args, env, "FILE…"); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return fmt.Errorf("%w: want the names of files, or - for standard input", errUsage)
	}
	refused := 0
	for _, name := range flags.Args() {
		var parsed *config.Config
		document, err := readFile(name, env)
		if err == nil {
			parsed, err = config.Parse(document)
		}
		if err != nil {
			refused++
			printErrors(env.stdout, name, err)
			continue
		}
		for _, w := range config.Warnings(parsed) {
			fmt.Fprintf(env.stdout, "%s: %s: warning: %s\n", name, w.Path, w.Problem)
		}
		fmt.Fprintf(env.stdout, "%s: ok\n", name)
	}
	if refused > 0 {
		return fmt.Errorf("%w: %d of %d", errRefused, refused, flags.NArg())
	}
	return nil
}

func readFile(name string, env environment) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(env.stdin)
	}
	return os.ReadFile(name)
}

// printErrors prints all of a configuration's mistakes, one to a line.
func printErrors(w io.Writer, name string, err error) {
	var mistakes config.Errors
	if !errors.As(err, &mistakes) {
		fmt.Fprintf(w, "%s: %v\n", name, err)
		return
	}
	for _, mistake := range mistakes {
		fmt.Fprintf(w, "%s: %v\n", name, mistake)
	}
}
