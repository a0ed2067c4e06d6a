package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"weir/internal/envoytest"
)

var number = regexp.MustCompile(`\d+\.\d+\.\d+`)

// versionOf returns the version that a program tells.
func versionOf(program, flag string) string {
	path, err := lookPath(program)
	if err != nil {
		return program + " unknown"
	}
	said, _ := exec.Command(path, flag).CombinedOutput() // without a version it is unknown, too
	return program + " " + number.FindString(string(said))
}

func envoyVersion() string {
	newest, _ := envoytest.Newest() // it has run
	return "Envoy " + newest.Version
}

// digest names a build of Weir's.
func digest(file string) string {
	content, _ := os.ReadFile(file) // it has run
	return fmt.Sprintf("%s of SHA-256 %.6x…", filepath.Base(file), sha256.Sum256(content))
}

// built returns the version of a program in Go.
func built(name, file string) string {
	if info, err := buildinfo.ReadFile(file); err == nil {
		return name + " " + info.Main.Version
	}
	return name + " unknown"
}

// linked returns the versions of this program's modules whose names end so.
func linked(names ...string) (versions []string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, module := range info.Deps {
		if slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(module.Path, name) }) {
			versions = append(versions, strings.TrimPrefix(module.Path, "github.com/")+" "+module.Version)
		}
	}
	return versions
}
