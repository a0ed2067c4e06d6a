package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"weir/bench/page"
)

// proxyFigures are of requests over connections that are kept open, from clients on this machine to
// an upstream on this machine.
type proxyFigures struct {
	Clients int `json:"clients"`
	// Targets are the upstream itself, and weir run before it with a filter that does nothing, and
	// with the plugin.
	Targets []targetFigures `json:"targets"`
	// ToNothing is how many requests a second pass with the plugin, as a share of those that pass
	// with a filter that does nothing; ToNone as a share of those that the upstream answers without
	// a proxy.
	ToNothing page.Spread `json:"to_nothing"`
	ToNone    page.Spread `json:"to_none"`
}

type targetFigures struct {
	Name      string      `json:"name"`
	PerSecond page.Spread `json:"per_second"`
	// Millis is the median over the rounds of the mean time of a request.
	Millis float64 `json:"ms"`
}

// configuration allows every request, and counts it.
const configuration = `{"rules": [{"name": "per-user", "key": [{"header": "x-user"}], "limits": [{"limit": 999999999999999, "window": "1h"}]}]}`

// target is asked by clients.
type target struct {
	name      string
	url       string
	perSecond []float64
	millis    []float64
}

func measureProxy(ctx context.Context, o *options, nothing []byte) (_ *proxyFigures, err error) {
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is the system's to tidy up what stays
	configurationFile, nothingFile := filepath.Join(dir, "weir.json"), filepath.Join(dir, "nothing.wasm")
	if err := errors.Join(os.WriteFile(configurationFile, []byte(configuration), 0o600), os.WriteFile(nothingFile, nothing, 0o600)); err != nil {
		return nil, err
	}
	upstream, stop, err := serveUpstream()
	if err != nil {
		return nil, err
	}
	defer stop()
	targets := []*target{{name: "no proxy", url: upstream}, {name: "weir run, a filter that does nothing"}, {name: "weir run"}}
	for i, plugin := range []string{nothingFile, o.plugin} {
		var end func() error
		targets[i+1].url, end, err = startWeir(ctx, o.weir, "run", "--listen", "127.0.0.1:0", "--nodes", "1", "--config", configurationFile,
			"--upstream", upstream, "--wasm", plugin)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.clients, DisableCompression: true}}
	defer client.CloseIdleConnections()
	for round := range o.rounds + 1 {
		say("weir run, round %d of %d", round, o.rounds)
		for i := range targets {
			t := targets[(i+round)%len(targets)]
			perSecond, millis, err := ask(ctx, client, t.url, o)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", t.name, err)
			}
			if round > 0 { // the first one warms up
				t.perSecond, t.millis = append(t.perSecond, perSecond), append(t.millis, millis)
			}
		}
	}
	f := &proxyFigures{Clients: o.clients}
	for _, t := range targets {
		f.Targets = append(f.Targets, targetFigures{Name: t.name, PerSecond: page.SpreadOf(t.perSecond), Millis: page.Median(t.millis)})
	}
	f.ToNothing, f.ToNone = ratio(targets[2].perSecond, targets[1].perSecond), ratio(targets[2].perSecond, targets[0].perSecond)
	return f, nil
}

// serveUpstream answers every request with a few bytes.
func serveUpstream() (url string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		// A client that has gone is no failure of the upstream's.
		_, _ = io.WriteString(w, "ok\n")
	})}
	var group sync.WaitGroup
	group.Go(func() {
		// It ends with an error when it is closed.
		_ = server.Serve(l)
	})
	return "http://" + l.Addr().String(), func() {
		_ = server.Close() // all was measured
		group.Wait()
	}, nil
}

var nodeLine = regexp.MustCompile(`^node 0 +(http://\S+)`)

// startWeir starts the command, and returns the address of its first node once it serves.
func startWeir(ctx context.Context, name string, args ...string) (url string, end func() error, err error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := command.Start(); err != nil {
		return "", nil, fmt.Errorf("start the command, which make build leaves there: %w", err)
	}
	end = func() error {
		if err := command.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		return command.Wait()
	}
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if found := nodeLine.FindStringSubmatch(lines.Text()); found != nil {
			return found[1], end, nil
		}
	}
	return "", nil, errors.Join(errors.New("weir run ended before it served"), lines.Err(), end())
}

// ask has all clients send requests, each its next one when the last was answered, for a block's
// time.
func ask(ctx context.Context, client *http.Client, url string, o *options) (perSecond, millis float64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var answered atomic.Int64
	var group sync.WaitGroup
	start := time.Now()
	for i := range o.clients {
		group.Go(func() {
			for time.Since(start) < o.block && ctx.Err() == nil {
				if err := get(ctx, client, url, fmt.Sprintf("user-%06d", i)); err != nil {
					cancel(err)
					return
				}
				answered.Add(1)
			}
		})
	}
	group.Wait()
	elapsed, n := time.Since(start), float64(answered.Load())
	if err := context.Cause(ctx); err != nil {
		return 0, 0, err
	}
	return n / elapsed.Seconds(), float64(o.clients) * elapsed.Seconds() * 1000 / n, nil
}

func get(ctx context.Context, client *http.Client, url, user string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("X-User", user)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	if err = cmp.Or(err, response.Body.Close()); err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("want status 200, got %s", response.Status)
	}
	return err
}
