package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shellOf runs a program of a shell with the completion's file as its first argument.
func shellOf(t *testing.T, shell, program string, args ...string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "_weir")
	if err := os.WriteFile(file, []byte(printed(t, "completion", shell)), 0o600); err != nil {
		t.Fatal(err)
	}
	var arguments []string
	switch shell {
	case "bash":
		arguments = append([]string{"--norc", "-c", program, "bash", file}, args...)
	case "zsh":
		arguments = append([]string{"-f", "-c", program, "zsh", file}, args...)
	default:
		arguments = append([]string{"--no-config", "-c", program, file}, args...)
	}
	c := exec.CommandContext(t.Context(), shell, arguments...)
	c.Dir = t.TempDir()
	c.Env = append(os.Environ(), "HOME="+c.Dir)
	if err := os.WriteFile(filepath.Join(c.Dir, "my.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil || errs.Len() > 0 {
		t.Fatalf("%s: %v (scripts/test-dependencies installs it)\n%s", shell, err, &errs)
	}
	var words []string
	for line := range strings.Lines(string(out)) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		words = append(words, word)
	}
	slices.Sort(words)
	return words
}

// Each shell completes commands, flags, values of flags and files.
func TestCompletion(t *testing.T) {
	t.Parallel()
	programs := map[string]string{
		"bash": `source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weir; printf '%s\n' "${COMPREPLY[@]}"`,
		"fish": `source $argv[1]; complete -C (string join " " -- $argv[2..])`,
	}
	for shell, program := range programs {
		for _, test := range []struct{ typed, want []string }{
			{[]string{"weir", "conv"}, []string{"convert"}},
			{[]string{"weir", "co"}, []string{"completion", "convert", "counter"}},
			{[]string{"weir", "run", "--log"}, []string{"--log-format", "--log-level"}},
			{[]string{"weir", "run", "--log-level", ""}, []string{"debug", "error", "info", "warn"}},
			{[]string{"weir", "run", "--config", "my"}, []string{"my.json"}},
			{[]string{"weir", "completion", "z"}, []string{"zsh"}},
			{[]string{"weir", "help", "sim"}, []string{"simulate"}},
		} {
			if got := shellOf(t, shell, program, test.typed...); !slices.Equal(got, test.want) {
				t.Errorf("%s completes %q by %q, want %q", shell, test.typed, got, test.want)
			}
		}
	}
	// Zsh completes only on a terminal, so this checks what it would offer: compinit accepts the
	// file, and its functions are called with their usual input.
	offered := `autoload -Uz compinit; compinit -D -u; source "$1"; print -r -- "${_comps[weir]}"
_describe() { print -rl -- "${(P@)2}" }
_arguments() { print -rl -- "$@" }
words=("${@[2,-1]}"); CURRENT=$(($# - 1)); _weir`
	for _, test := range []struct {
		typed []string
		want  string
	}{
		{[]string{"weir", ""}, "convert:make Weir's configuration from those of nginx, Kong, APISIX or Envoy's rate limit service"},
		{[]string{"weir", "run", ""}, "--log-level:value:(debug info warn error)"},
		{[]string{"weir", "run", ""}, "--config:value:_files"},
		{[]string{"weir", "top", ""}, "--follow"},
		{[]string{"weir", ""}, "_weir"},
	} {
		if got := shellOf(t, "zsh", offered, test.typed...); !slices.Contains(got, test.want) {
			t.Errorf("zsh is told for %q %q, want %q", test.typed, got, test.want)
		}
	}
}

// On a terminal mistakes are coloured, unless colour is disabled. Elsewhere they are plain.
func TestColors(t *testing.T) {
	t.Parallel()
	binary, err := filepath.Abs("../../dist/weir") // built by make build
	if err != nil {
		t.Fatal(err)
	}
	const plain = "weir: unknown command"
	for _, test := range []struct {
		set         string
		onTerminal  bool
		want, never string
	}{
		{"TERM=xterm", true, "\x1b[31mweir:\x1b[0m unknown command", "\x1b[0m\x1b"},
		{"NO_COLOR=1", true, plain, "\x1b"},
		{"TERM=dumb", true, plain, "\x1b"},
		{"TERM=xterm", false, plain, "\x1b"},
	} {
		c := exec.CommandContext(t.Context(), binary, "dance")
		if test.onTerminal {
			c = exec.CommandContext(t.Context(), "script", "-qec", binary+" dance", os.DevNull)
		}
		c.Env = append(os.Environ(), "NO_COLOR=", "TERM=xterm", test.set)
		out, err := c.CombinedOutput()
		if err == nil {
			t.Error("a wrong command ends well")
		}
		if got := string(out); !strings.Contains(got, test.want) || strings.Contains(got, test.never) || !strings.HasSuffix(strings.TrimSpace(got), `"dance"`) {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
