package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"weir/internal/simulate"
	"weir/internal/simulate/accesslog"
)

type simulateFlags struct {
	config, html string
	descriptors  []string
	json         bool
	worst        int
	read         accesslog.Options
}

// runSimulation runs weir simulate: it replays access logs through a configuration's rules.
func runSimulation(ctx context.Context, args []string, env environment) (err error) {
	var f simulateFlags
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	flags.StringVar(&f.config, "config", "", configUsage+"; required without --descriptors")
	flags.Func("descriptors", "`FILE` of envoyproxy/ratelimit's, or of Envoy with the routes whose rate_limits make its descriptors; may be repeated, and takes the place of --config",
		func(name string) error { f.descriptors = append(f.descriptors, name); return nil })
	flags.BoolVar(&f.json, "json", false, "print JSON")
	flags.StringVar(&f.html, "html", "", "write a page with plots to this `file`, and print nothing")
	flags.IntVar(&f.worst, "keys", 10, "`number` of keys to report for each rule")
	flags.StringVar(&f.read.Format, "format", "", "`format` of all logs: "+strings.Join(accesslog.Formats, ", ")+"; found out from the logs if empty")
	flags.Func("field", "`NAME=PART`: the log's field of this name, or number, is time, method, path, host, client_ip, "+
		"duration, request_time, header:NAME, response_header:NAME or property:PATH; may be repeated", f.read.Map)
	flags.IntVar(&f.read.TrustedHops, "trusted-hops", 0, "`number` of trusted proxies in front of the proxy that wrote the logs")
	if err := parseFlags(flags, args, env, "--config FILE", "LOG…"); err != nil {
		return err
	}
	switch {
	case (f.config == "") == (len(f.descriptors) == 0):
		return fmt.Errorf("%w: want --config or --descriptors", errUsage)
	case flags.NArg() == 0:
		return fmt.Errorf("%w: want the names of access logs, or - for standard input", errUsage)
	case f.read.Format != "" && !slices.Contains(accesslog.Formats, f.read.Format):
		return fmt.Errorf("%w: --format: want one of %s, got %.40q", errUsage, strings.Join(accesslog.Formats, ", "), f.read.Format)
	case (f.config == "-" || strings.HasPrefix(f.config, "-:") || slices.Contains(f.descriptors, "-")) && slices.Contains(flags.Args(), "-"):
		return fmt.Errorf("%w: want standard input for the configuration or for a log, not for both", errUsage)
	case f.json && f.html != "":
		return fmt.Errorf("%w: want --json or --html, not both", errUsage)
	case f.worst < 0 || f.read.TrustedHops < 0:
		return fmt.Errorf("%w: want numbers of 0 or more", errUsage)
	}
	document, err := f.document(env)
	if err != nil {
		return err
	}
	o := simulate.Options{Configuration: document, Read: f.read, Worst: f.worst}
	logs, size, err := openLogs(flags.Args(), env)
	defer func() {
		for _, log := range logs {
			if file, ok := log.In.(io.Closer); ok {
				err = errors.Join(err, file.Close())
			}
		}
	}()
	if err != nil {
		return err
	}
	o.Logs = logs
	bar := newProgress(env.stderr, size)
	o.Progress = bar.show
	report, err := simulate.Run(ctx, &o)
	bar.end()
	if err != nil {
		return err
	}
	return f.write(report, env)
}

// document returns the configuration: Weir's own, or one converted from descriptors. It prints
// parts of those that a configuration can't express, and does not simulate them.
func (f *simulateFlags) document(env environment) ([]byte, error) {
	if f.config != "" {
		read, err := readConfiguration(f.config, env)
		if err != nil {
			return nil, err
		}
		return read.Document, nil
	}
	result, err := convertFrom("ratelimit", f.descriptors, env)
	if err != nil {
		return nil, err
	}
	return result.Document, nil
}

// write writes the report in the chosen form.
func (f *simulateFlags) write(report *simulate.Report, env environment) (err error) {
	switch {
	case f.json:
		encoder := json.NewEncoder(env.stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	case f.html == "":
		return report.Text(env.stdout)
	}
	file, err := os.Create(f.html)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return report.HTML(file)
}

// openLogs opens logs, and returns their total size as far as known.
func openLogs(names []string, env environment) (logs []simulate.Log, size int64, err error) {
	for _, name := range names {
		if name == "-" {
			logs = append(logs, simulate.Log{Name: "standard input", In: io.NopCloser(env.stdin)})
			continue
		}
		file, err := os.Open(name)
		if err != nil {
			return logs, 0, err
		}
		logs = append(logs, simulate.Log{Name: name, In: file})
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
	}
	return logs, size, nil
}

// progress is a progress bar on a terminal, shown once a command has taken a while.
type progress struct {
	out   io.Writer // nil if it is not a terminal
	size  int64     // 0 if unknown
	next  time.Time
	shown bool
}

const (
	progressAfter = time.Second
	progressEvery = 200 * time.Millisecond
	progressWidth = 40
)

func newProgress(out io.Writer, size int64) *progress {
	p := &progress{size: size, next: time.Now().Add(progressAfter)}
	if terminalOf(out) != nil {
		p.out = out
	}
	return p
}

// show updates the bar to a number of bytes.
func (p *progress) show(bytes int64) {
	now := time.Now()
	if p.out == nil || now.Before(p.next) {
		return
	}
	p.next, p.shown = now.Add(progressEvery), true
	if p.size == 0 {
		fmt.Fprintf(p.out, "\r%d MB read", bytes>>20)
		return
	}
	done := min(int(bytes*progressWidth/p.size), progressWidth)
	fmt.Fprintf(p.out, "\r[%s%s] %d of %d MB", strings.Repeat("=", done), strings.Repeat(" ", progressWidth-done), bytes>>20, p.size>>20)
}

// end removes the bar.
func (p *progress) end() {
	if p.shown {
		fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", 2*progressWidth))
	}
}
