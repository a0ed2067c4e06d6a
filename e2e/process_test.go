package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
)

// process is a run of the command.
type process struct {
	cmd    *exec.Cmd
	mu     sync.Mutex
	output bytes.Buffer
	lines  chan string
	killed bool // or ended
}

// start runs the command, until the test ends.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startFile(t, commandFile, args...)
}

// startFile is start of another build of the command.
func startFile(t *testing.T, file string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(file, args...), lines: make(chan string, 1000)}
	reader, writer := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = writer, writer
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%v; make build makes the command", err)
	}
	go func() {
		defer close(p.lines)
		for scanner := bufio.NewScanner(reader); scanner.Scan(); {
			p.mu.Lock()
			fmt.Fprintln(&p.output, scanner.Text())
			p.mu.Unlock()
			select {
			case p.lines <- scanner.Text():
			default: // nobody waits for so many
			}
		}
	}()
	t.Cleanup(func() {
		if !p.killed {
			if err := p.end(); err != nil {
				t.Errorf("%v: %v\n%s", args, err, p.printed())
			}
		}
		if err := writer.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// kill ends the process as a crash does.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.killed = true
	if err := p.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	var killed *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &killed) {
		t.Errorf("killed: got %v", err)
	}
}

// end ends the process as an operator does.
func (p *process) end() error {
	p.killed = true
	return errors.Join(p.cmd.Process.Signal(syscall.SIGTERM), p.cmd.Wait())
}

func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// printed waits for a line that matches, and returns the first group of it.
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
	p = start(t, "serve", "--listen", listen, "--store", store)
	return p, p.wait(t, `address=(\S+)`)
}

// counted is the sum of all hits that a backend has in a namespace, or -1 if its store can't be
// reached.
func counted(t *testing.T, backend, namespace string) (sum int64) {
	t.Helper()
	response, err := http.Get("http://" + backend + "/v1/counters?namespace=" + namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusServiceUnavailable:
		return -1
	default:
		t.Fatalf("counters: got %s", response.Status)
	}
	decoder := json.NewDecoder(response.Body)
	for {
		var line struct {
			Windows []struct {
				Hits int64 `json:"hits"`
			} `json:"windows"`
		}
		err := decoder.Decode(&line)
		if err == io.EOF {
			return sum
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range line.Windows {
			sum += w.Hits
		}
	}
}
