// Command weir runs the rate limiter's counter backend and calls it, and checks configurations: see
// help.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"golang.org/x/term"
)

// errUsage is wrapped by errors of the command line, for which the command exits with 2.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal, the next ends the process.
	context.AfterFunc(ctx, stop)
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == "ratelimit" {
		args = append([]string{"ratelimit"}, args...)
	}
	code := run(ctx, args, environment{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv})
	stop()
	os.Exit(code)
}

// environment is the part of the process that a command uses.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
}

// terminalOf returns the terminal that out is, or nil.
func terminalOf(out io.Writer) *os.File {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return file
}

// run runs a command line and returns the exit code: 0, 1 after a failure, or 2 if the command line
// is wrong.
func run(ctx context.Context, args []string, env environment) int {
	if len(args) == 0 {
		fmt.Fprint(env.stderr, usage())
		return 2
	}
	name := args[0]
	switch name {
	case "help", "-h", "-help", "--help":
		if len(args) == 1 {
			fmt.Fprint(env.stdout, usage())
			return 0
		}
		name, args = args[1], []string{args[1], "--help"}
	case "-version", "--version":
		name, args = "version", []string{"version"}
	}
	c := find(name)
	if c == nil {
		// The error comes last, where a terminal still shows it.
		fmt.Fprintf(env.stderr, "%s\n%s unknown command %.80q%s\n", usage(), colored(env, env.stderr, red, "weir:"), name, suggestCommand(name))
		return 2
	}
	err := c.run(ctx, args[1:], env)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintf(env.stderr, "weir %s --help says more.\n%s %v\n", name, colored(env, env.stderr, red, "weir "+name+":"), err)
		return 2
	}
	fmt.Fprintf(env.stderr, "%s %s\n", colored(env, env.stderr, red, "weir "+name+":"), legible(err.Error()))
	return 1
}

// legible escapes what a terminal might obey in a text for people, which may repeat parts of a file. It keeps
// the ends of lines.
func legible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// Colours of a terminal, for errors and for warnings.
const (
	red    = "31"
	yellow = "33"
)

// colored returns a text in a colour if out is a terminal, unless NO_COLOR is set: see
// https://no-color.org.
func colored(env environment, out io.Writer, color, text string) string {
	if terminalOf(out) == nil || env.getenv("NO_COLOR") != "" || env.getenv("TERM") == "dumb" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// parseFlags parses a command's arguments. Arguments other than flags are an error unless operands
// names them.
func parseFlags(flags *flag.FlagSet, args []string, env environment, operands ...string) error {
	// run prints errors, once.
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(env.stdout, helpOf(flags))
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w%s", errUsage, err, suggestFlag(flags, err))
	}
	if flags.NArg() > 0 && len(operands) == 0 {
		return fmt.Errorf("%w: want flags only, got an argument too many%s", errUsage, after(args, len(args)-flags.NArg()))
	}
	return nil
}

// parseMixed parses a command's arguments, with flags anywhere among them, and returns the rest.
func parseMixed(flags *flag.FlagSet, args []string, env environment, usage string) (operands []string, err error) {
	for {
		if err := parseFlags(flags, args, env, usage); err != nil {
			return nil, err
		}
		if args = flags.Args(); len(args) == 0 {
			return operands, nil
		}
		operands, args = append(operands, args[0]), args[1:]
	}
}

// after says where an argument stands. It does not repeat the argument, which may be a secret.
func after(args []string, at int) string {
	if at == 0 {
		return ", the first one"
	}
	before := args[at-1]
	if strings.HasPrefix(before, "-") {
		before, _, _ = strings.Cut(before, "=")
	} else if at > 1 {
		before = args[at-2] + " and its value"
	}
	return " behind --" + strings.TrimLeft(before, "-")
}
