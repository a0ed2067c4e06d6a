package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/wire"
)

// shellOf runs a program of a shell with the completion's file as its first argument, where weir is this test's own command.
func shellOf(t *testing.T, shell, program string, args ...string) []string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "_weir")
	self, err := os.Executable()
	must.OK(t, errors.Join(err, os.WriteFile(file, []byte(printed(t, "completion", shell)), 0o600), os.WriteFile(filepath.Join(dir, "my.json"), nil, 0o600),
		os.Symlink(self, filepath.Join(dir, "weir"))))
	arguments := append([]string{"--norc", "-c", program, shell, file}, args...)
	switch shell {
	case "zsh":
		arguments[0] = "-f"
	case "fish":
		arguments = append([]string{"--no-config", "-c", program, file}, args...)
	}
	c := exec.CommandContext(t.Context(), shell, arguments...)
	c.Dir = dir
	c.Env = append(os.Environ(), "HOME="+dir, "PATH="+dir+":"+os.Getenv("PATH"), asCommand+"=1")
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

// Each shell completes commands, verbs, flags, values of flags, files, and the rules that a backend knows.
func TestCompletion(t *testing.T) {
	t.Parallel()
	address, _ := startServe(t, nil, nil)
	backend := "http://" + address
	postTold(t, address, []wire.RuleShape{{Name: "per-user"}, {Name: "per-address"}, {Name: "login", Flags: wire.IsShadow}})
	programs := map[string]string{
		"bash": `source "$1"; shift; COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; read -ra COMP_WORDS <<<"${COMP_LINE//:/ : }"; [[ $COMP_LINE = *' ' ]] && COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _weir; printf '%s\n' "${COMPREPLY[@]}"`,
		"fish": `source $argv[1]; complete -C (string join " " -- $argv[2..])`,
		// Zsh completes only on a terminal, so this says what it would offer: compinit accepts the file, and its functions are
		// called with their usual input.
		"zsh": `autoload -Uz compinit; compinit -D -u; source "$1"; [[ ${_comps[weir]} = _weir ]] || echo "no completion"
_describe() { print -rl -- "${(@)${(P@)2}%%:*}" }
_files() { print -rl -- ${words[CURRENT]}*(N) }
words=("${@[2,-1]}"); CURRENT=$(($# - 1)); _weir`,
	}
	for shell, program := range programs {
		for _, test := range []struct{ typed, want []string }{
			{[]string{"weir", "conv"}, []string{"convert"}},
			{[]string{"weir", "co"}, []string{"compile", "completion", "controller", "convert", "counter"}},
			{[]string{"weir", "run", "--log"}, []string{"--log-format", "--log-level"}},
			{[]string{"weir", "run", "--log-level", ""}, []string{"debug", "error", "info", "warn"}},
			{[]string{"weir", "run", "--config", "my"}, []string{"my.json"}},
			{[]string{"weir", "completion", "z"}, []string{"zsh"}},
			{[]string{"weir", "help", "sim"}, []string{"simulate"}},
			{[]string{"weir", "convert", "--from", "n"}, []string{"nginx"}},
			{[]string{"weir", "convert", "--from", "nginx", "m"}, []string{"my.json"}},
			{[]string{"weir", "check", "m"}, []string{"my.json"}},
			{[]string{"weir", "counter", "g"}, []string{"get", "grant"}},
			{[]string{"weir", "price", "l"}, []string{"list", "load"}},
			{[]string{"weir", "counter", "--backend", backend, "get", "shop", "per"}, []string{"per-address", "per-user"}},
			{[]string{"weir", "top", "--backend", backend, "shop", "l"}, []string{"login"}},
			{[]string{"weir", "namespaces", "--backend", backend, "s"}, []string{"shop"}},
			{[]string{"weir", "check", "--format", "'a b'", "m"}, []string{"my.json"}},
			{[]string{"weir", "rule", "o"}, []string{"off"}},
		} {
			must.Same(t, shellOf(t, shell, program, test.typed...), test.want, "%s completes %q by", shell, test.typed)
		}
	}
	for _, typed := range [][]string{{"top", "--backend", "http://127.0.0.1:1", "shop", ""}, {"top", "--backend", backend, "x"}, {"nothing", ""}, {"run", "--nodes", ""}} {
		must.Equal(t, printed(t, append([]string{"completion", fitting}, typed...)...), "", "completions of %q", typed)
	}
}

// On a terminal mistakes are coloured, unless colour is disabled. Elsewhere they are plain.
func TestColors(t *testing.T) {
	t.Parallel()
	binary, err := filepath.Abs("../../dist/weir") // built by make build
	must.OK(t, err)
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
		must.Fails(t, err, "a wrong command")
		if got := string(out); !strings.Contains(got, test.want) || strings.Contains(got, test.never) || !strings.HasSuffix(strings.TrimSpace(got), `"dance"`) {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
