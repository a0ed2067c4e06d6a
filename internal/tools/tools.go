// Package tools builds commands of other modules, which long tests alone run.
package tools

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Versions of what the tests run.
const (
	Helm         = "helm.sh/helm/v3/cmd/helm@v3.19.5"
	Kubeconform  = "github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0"
	EnvoyGateway = "github.com/envoyproxy/gateway/cmd/envoy-gateway@v1.9.1"
)

// Install is the file of a command, which is given as go install has it. It is built unless dist/tools of the
// repository at root has it already: Envoy Gateway takes minutes.
func Install(root, command string) (file string, err error) {
	module, version, _ := strings.Cut(command, "@")
	dir, err := filepath.Abs(filepath.Join(root, "dist", "tools", version))
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, filepath.Base(module))
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	// Outside of the repository, whose workspace would choose the versions.
	return file, install(os.TempDir(), dir, "-s -w", command, "GOFLAGS=-mod=mod")
}

// Programs is the folder of the commands that the tool directives of a folder's go.mod name. They are built
// unless dist/tools of the repository at root has them already.
func Programs(root, folder, ldflags string) (dir string, err error) {
	pinned, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(pinned, ldflags...))
	dir, err = filepath.Abs(filepath.Join(root, "dist", "tools", hex.EncodeToString(sum[:6])))
	if err != nil {
		return "", err
	}
	built := filepath.Join(dir, "built")
	if _, err := os.Stat(built); err == nil {
		return dir, nil
	}
	if err := install(folder, dir, ldflags, "tool"); err != nil {
		return "", err
	}
	return dir, os.WriteFile(built, nil, 0o600)
}

// install builds commands into a folder, as go install does in another.
func install(in, into, ldflags, what string, environ ...string) error {
	if err := os.MkdirAll(into, 0o750); err != nil {
		return err
	}
	build := exec.Command("go", "install", "-ldflags="+ldflags, what)
	build.Dir, build.Env = in, append(append(os.Environ(), "GOBIN="+into, "GOWORK=off"), environ...)
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go install %s in %s: %w\n%s", what, in, err, said)
	}
	return nil
}
