package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"

	"weir/internal/wire"
	"weir/sharedata"
)

// printVersion is weir version.
func printVersion(_ context.Context, args []string, env environment) error {
	if err := parseFlags(flag.NewFlagSet("version", flag.ContinueOnError), args, env); err != nil {
		return err
	}
	_, err := fmt.Fprintf(env.stdout, "weir %s, %s, %s/%s\nformats: %s; tables of a proxy's workers %d\n",
		version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, wire.Formats(), sharedata.Format)
	return err
}

// version is the module's, or of a build from a checkout the revision and its time.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of an unknown version"
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	if revision == "" || info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	text := fmt.Sprintf("%.12s of %s", revision, settings["vcs.time"])
	if settings["vcs.modified"] == "true" {
		text += ", changed"
	}
	return text
}
