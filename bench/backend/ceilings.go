package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ceiling is a simple operation that a store's own benchmark does with the same server.
type ceiling struct {
	name string
	// of is the workload with this ceiling; empty for all workloads.
	of string
	// ops is how many operations a round has. run does at least a number of rounds, and returns the
	// operations per second.
	ops int
	run func(ctx context.Context, rounds int) (perSecond float64, err error)
	operations
	pace float64 // operations per second, at last
}

// find returns the path of a program. If it is not installed, the error has the hint.
func find(name, where, hint string) (string, error) {
	packaged, err := filepath.Glob(filepath.Join(where, name))
	if err == nil && len(packaged) > 0 {
		return packaged[len(packaged)-1], nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w; install it: %s", err, hint)
	}
	return path, nil
}

func output(ctx context.Context, program string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(program), err, exit.Stderr)
	}
	return string(out), err
}

// pipelined is how many commands redis-benchmark sends at a time.
const pipelined = 64

// master is a Redis server, and the prefix of keys that belong to it.
type master struct{ addr, prefix string }

// redisBenchmark returns a function that lets redis-benchmark send a command to all masters, with
// random keys in place of KEY.
func redisBenchmark(program string, masters []master, senders, keys int, command ...string) func(context.Context, int) (float64, error) {
	return func(ctx context.Context, rounds int) (perSecond float64, err error) {
		found, errs := make([]float64, len(masters)), make([]error, len(masters))
		var group sync.WaitGroup
		for i, m := range masters {
			group.Go(func() {
				found[i], errs[i] = m.benchmark(ctx, program, max(1, senders/len(masters)), max(1, rounds/len(masters)), keys, command)
			})
		}
		group.Wait()
		for _, n := range found {
			perSecond += n
		}
		return perSecond, errors.Join(errs...)
	}
}

// benchmark runs redis-benchmark on a server. redis-benchmark --cluster can't be used: it checks
// only four times a second whether it is done.
func (m *master) benchmark(ctx context.Context, program string, clients, rounds, keys int, command []string) (perSecond float64, err error) {
	host, port, err := net.SplitHostPort(m.addr)
	if err != nil {
		return 0, err
	}
	args := []string{
		"-h", host, "-p", port, "-c", strconv.Itoa(clients), "-P", strconv.Itoa(min(pipelined, max(1, rounds/clients))),
		"-n", strconv.Itoa(rounds), "-r", strconv.Itoa(keys), "--csv",
	}
	for _, word := range command {
		args = append(args, strings.ReplaceAll(word, "KEY", m.prefix+"key:__rand_int__"))
	}
	out, err := output(ctx, program, args...)
	if err != nil {
		return 0, err
	}
	return parseRedisBenchmark(out)
}

// parseRedisBenchmark returns the operations per second from the output of redis-benchmark --csv.
func parseRedisBenchmark(out string) (perSecond float64, err error) {
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(rows) != 2 || rows[0][1] != "rps" {
		return 0, fmt.Errorf("redis-benchmark: want a line of figures, got %.300q", out)
	}
	return strconv.ParseFloat(rows[1][1], 64)
}

// pgbench returns a function that runs pgbench with a script.
func pgbench(program, url, dir, script string, senders int) func(context.Context, int) (float64, error) {
	return func(ctx context.Context, rounds int) (float64, error) {
		file := filepath.Join(dir, "script.sql")
		if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
			return 0, err
		}
		out, err := output(ctx, program, "-n", "-M", "prepared", "-c", strconv.Itoa(senders), "-j", strconv.Itoa(min(senders, runtime.NumCPU())),
			"-t", strconv.Itoa(max(1, rounds/senders)), "-f", file, url)
		if err != nil {
			return 0, err
		}
		return parsePgbench(out)
	}
}

var tps = regexp.MustCompile(`(?m)^tps = ([0-9.]+) \(without initial connection time\)$`)

// parsePgbench returns the transactions per second from the output of pgbench.
func parsePgbench(out string) (perSecond float64, err error) {
	found := tps.FindStringSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("pgbench: want a line of transactions per second, got %.1000q", out)
	}
	return strconv.ParseFloat(found[1], 64)
}

// timed runs the ceiling for about a given time, if it is as fast as the last time.
func (c *ceiling) timed(ctx context.Context, long time.Duration) (err error) {
	c.pace, err = c.run(ctx, max(1, int(c.pace*long.Seconds()/float64(c.ops))))
	if c.pace *= float64(c.ops); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}

// warm runs the ceiling ever longer until it gets no faster, as a slow beginning must not be measured. A ceiling that does
// many operations at once is probably fast.
func (c *ceiling) warm(ctx context.Context, long time.Duration) error {
	c.pace = 1e4 * float64(max(1, c.ops/10))
	for {
		last := c.pace
		if err := c.timed(ctx, long); err != nil || c.pace < 1.5*last {
			return err
		}
	}
}
