package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bench/site"
)

// requestHeaders name a single user.
var requestHeaders = append(slices.Clone(site.RequestHeaders), [2]string{"x-user", "user-000000"})

// load sends requests over connections that stay open, and returns how long they took. A connection sends its next request
// when its last was answered. An answer with another class of status is an error. more are flags of h2load.
func (p *proxy) load(ctx context.Context, requests int, more ...string) (time.Duration, error) {
	p.sent += requests
	args := append([]string{"--h1", "-t", "1", "-c", strconv.Itoa(p.connections), "-n", strconv.Itoa(requests)}, more...)
	for _, h := range requestHeaders {
		args = append(args, "-H", h[0]+": "+h[1])
	}
	if p.body != "" {
		file := filepath.Join(p.Scratch, "body")
		if err := os.WriteFile(file, []byte(p.body), 0o600); err != nil {
			return 0, err
		}
		args = append(args, "-d", file, "-H", "content-type: application/json")
	}
	output, err := exec.CommandContext(ctx, "h2load", append(args, p.address+cmp.Or(p.path, site.RequestPath))...).CombinedOutput()
	if err != nil {
		return 0, errors.Join(fmt.Errorf("h2load: %w\n%s", err, output), ctx.Err())
	}
	l, err := parseLoad(string(output))
	if err == nil && (l.done != requests || l.classes[p.status()/100] != requests) {
		err = fmt.Errorf("want %d answers of status %d, got %+v", requests, p.status(), l)
	}
	return l.elapsed, err
}

// loaded has h2load's results.
type loaded struct {
	elapsed time.Duration
	done    int
	// classes counts answers by the first digit of their status.
	classes [6]int
}

var loadLines = regexp.MustCompile(`(?s)\nfinished in ([0-9.]+(?:us|ms|s)),.*\nrequests: [^\n]* (\d+) done,.*\nstatus codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx`)

// parseLoad parses the output of h2load.
func parseLoad(output string) (l loaded, err error) {
	found := loadLines.FindStringSubmatch(output)
	if found == nil {
		return l, fmt.Errorf("h2load: want its times, requests and status codes, got %.1000q", output)
	}
	l.elapsed, err = time.ParseDuration(found[1])
	for i, n := range []*int{&l.done, &l.classes[2], &l.classes[3], &l.classes[4], &l.classes[5]} {
		if _, scanned := fmt.Sscan(found[2+i], n); scanned != nil {
			err = scanned
		}
	}
	return l, err
}

// loadPaced sends requests at a rate, and returns how long each took, in µs, the shortest first. Each request is sent when
// it is due, even if those of other connections are not answered yet.
func (p *proxy) loadPaced(ctx context.Context) ([]float64, error) {
	log := filepath.Join(p.Scratch, "latency")
	each := strconv.FormatFloat(float64(p.rate)/float64(p.connections), 'f', 3, 64)
	if _, err := p.load(ctx, p.requests, "--rps", each, "--log-file", log); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(log)
	if err != nil {
		return nil, err
	}
	took, err := parseLog(string(text))
	if err == nil && len(took) != p.requests {
		err = fmt.Errorf("h2load: want %d lines in its log, got %d", p.requests, len(took))
	}
	return took, errors.Join(err, os.Remove(log))
}

// parseLog parses the log of h2load. A line has, between tabs, a request's start, its status, and how long it took, in µs.
func parseLog(text string) (took []float64, err error) {
	for line := range strings.Lines(text) {
		var start, status, micros float64
		if _, err := fmt.Sscan(line, &start, &status, &micros); err != nil {
			return nil, fmt.Errorf("h2load: want three columns in its log, got %.100q: %w", line, err)
		}
		took = append(took, micros)
	}
	slices.Sort(took)
	return took, nil
}
