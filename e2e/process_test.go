package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/internal/envoytest"
	"weir/internal/server"
	"weir/internal/store/memory"
)

// process is a running command.
type process struct {
	cmd    *exec.Cmd
	mu     sync.Mutex
	output bytes.Buffer
	lines  chan string // closed after the process has ended
	killed bool        // or ended
	ended  chan error  // what the process has ended with
}

// start runs the command, until the test ends.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startFile(t, commandFile, args...)
}

// startFile is start of another build of the command.
func startFile(t *testing.T, file string, args ...string) *process {
	t.Helper()
	return startCommand(t, exec.Command(file, args...))
}

// startCommand is start of a command that has yet to be started.
func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, lines: make(chan string, 1000), ended: make(chan error, 1)}
	reader, writer := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = writer, writer
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%v; make build makes the command", err)
	}
	go func() {
		err := p.cmd.Wait()
		p.ended <- errors.Join(err, writer.Close())
	}()
	go func() {
		defer close(p.lines)
		for scanner := bufio.NewScanner(reader); scanner.Scan(); {
			p.mu.Lock()
			fmt.Fprintln(&p.output, scanner.Text())
			p.mu.Unlock()
			if strings.Contains(scanner.Text(), "msg=push") {
				pushed.happen(t)
				continue
			}
			select {
			case p.lines <- scanner.Text():
			default: // no test waits for that many
			}
		}
	}()
	t.Cleanup(func() {
		if !p.killed {
			if err := p.end(); err != nil {
				t.Errorf("%v: %v\n%s", cmd.Args, err, p.printed())
			}
		}
	})
	return p
}

// kill kills the process, like a crash.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.killed = true
	if err := p.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	var killed *exec.ExitError
	if err := <-p.ended; !errors.As(err, &killed) {
		t.Errorf("killed: got %v", err)
	}
}

// end ends the process like an operator does.
func (p *process) end() error {
	p.killed = true
	return errors.Join(p.cmd.Process.Signal(syscall.SIGTERM), <-p.ended)
}

func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// wait waits for a line that matches, and returns its first group.
func (p *process) wait(t *testing.T, pattern string) string {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	for line := range p.lines {
		if match := expression.FindStringSubmatch(line); match != nil {
			return match[1]
		}
	}
	t.Fatalf("the command printed no line like %q:\n%s", pattern, p.printed())
	return ""
}

// serve runs the counter backend, and returns its address.
func serve(t *testing.T, store string) string {
	t.Helper()
	_, address := serveAt(t, "127.0.0.1:0", store)
	return address
}

func serveAt(t *testing.T, listen, store string) (p *process, address string) {
	t.Helper()
	p = start(t, "serve", "--listen", listen, "--store", store, "--log-level", "debug")
	return p, p.wait(t, `address=(\S+)`)
}

// steadyAddress is an address that a test's command gets again after it was away: the system gives ports
// above these to others.
func steadyAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 30_000+rand.IntN(2700)))
		if err == nil {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			return l.Addr().String()
		}
	}
	t.Fatal("no port between 30,000 and 32,700 is free")
	return ""
}

// serveBy runs a backend in memory within the test, with the test's clock. A node uses its
// backend's time, so moving only a node's clock would not move its time.
func serveBy(t *testing.T, clock *fakeClock) string {
	t.Helper()
	now := func() time.Time { return time.Unix(0, clock.now()) }
	s := httptest.NewServer(server.Handler(memory.New(memory.Options{Now: now}), server.Options{Now: now, Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// pushed happens whenever a test's backend logs a push.
var pushed event

// event is an event for which tests wait. It happens for a named test, for the tests within it and
// for the test around it: if it woke all tests, each would ask its backend and slow down the
// others.
type event struct {
	mu      sync.Mutex
	waiting map[chan<- struct{}]string // channels with room for a single value, with the tests' names
}

func (e *event) happen(t *testing.T) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for waiting, name := range e.waiting {
		if name == t.Name() || strings.HasPrefix(name, t.Name()+"/") || strings.HasPrefix(t.Name(), name+"/") {
			select {
			case waiting <- struct{}{}:
			default: // the test has not checked yet
			}
		}
	}
}

// until waits until so returns true. It checks whenever the event happens for this test, and
// returns false after a minute.
func (e *event) until(t *testing.T, so func() bool) bool {
	t.Helper()
	happened := make(chan struct{}, 1)
	e.mu.Lock()
	if e.waiting == nil {
		e.waiting = map[chan<- struct{}]string{}
	}
	e.waiting[happened] = t.Name()
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.waiting, happened)
	}()
	for patience := time.After(time.Minute); !so(); {
		select {
		case <-happened:
		case <-patience:
			return so()
		}
	}
	return true
}

// counterLine is a counter as a backend lists it, without its key's name, which it does not know.
type counterLine struct {
	Kind      string
	Precision uint64 `json:"precision_ns"`
	Windows   []struct {
		Start time.Time
		Hits  int64
	}
}

// hits returns the counter's hits.
func (c counterLine) hits() (sum int64) {
	for _, w := range c.Windows {
		sum += w.Hits
	}
	return sum
}

// listed returns a backend's counters in a namespace; nil and false if its store can't be reached.
func listed(t *testing.T, backend, namespace string) (lines []counterLine, ok bool) {
	t.Helper()
	r := ask(t, envoytest.Client, "http://"+backend, ":path", "/v1/counters?namespace="+namespace)
	switch r.status {
	case http.StatusOK:
	case http.StatusServiceUnavailable:
		return nil, false
	default:
		t.Fatalf("counters: status %d: %s", r.status, r.body)
	}
	for decoder := json.NewDecoder(strings.NewReader(r.body)); ; {
		var line counterLine
		if err := decoder.Decode(&line); err == io.EOF {
			return lines, true
		} else if err != nil {
			return nil, false // the list was cut short
		}
		lines = append(lines, line)
	}
}

// counted returns the sum of a backend's hits in a namespace; -1 if its store can't be reached.
func counted(t *testing.T, backend, namespace string) (sum int64) {
	t.Helper()
	lines, ok := listed(t, backend, namespace)
	if !ok {
		return -1
	}
	for _, line := range lines {
		sum += line.hits()
	}
	return sum
}
