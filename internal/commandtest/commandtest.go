// Package commandtest runs commands for tests: it finds and keeps addresses for them, waits for what they print, and ends them.
package commandtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"

	"weir/internal/must"
)

// Process is a running command. Its methods are safe for concurrent use, except Wait.
type Process struct {
	Cmd    *exec.Cmd // as it was started: others do not wait for its end
	output Output
	ended  bool        // by the test
	end    chan error  // gets what the process has ended with
	lines  chan string // closed after the process has ended
}

// Start starts a command until the test ends, which fails if the command has not ended well then.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	return StartHeeding(t, cmd, func(string) bool { return false })
}

// StartHeeding is [Start] of a command that prints much. [Process.Wait] does not see lines of which
// heed returns true.
func StartHeeding(t testing.TB, cmd *exec.Cmd, heed func(line string) bool) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, lines: make(chan string, 1000), end: make(chan error, 1)}
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; %s", err, hint)
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		ended <- errors.Join(err, writer.Close())
	}()
	go func() {
		defer func() {
			close(p.lines)
			p.end <- <-ended // once all is printed
		}()
		scanner := bufio.NewScanner(reader)
		for scanner.Buffer(nil, 1<<20); scanner.Scan(); {
			fmt.Fprintln(&p.output, scanner.Text())
			if heed(scanner.Text()) {
				continue
			}
			select {
			case p.lines <- scanner.Text():
			default: // no test waits for that many
			}
		}
	}()
	t.Cleanup(func() {
		if p.ended {
			return
		}
		if err := p.End(); err != nil {
			t.Errorf("%v: %v\n%s", cmd.Args, err, p.Printed())
		}
	})
	return p
}

// Run runs a command to its end, and returns what it prints. The test ends if the command does not end well.
func Run(t testing.TB, cmd *exec.Cmd) (printed string) {
	t.Helper()
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v; %s\n%s", cmd.Args, err, hint, said)
	}
	return string(said)
}

// hint tells how to get a command that is not there.
const hint = "make build makes weir, and scripts/test-dependencies installs other commands, those of nightly tests with WEIR_NIGHTLY=1"

// Wait waits for the next line that matches, and returns its first group.
func (p *Process) Wait(t testing.TB, pattern string) string {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	for line := range p.lines {
		if match := expression.FindStringSubmatch(line); match != nil {
			return match[1]
		}
	}
	t.Fatalf("%v printed no line like %q:\n%s", p.Cmd.Args, pattern, p.Printed())
	return ""
}

// Printed returns all that the command has printed.
func (p *Process) Printed() string { return p.output.String() }

// End ends the process like an operator does, and returns an error if it does not end well.
func (p *Process) End() error { return p.EndBy(syscall.SIGTERM) }

// EndBy is [Process.End] by another signal.
func (p *Process) EndBy(signal os.Signal) error {
	p.ended = true
	return errors.Join(p.Cmd.Process.Signal(signal), <-p.end)
}

// Kill kills the process, like a crash.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	p.ended = true
	must.Report(t, p.Cmd.Process.Kill())
	var killed *exec.ExitError
	if err := <-p.end; !errors.As(err, &killed) {
		t.Errorf("killed: got %v", err)
	}
}

// FreeAddress returns an address of this machine that nobody listens at.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return FreeAddresses(t, 1)[0]
}

// FreeAddresses returns different addresses of this machine that nobody listens at.
func FreeAddresses(t testing.TB, n int) (addresses []string) {
	t.Helper()
	for range n {
		l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		defer func() { _ = l.Close() }() // only after all are found
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}

// Hold keeps an address of a server that is away, until the test ends: a connection of others could take its port. A socket
// that does not listen refuses connections, and lets a server that sets SO_REUSEADDR listen again, as most do.
func Hold(t testing.TB, address string) {
	t.Helper()
	at := must.Get(netip.ParseAddrPort(address))(t)
	socket := must.Get(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0))(t)
	syscall.CloseOnExec(socket)
	t.Cleanup(func() { must.Report(t, syscall.Close(socket)) })
	must.OK(t, syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		t.Logf("%s can't be kept: %v", address, err)
	}
}

// Output collects what a process prints, or a log. Its methods are safe for concurrent use.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
