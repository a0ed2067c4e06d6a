// Command weir runs the counter backend of the rate limiter, see usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `Weir limits rates inside Envoy and Istio. This command runs what is beside the plugin.

Usage:

  weir <command> [flags]

Commands:

  run       run proxy nodes with the plugin, a backend and an upstream, to try a configuration
  serve     run the counter backend that proxies share
  check     check configurations, and the documents of Envoy and Istio that have some
  schema    print the JSON Schema of a configuration
  simulate  replay access logs through a configuration's rules
  counter   show, empty or relieve a single key's counter
  override  give single keys other limits while everything runs
  help      print this

weir <command> -h prints a command's flags.
`

// errUsage is wrapped by errors of the command line; the command exits with 2.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the next one kills.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], environment{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv})
	stop()
	os.Exit(code)
}

// environment is what a command sees of the process.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
}

// commands take their arguments, and run until they are done or ctx ends.
var commands = map[string]func(ctx context.Context, args []string, env environment) error{
	"run":      runNodes,
	"serve":    serve,
	"check":    checkFiles,
	"schema":   printSchema,
	"simulate": runSimulation,
	"counter":  counterOf,
	"override": override,
}

// run executes a command line, and returns the exit code: 0, 1 after a failure, 2 if the command
// line is wrong.
func run(ctx context.Context, args []string, env environment) int {
	if len(args) == 0 {
		fmt.Fprint(env.stderr, usage)
		return 2
	}
	name := args[0]
	switch name {
	case "help", "-h", "-help", "--help":
		fmt.Fprint(env.stdout, usage)
		return 0
	}
	command := commands[name]
	if command == nil {
		fmt.Fprintf(env.stderr, "weir: unknown command %q\n\n%s", name, usage)
		return 2
	}
	err := command(ctx, args[1:], env)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintf(env.stderr, "weir %s: %v\n", name, err)
		return 2
	}
	fmt.Fprintf(env.stderr, "weir %s: %v\n", name, err)
	return 1
}

// parseFlags parses a command's arguments. Other arguments than flags are an error unless operands
// names them.
func parseFlags(flags *flag.FlagSet, args []string, env environment, operands ...string) error {
	// What is wrong is printed once, by run.
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(env.stdout, "Usage: weir", flags.Name(), strings.Join(append([]string{"[flags]"}, operands...), " "))
		flags.SetOutput(env.stdout)
		flags.PrintDefaults()
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() > 0 && len(operands) == 0 {
		// It is not repeated: it may be the token.
		return fmt.Errorf("%w: want flags only, got an argument too many after %d", errUsage, len(args)-flags.NArg())
	}
	return nil
}
