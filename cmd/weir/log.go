package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
)

// logFlags configure the log of weir serve and weir run.
type logFlags struct {
	format string
	level  slog.Level
}

func (f *logFlags) define(flags *flag.FlagSet, from slog.Level) {
	flags.StringVar(&f.format, "log-format", "text", "`format` of log lines: text or json")
	flags.TextVar(&f.level, "log-level", from, "log from this `level` on: debug, info, warn or error")
}

// logger returns a logger as the flags say. Its error wraps [errUsage].
func (f *logFlags) logger(w io.Writer) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: f.level}
	switch f.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("%w: --log-format: want text or json, got %.80q", errUsage, f.format)
}
