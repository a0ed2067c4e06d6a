package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
)

// logBuffer is safe for concurrent use, like a standard error.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(text)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// execute runs a command in this process, with variables and a text as its standard input.
func execute(ctx context.Context, set map[string]string, stdin string, args ...string) (code int, stdout, stderr string) {
	var out bytes.Buffer
	var errs logBuffer // a backend may log while the command ends
	code = run(ctx, args, environment{
		stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs, getenv: func(name string) string { return set[name] },
	})
	return code, out.String(), errs.String()
}

// lineTest is a command line with its exit code, and parts of what it prints. What follows <<< is its
// standard input.
type lineTest struct {
	args           string
	code           int
	stdout, stderr string
}

// executeAll executes command lines in turn, with variables.
func executeAll(t *testing.T, set map[string]string, lines []lineTest) {
	t.Helper()
	for _, want := range lines {
		args, stdin, _ := strings.Cut(want.args, " <<< ")
		code, stdout, stderr := execute(t.Context(), set, stdin, strings.Fields(args)...)
		if code != want.code || !strings.Contains(stdout, want.stdout) || !strings.Contains(stderr, want.stderr) {
			t.Errorf("weir %s: exit %d, want %d\n%s%s\nwant\n%s%s", want.args, code, want.code, stdout, stderr, want.stdout, want.stderr)
		}
		if strings.Contains(stdout+stderr, "\x1b") {
			t.Errorf("weir %s: a control character in %q", want.args, stdout+stderr)
		}
	}
}
