package envoytest

import (
	"bytes"
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
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options say how an Envoy is run.
type Options struct {
	Binary Binary
	// Dir is an existing folder for the process's own files.
	Dir string
	// Bootstrap is the configuration, JSON or YAML. Its admin address must have a port, 0 for any
	// that is free.
	Bootstrap []byte
	// Workers is the number of worker threads; 1 if 0.
	Workers int
	// DrainSeconds is how long listeners and configurations that were replaced live on; 1 if 0.
	// Envoy's own default is 600.
	DrainSeconds int
	// Args are further arguments of the command line.
	Args []string
	// Clock is the process's wall clock; the machine's if nil.
	Clock *Clock
	// Prefix is a command that runs Envoy, such as taskset with its arguments.
	Prefix []string
}

// Envoy is a process. Its methods may be called by several goroutines at once.
type Envoy struct {
	cmd    *exec.Cmd
	admin  string
	output output
	exited chan struct{}
	err    error // of the process, once it has exited
}

// startTimeout bounds how long a process may take until it is ready.
const startTimeout = 2 * time.Minute

// Start starts an Envoy, and returns when it is ready to serve: all its static configuration is in
// force, plugins are compiled. Its error has what the process said. Close must be called in the
// end.
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
		// The thread that starts the process is the parent that it must not outlive.
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
				return false, nil // it is not there yet
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

// PID is the process's number.
func (e *Envoy) PID() int { return e.cmd.Process.Pid }

// Log returns the output of the process so far, access logs among it.
func (e *Envoy) Log() string { return e.output.String() }

// Close ends the process, and waits for its end. It returns an error if the process had ended by
// itself.
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

// poll is the pause between two looks at whether something has happened.
const poll = 10 * time.Millisecond

// Wait waits until something has happened, or has failed. It gives up when ctx or the process ends.
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

// Admin asks the administration interface.
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

// Listeners are the addresses of the listeners by their names, with the ports that they have got.
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

// Stat is a counter or a gauge of the process, 0 if it was never used.
func (e *Envoy) Stat(name string) (int64, error) {
	stats, err := e.Stats("^" + escape(name) + "$")
	return stats[name], err
}

// escape quotes a name for a regular expression of Envoy's.
func escape(name string) string {
	var b strings.Builder
	for _, c := range name {
		if strings.ContainsRune(`.+*?()|[]{}^$\`, c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// Stats are the counters and gauges whose names match a regular expression.
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
			stats[s.Name] = n // text values and histograms are not for here
		}
	}
	return stats, nil
}

// output keeps all that a process writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
