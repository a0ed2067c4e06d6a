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
	if got := strings.Join(f.said, "|"); got != "of 3: got 1, want 2|got \"a\", want \"b\"|page: got\na\n\nwant\nb|all: got [\"a\"], want [\"b\"]|"+
		"end of it: got <nil>, want EOF|not there: no \"tt\" in\ntext" {
		t.Error(got)
	}
}
