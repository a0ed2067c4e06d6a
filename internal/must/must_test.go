package must_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"weir/internal/must"
)

// fake records what fails.
type fake struct {
	testing.TB
	said []string
}

func (*fake) Helper() {}

func (f *fake) Errorf(format string, args ...any) { f.Error(fmt.Sprintf(format, args...)) }

func (f *fake) Fatalf(format string, args ...any) { f.Errorf(format, args...) }

func (f *fake) Error(args ...any) { f.said = append(f.said, args[0].(string)) }

// What differs is said with the words before it, and what is equal is not.
func TestEqual(t *testing.T) {
	var f fake
	must.Equal(&f, 1, 1, "equal")
	must.Equal(&f, 1, 2, "of %d", 3)
	must.Equal(&f, "a", "b", "")
	must.Equal(&f, "a\n", "b", "page")
	must.Same(&f, []string(nil), []string{}, "nothing")
	must.Same(&f, []string{"a"}, []string{"b"}, "all")
	must.Is(&f, errors.Join(io.EOF), io.EOF, "end")
	must.Is(&f, nil, io.EOF, "end of %s", "it")
	must.Contains(&f, "text", "ex", "there")
	must.Contains(&f, "text", "tt", "not %s", "there")
	must.Lacks(&f, "text", "tt", "not there")
	must.Lacks(&f, "text", "ex", "%s", "there")
	must.Fails(&f, io.EOF, "at the end")
	must.Fails(&f, nil, "before the %s", "end")
	must.Reportf(&f, nil, "before the end")
	must.Reportf(&f, io.EOF, "at the %s", "end")
	must.OKf(&f, nil, "before the end")
	must.OKf(&f, io.EOF, "at %d", 3)
	if got := strings.Join(f.said, "|"); got != "of 3: got 1, want 2|got \"a\", want \"b\"|page: got\na\n\nwant\nb|all: got [\"a\"], want [\"b\"]|"+
		"end of it: got <nil>, want EOF|not there: no \"tt\" in\ntext|there: \"ex\" is in\ntext|"+
		"before the end: got no error|at the end: EOF|at 3: EOF" {
		t.Error(got)
	}
}

func TestAllocated(t *testing.T) {
	times, bytes := must.Allocated(func() { kept = make([]byte, 1<<20) })
	must.AtLeast(t, times, 1, "times")
	must.AtLeast(t, bytes, 1<<20, "bytes")
}

var kept []byte
