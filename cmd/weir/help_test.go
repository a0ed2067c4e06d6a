package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"weir/internal/must"
)

var update = flag.Bool("update", false, "write docs/commands.md")

const commandsPage = "../../docs/commands.md"

// pageIntroduction is the beginning of the page of all commands.
const pageIntroduction = `# The weir command

` + "`make build` leaves the command in `dist/weir`." + ` The commands print this page of themselves with
` + "`--help`" + `. Flags may be written with one dash or two, and as ` + "`--flag value` or `--flag=value`" + `.
A secret on a command line can be seen by other users of the machine: better is a file, or the
environment.
`

func printed(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := execute(t.Context(), nil, "", args...)
	must.EqualOrEnd(t, code, 0, "weir %q: exit code, with %s", args, stderr)
	must.EqualOrEnd(t, stderr, "", "weir %q: stderr", args)
	return stdout
}

// The page of all commands has the texts that they print.
func TestCommandsPage(t *testing.T) {
	var page strings.Builder
	fmt.Fprintf(&page, "%s\n```text\n%s```\n", pageIntroduction, printed(t, "help"))
	for _, c := range commands() {
		fmt.Fprintf(&page, "\n## weir %s\n\n```text\n%s```\n", c.name, printed(t, c.name, "--help"))
	}
	if *update {
		must.OK(t, os.WriteFile(commandsPage, []byte(page.String()), 0o644))
	}
	must.Equal(t, must.Text(t, commandsPage), page.String(), "docs/commands.md is not what the commands print: go test ./cmd/weir -run TestCommandsPage -update writes it")
}

// Each command has a description, an example that begins like a command line, and the meaning of
// each flag. The lines fit a terminal.
func TestHelpIsComplete(t *testing.T) {
	for _, c := range commands() {
		help := printed(t, "help", c.name)
		must.Equal(t, help, printed(t, c.name, "-h"), "weir help %s is not weir %s -h", c.name, c.name)
		for _, want := range []string{"Usage: weir " + c.name, "Exit codes:"} {
			must.Contains(t, help, want, "weir %s --help lacks", c.name)
		}
		if c.help != "" && !strings.Contains(help, "\n  weir "+c.name) && !strings.Contains(help, "weir "+c.name+" -") {
			t.Errorf("weir %s --help has no example", c.name)
		}
		for _, flag := range regexp.MustCompile(`\n  (--\S+).*\n(.*)`).FindAllStringSubmatch(help, -1) {
			must.AtLeast(t, len(strings.TrimSpace(flag[2])), 10, "weir %s --help: characters of %s", c.name, flag[1])
		}
		for line := range strings.Lines(help) {
			must.AtMost(t, len([]rune(strings.TrimRight(line, "\n"))), 140, "weir %s --help: characters of the line %s", c.name, line)
		}
	}
}
