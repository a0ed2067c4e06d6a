// Package page is what the programs in bench share: how they start and end, and how their tables get into a README.md.
package page

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"weir/internal/must"
)

// Main runs a program until it ends or is interrupted. Its flags must be defined before.
func Main(name string, run func(ctx context.Context) error) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Keep writes tables into a page, each into the block of its name, and leaves its other blocks.
func Keep(file string, tables map[string]string) error {
	readme, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	written := string(readme)
	for name, table := range tables {
		head, end := "\n<!-- figures of "+name+" -->\n", "<!-- end of figures -->\n"
		before, rest, begins := strings.Cut(written, head)
		_, after, ends := strings.Cut(rest, end)
		if !begins || !ends {
			return fmt.Errorf("%s has no block of figures of %s", file, name)
		}
		written = before + head + table + "\n" + end + after
	}
	return os.WriteFile(file, []byte(written), 0o644)
}

// quick is the file with the tables that a study's test makes anew.
const quick = "testdata/quick.txt"

// KeepStudy is [Keep] of the README.md in a study's folder, and keeps the tables of its test.
func KeepStudy(study, fast string, tables map[string]string) error {
	dir := filepath.Join("bench", study)
	return errors.Join(Keep(filepath.Join(dir, "README.md"), tables), os.WriteFile(filepath.Join(dir, quick), []byte(fast), 0o644))
}

// Kept fails a test unless it has the tables that the study has kept, so that a change comes with new figures.
func Kept(t testing.TB, study, tables string) {
	t.Helper()
	must.Equal(t, tables, string(must.Get(os.ReadFile(quick))(t)), "figures have changed: run go run ./bench/%s", study)
}

// Table returns a table in Markdown. Its rows have tabs between their cells; the first is its heading.
func Table(rows ...string) string {
	table := Head(strings.Split(rows[0], "\t")...)
	for _, row := range rows[1:] {
		table += Row(strings.Split(row, "\t")...)
	}
	return table
}

// Head returns the first rows of a table in Markdown: its heading, and the alignment of its columns.
func Head(cells ...string) string {
	return "\n" + Row(cells...) + "| ---" + strings.Repeat(" | --:", len(cells)-1) + " |\n"
}

// Row returns a row of a table in Markdown.
func Row(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }

// Spread describes values by their median, and their 10 % and 90 % quantiles.
type Spread struct{ Median, Low, High float64 }

// SpreadOf returns the spread of values. There must be at least one.
func SpreadOf(values []float64) Spread {
	return Spread{Median: Quantile(values, 0.5), Low: Quantile(values, 0.1), High: Quantile(values, 0.9)}
}

// Quantile returns the value below which a share of values is. There must be at least one.
func Quantile(values []float64, share float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

// Thousands formats a whole number with commas.
func Thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Processes returns the processes of this machine by their numbers; none without a /proc.
func Processes() map[int]procfs.ProcStat {
	all := map[int]procfs.ProcStat{}
	found, err := procfs.AllProcs()
	if err != nil {
		return nil
	}
	for _, p := range found {
		if s, err := p.Stat(); err == nil { // else it has ended
			all[p.PID] = s
		}
	}
	return all
}

// Used returns the processor time of processes and their descendants, also of those that have ended.
func Used(pids ...int) (used time.Duration) {
	const tick = 10 * time.Millisecond // USER_HZ
	all := Processes()
	for pid, p := range all {
		for of := pid; of != 0; of = all[of].PPID {
			if slices.Contains(pids, of) {
				used += tick * time.Duration(int(p.UTime+p.STime)+p.CUTime+p.CSTime)
				break
			}
		}
	}
	return used
}

// host replaces the test that packages with servers require. It lacks methods that they don't use.
type host struct {
	testing.TB
	ends []func()
	err  error
}

// Hosted calls run, and then ends the servers that it has started.
func Hosted(run func(t testing.TB) error) error {
	h := &host{}
	done := make(chan struct{})
	// As in package testing, a fatal error ends the goroutine.
	go func() {
		defer close(done)
		defer func() {
			for _, end := range slices.Backward(h.ends) {
				end()
			}
		}()
		h.fail(run(h))
	}()
	<-done
	return h.err
}

func (h *host) fail(err error) { h.err = errors.Join(h.err, err) }

// Helper implements [testing.TB].
func (*host) Helper() {}

// Cleanup implements [testing.TB].
func (h *host) Cleanup(end func()) { h.ends = append(h.ends, end) }

// Error implements [testing.TB].
func (h *host) Error(args ...any) { h.fail(errors.New(fmt.Sprint(args...))) }

// Errorf implements [testing.TB].
func (h *host) Errorf(format string, args ...any) { h.fail(fmt.Errorf(format, args...)) }

// Fatal implements [testing.TB].
func (h *host) Fatal(args ...any) {
	h.Error(args...)
	runtime.Goexit()
}

// Fatalf implements [testing.TB].
func (h *host) Fatalf(format string, args ...any) {
	h.Errorf(format, args...)
	runtime.Goexit()
}

// TempDir implements [testing.TB].
func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { h.fail(os.RemoveAll(dir)) })
	return dir
}

// startTimeout is longer than a server takes to be ready.
const startTimeout = 30 * time.Second

// Start starts a server, which ends with t. It returns the number of its process when a URL
// answers.
func Start(t testing.TB, ready string, environment []string, command ...string) (pid int) {
	t.Helper()
	cmd, log, exited := exec.Command(command[0], command[1:]...), &bytes.Buffer{}, make(chan struct{})
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, append(os.Environ(), environment...)
	must.OKf(t, cmd.Start(), "%s", command[0])
	go func() {
		_ = cmd.Wait() // the process was killed
		close(exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // unless it has ended
		<-exited
	})
	client := &http.Client{Timeout: time.Second}
	for until := time.After(startTimeout); ; {
		if answer, err := client.Get(ready); err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusOK {
			return cmd.Process.Pid
		}
		select {
		case <-exited:
			t.Fatalf("%s does not start: %s\n%s", command[0], cmd.ProcessState, log)
		case <-until:
			t.Fatalf("%s does not start", command[0])
		case <-time.After(10 * time.Millisecond):
		}
	}
}
