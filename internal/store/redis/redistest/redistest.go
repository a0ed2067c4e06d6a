// Package redistest runs a real Redis, or a Redis Cluster, for tests.
package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/commandtest"
	"weir/internal/must"
)

// Server is a redis-server process of a test, on its own port of 127.0.0.1. It is not safe for
// concurrent use.
type Server struct {
	// Addr is host and port. They survive [Server.Restart].
	Addr string

	t       testing.TB
	dir     string
	options []string
	// listen returns the options to listen at a port.
	listen  func(port string) []string
	cmd     *exec.Cmd
	drained chan error
}

// Start starts a server that keeps no data when it stops, and returns when it answers. It is
// stopped at the test's end. Options are appended to its command line. With "--appendonly", "yes",
// "--appendfsync", "always" it keeps its data over [Server.Restart].
//
// The test fails if redis-server is not installed.
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	return launch(t, func(port string) []string { return []string{"--port", port} }, func() []string { return options })
}

// launch starts a server. If another process has taken its port, it tries again with new options.
func launch(t testing.TB, listen func(port string) []string, options func() []string) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatalf("redis-server: %v; install it: apt-get install redis-server", err)
	}
	s := &Server{t: t, dir: t.TempDir(), listen: listen}
	t.Cleanup(s.Stop)
	// Another process may take the port between its choice and its use.
	var log string
	for range 5 {
		s.Addr, s.options = commandtest.FreeAddress(t), options()
		var ready bool
		if log, ready = s.start(); ready {
			return s
		}
	}
	t.Fatalf("redis-server does not start:\n%s", log)
	return nil
}

// URL returns the server's URL for a client, with database 0.
func (s *Server) URL() string { return "redis://" + s.Addr }

// PID returns the number of the server's process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Stop kills the process, like a crash. It does nothing if the server is stopped already.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Errorf("redis-server: %v", err)
	}
	must.Reportf(s.t, <-s.drained, "redis-server: its log")
	// The exit status of a killed process is no failure.
	var exit *exec.ExitError
	if err := s.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		s.t.Errorf("redis-server: %v", err)
	}
	s.cmd = nil
	commandtest.Hold(s.t, s.Addr)
}

// Restart stops the server if it runs, and starts it at the same address.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	if log, ready := s.start(); !ready {
		s.t.Fatalf("redis-server does not start again:\n%s", log)
	}
}

// Pause stops the process from running until [Server.Resume]. The kernel still accepts connections.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a paused process run again.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal os.Signal) {
	s.t.Helper()
	must.OKf(s.t, s.cmd.Process.Signal(signal), "redis-server")
}

// start starts the process. It reports whether the server is ready, and returns its log until then.
func (s *Server) start() (log string, ready bool) {
	host, port, err := net.SplitHostPort(s.Addr)
	must.OK(s.t, err)
	cmd := exec.Command("redis-server", slices.Concat(s.listen(port), []string{
		"--bind", host, "--dir", s.dir, "--save", "", "--appendonly", "no", "--daemonize", "no",
	}, s.options)...)
	stdout := must.Get(cmd.StdoutPipe())(s.t)
	must.OKf(s.t, cmd.Start(), "redis-server")
	s.cmd, s.drained = cmd, make(chan error, 1)
	var said strings.Builder
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		said.WriteString(line)
		if strings.Contains(line, "Ready to accept connections") || strings.Contains(line, "Sentinel ID is") {
			go func() {
				_, err := io.Copy(io.Discard, lines)
				s.drained <- err
			}()
			return said.String(), true
		}
		if err != nil {
			s.drained <- nil
			s.Stop()
			return said.String(), false
		}
	}
}

// Busy is how often a server was called by a command, and how many microseconds these calls took.
type Busy struct{ Calls, Micros int }

// BusyWith returns how busy a server was with a command.
func BusyWith(t testing.TB, server *goredis.Client, command string) (b Busy) {
	t.Helper()
	stats := must.Get(server.InfoMap(t.Context(), "commandstats").Result())(t)
	_, _ = fmt.Sscanf(stats["Commandstats"]["cmdstat_"+command], "calls=%d,usec=%d", &b.Calls, &b.Micros) // nothing if it was never called
	return b
}
