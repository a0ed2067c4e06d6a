package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"weir/config"
	"weir/internal/panics"
	"weir/internal/store/open"
	"weir/internal/wire"
	"weir/sharedata"
)

// release and commit are set by the linker: both in a release, and commit by make build, because Go
// does not find it with -buildvcs=false in GOFLAGS.
var release, commit string

func printVersion(_ context.Context, args []string, env environment) error {
	if err := parseFlags(flag.NewFlagSet("version", flag.ContinueOnError), args, env); err != nil {
		return err
	}
	_, err := fmt.Fprintf(env.stdout, "weir %s, %s, %s/%s\nformats: configuration %d; %s; tables of a proxy's workers %d; stores: %s\n",
		version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, config.Format, wire.Formats(), sharedata.Format, open.Formats())
	return err
}

// version returns a release and its commit, the module's version, or the revision of a checkout and
// its time.
func version() string {
	if release != "" {
		return release + ", commit " + commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of an unknown version"
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	if revision == "" && commit != "" {
		return info.Main.Version + ", commit " + commit
	}
	if revision == "" || info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	text := fmt.Sprintf("%.12s of %s", revision, settings["vcs.time"])
	if settings["vcs.modified"] == "true" {
		text += ", changed"
	}
	return text
}

// caughtPanics returns a metric of the panics that the process has survived.
func caughtPanics() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "weir_panics_total", Help: "Panics that were caught and logged; each is a fault of weir.",
	}, func() float64 { return float64(panics.Caught()) })
}

// buildInfo returns a metric that is always 1, with labels that describe the build.
func buildInfo() prometheus.Collector {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_build_info", Help: "Always 1; its labels say which build of weir serve runs.",
		ConstLabels: prometheus.Labels{"version": version(), "go_version": runtime.Version()},
	})
	gauge.Set(1)
	return gauge
}
