package envoytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"weir/internal/commandtest"
)

// Options configure an Envoy.
type Options struct {
	Binary Binary
	// Dir is an existing folder for the process's own files.
	Dir string
	// Bootstrap is the configuration, as JSON or YAML. Its admin address must have a port; 0 means
	// any free port.
	Bootstrap []byte
	// Workers is the number of worker threads; 0 means 1.
	Workers int
	// DrainSeconds is how long replaced listeners and configurations live on; 0 means 1. Envoy's
	// default is 600.
	DrainSeconds int
	// Args are further arguments of the command line.
	Args []string
	// Clock is the process's wall clock; nil means the machine's.
	Clock *Clock
	// Prefix is a command that runs Envoy, such as taskset with its arguments.
	Prefix []string
}

// Envoy is a running process. Its methods are safe for concurrent use.
type Envoy struct {
	cmd    *exec.Cmd
	admin  string
	output commandtest.Output
	exited chan struct{}
	err    error // how the process has ended; valid after exited is closed
}

// startTimeout bounds the time until a process is ready.
const startTimeout = 2 * time.Minute

// Start starts an Envoy, and returns when it is ready to serve: all its static configuration is in
// force, and plugins are compiled. Its error has the process's output. The caller must call Close.
func Start(ctx context.Context, o Options) (*Envoy, error) {
	bootstrap, adminFile := filepath.Join(o.Dir, "bootstrap.yaml"), filepath.Join(o.Dir, "admin")
	if err := os.WriteFile(bootstrap, o.Bootstrap, 0o600); err != nil {
		return nil, err
	}
	if err := os.Remove(adminFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	args := append([]string{}, o.Prefix...)
	args = append(args, o.Binary.Path, "--config-path", bootstrap, "--disable-hot-restart", "--admin-address-path", adminFile,
		"--concurrency", strconv.Itoa(max(o.Workers, 1)), "--drain-time-s", strconv.Itoa(max(o.DrainSeconds, 1)))
	args = append(args, o.Args...)
	e := &Envoy{cmd: exec.Command(args[0], args[1:]...), exited: make(chan struct{})}
	e.cmd.Stdout, e.cmd.Stderr = &e.output, &e.output
	if o.Clock != nil {
		e.cmd.Env = o.Clock.environment()
	}
	endWithParent(e.cmd)
	started := make(chan error)
	go func() {
		// Linux kills the process when the thread that started it ends, not the whole parent.
		runtime.LockOSThread()
		err := e.cmd.Start()
		started <- err
		if err == nil {
			e.err = e.cmd.Wait()
			close(e.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := e.Wait(ctx, func() (bool, error) {
		if e.admin == "" {
			address, err := os.ReadFile(adminFile)
			if err != nil || len(address) == 0 {
				return false, nil // Envoy has not written it yet
			}
			e.admin = string(address)
		}
		state, err := e.Admin("GET", "/ready")
		return err == nil && strings.TrimSpace(string(state)) == "LIVE", nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("envoy %s does not start: %w\n%s", o.Binary.Version, err, e.Log()), e.Close())
	}
	return e, nil
}

// PID returns the process's identifier.
func (e *Envoy) PID() int { return e.cmd.Process.Pid }

// Log returns the process's output so far, including access logs.
func (e *Envoy) Log() string { return e.output.String() }

// Close kills the process, and waits for its end. It returns an error if the process had ended
// before.
func (e *Envoy) Close() error {
	select {
	case <-e.exited:
		return fmt.Errorf("envoy has ended by itself: %w\n%s", errors.Join(e.err, errors.New(e.cmd.ProcessState.String())), e.Log())
	default:
	}
	if err := e.cmd.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-e.exited
	return nil
}

// poll is the pause between two calls of a condition.
const poll = 10 * time.Millisecond

// Wait calls happened until it returns true or an error. It returns an error if ctx or the process
// ends first.
func (e *Envoy) Wait(ctx context.Context, happened func() (bool, error)) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		if done, err := happened(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.exited:
			return fmt.Errorf("the process has ended: %w", errors.Join(e.err, errors.New(e.cmd.ProcessState.String())))
		case <-ticker.C:
		}
	}
}

var adminClient = &http.Client{Timeout: 30 * time.Second}

// Admin sends a request to the administration interface, and returns the body of the answer. A
// status other than 200 is an error.
func (e *Envoy) Admin(method, path string) ([]byte, error) {
	request, err := http.NewRequest(method, "http://"+e.admin+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := adminClient.Do(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return body, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, body)
	}
	return body, nil
}

// Listeners returns the addresses of the listeners, with their actual ports, by name.
func (e *Envoy) Listeners() (map[string]string, error) {
	body, err := e.Admin("GET", "/listeners?format=json")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Statuses []struct {
			Name    string `json:"name"`
			Address struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	listeners := make(map[string]string, len(answer.Statuses))
	for _, s := range answer.Statuses {
		listeners[s.Name] = s.Address.Socket.Address + ":" + strconv.Itoa(s.Address.Socket.Port)
	}
	return listeners, nil
}

// Stat returns a counter or a gauge of the process; 0 if it was never used.
func (e *Envoy) Stat(name string) (int64, error) {
	stats, err := e.Stats("^" + regexp.QuoteMeta(name) + "$")
	return stats[name], err
}

// Stats returns the counters and gauges whose names match a regular expression.
func (e *Envoy) Stats(pattern string) (map[string]int64, error) {
	body, err := e.Admin("GET", "/stats?format=json&filter="+url.QueryEscape(pattern))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Stats []struct {
			Name  string          `json:"name"`
			Value json.RawMessage `json:"value"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	stats := make(map[string]int64, len(answer.Stats))
	for _, s := range answer.Stats {
		if n, err := strconv.ParseInt(string(s.Value), 10, 64); err == nil {
			stats[s.Name] = n // other values are texts and histograms
		}
	}
	return stats, nil
}
