package page

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
)

// host replaces the test that packages with servers require. It lacks methods that they don't use.
type host struct {
	testing.TB
	ends []func()
	err  error
}

// Hosted calls run, and then ends the servers that it has started.
func Hosted(run func(t testing.TB) error) error {
	h := &host{}
	done := make(chan struct{})
	// As in package testing, a fatal error ends the goroutine.
	go func() {
		defer close(done)
		defer func() {
			for _, end := range slices.Backward(h.ends) {
				end()
			}
		}()
		h.fail(run(h))
	}()
	<-done
	return h.err
}

func (h *host) fail(err error) { h.err = errors.Join(h.err, err) }

// Helper implements [testing.TB].
func (*host) Helper() {}

// Cleanup implements [testing.TB].
func (h *host) Cleanup(end func()) { h.ends = append(h.ends, end) }

// Error implements [testing.TB].
func (h *host) Error(args ...any) { h.fail(errors.New(fmt.Sprint(args...))) }

// Errorf implements [testing.TB].
func (h *host) Errorf(format string, args ...any) { h.fail(fmt.Errorf(format, args...)) }

// Fatal implements [testing.TB].
func (h *host) Fatal(args ...any) {
	h.Error(args...)
	runtime.Goexit()
}

// Fatalf implements [testing.TB].
func (h *host) Fatalf(format string, args ...any) {
	h.Errorf(format, args...)
	runtime.Goexit()
}

// TempDir implements [testing.TB].
func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { h.fail(os.RemoveAll(dir)) })
	return dir
}
