package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store/memory"
)

// start runs the command, until the test ends.
func start(t *testing.T, args ...string) *commandtest.Process {
	t.Helper()
	return startCommand(t, exec.Command(commandFile, args...))
}

// startCommand is start of another build of the command, or in another environment.
func startCommand(t *testing.T, cmd *exec.Cmd) *commandtest.Process {
	t.Helper()
	return commandtest.StartHeeding(t, cmd, func(line string) bool {
		push := strings.Contains(line, "msg=push")
		if push {
			pushed.happen(t)
		}
		return push
	})
}

// serve runs the counter backend, and returns its address.
func serve(t *testing.T, store string) string {
	t.Helper()
	_, address := serveAt(t, "127.0.0.1:0", store)
	return address
}

func serveAt(t *testing.T, listen, store string) (p *commandtest.Process, address string) {
	t.Helper()
	p = start(t, "serve", "--listen", listen, "--store", store, "--log-level", "debug")
	return p, p.Wait(t, `address=(\S+)`)
}

// steadyAddress is an address that a test's command gets again after it was away: the system gives ports
// above these to others.
func steadyAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 30_000+rand.IntN(2700)))
		if err == nil {
			must.OK(t, l.Close())
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

// soon calls so again and again, and reports whether it returns true: for as long as a request may take, and on a slow machine
// five times that, but then for no more than a thousand calls.
func soon(so func() bool) bool {
	deadline := time.Now().Add(hang)
	for looks := 1; !so(); looks++ {
		if late := time.Since(deadline); late > 4*hang || late > 0 && looks >= 1000 {
			return false
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
