package envoytest

import (
	"errors"
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
)

// Binary is the program of an Envoy.
type Binary struct {
	Version string // such as 1.40.0
	Path    string
}

// errNone tells how to get an Envoy.
var errNone = errors.New("no Envoy to run: scripts/test-dependencies installs what the tests need; " +
	"or name a binary that has V8: WEIR_ENVOY=/path/to/envoy")

// Binaries returns the Envoys for tests, the newest first. WEIR_ENVOY names their files, separated
// as in PATH. Without it, they are the Envoys that scripts/test-dependencies has installed in
// dist/envoy.
func Binaries() ([]Binary, error) {
	files := filepath.SplitList(os.Getenv("WEIR_ENVOY"))
	if len(files) == 0 {
		root, err := repositoryRoot()
		if err != nil {
			return nil, err
		}
		if files, err = filepath.Glob(filepath.Join(root, "dist", "envoy", "*", "envoy")); err != nil {
			return nil, err
		}
	}
	if len(files) == 0 {
		return nil, errNone
	}
	binaries := make([]Binary, 0, len(files))
	for _, file := range files {
		number, err := versionOf(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		binaries = append(binaries, Binary{Version: number, Path: file})
	}
	// Envoy numbers its versions as Go does.
	slices.SortFunc(binaries, func(a, b Binary) int { return version.Compare("go"+b.Version, "go"+a.Version) })
	return binaries, nil
}

// Newest returns the first of [Binaries].
func Newest() (Binary, error) {
	all, err := Binaries()
	if err != nil {
		return Binary{}, err
	}
	return all[0], nil
}

var versionPattern = regexp.MustCompile(`version: [0-9a-f]+/([0-9]+\.[0-9]+\.[0-9]+)`)

func versionOf(file string) (string, error) {
	output, err := exec.Command(file, "--version").Output()
	if err != nil {
		return "", err
	}
	match := versionPattern.FindSubmatch(output)
	if match == nil {
		return "", fmt.Errorf("want the version of an Envoy, got %q", output)
	}
	return string(match[1]), nil
}

// repositoryRoot returns the folder of go.work at or above the working directory. It can't look for
// go.mod, because bench/ has its own.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.work above the working directory")
		}
		dir = parent
	}
}
