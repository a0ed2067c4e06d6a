package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"weir/internal/host"
	"weir/internal/nightly"
)

// lastVersion is the commit of the last release. Until there is one, it is an earlier commit.
const lastVersion = "4d4bc2f"

// TestLastVersion upgrades a backend and goes back, on one file, with a node of either version before it. All of them keep one
// limit, and what either backend has kept the other reads.
func TestLastVersion(t *testing.T) {
	if !nightly.On() {
		return // it builds the last version
	}
	onWazeroAlone(t, func(t *testing.T) {
		last := buildVersion(t, lastVersion)
		wasm, err := os.ReadFile(filepath.Join(last, "dist/weir.wasm"))
		if err != nil {
			t.Fatal(err)
		}
		lastPlugin, err := host.Compile(t.Context(), wasm, host.Options{CacheDir: cacheDir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := lastPlugin.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		const limit, each = 100, 20
		store, left := "file:"+filepath.Join(t.TempDir(), "weir.db"), limit
		for _, command := range []string{filepath.Join(last, "dist/weir"), commandFile, filepath.Join(last, "dist/weir")} {
			t.Run("", func(t *testing.T) {
				p := startFile(t, command, "serve", "--listen", "127.0.0.1:0", "--store", store)
				config := nodeConfig{backend: p.wait(t, `address=(\S+)`), configuration: `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 0, ` +
					perUser(`{"limit": 100, "window": "366d", "algorithm": "fixed_window"}`)[1:]}
				for _, plugin := range []*host.Module{lastPlugin, module} {
					n := startProxy(t, config, host.ProxyConfig{Module: plugin})
					want := min(each, left)
					if got := admittedOf(t, n.url(), each); got != want {
						t.Errorf("%d of %d requests are admitted, want %d", got, each, want)
					}
					left -= want
				}
				settle(t, config.backend, "default", int64(limit-left))
			})
		}
	})
}

// buildVersion builds a commit in a folder of its own.
func buildVersion(t *testing.T, commit string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	build := exec.CommandContext(t.Context(), "bash", "-eo", "pipefail", "-c",
		`git -C .. archive "$0" | tar -x -C "$1" && make -s -C "$1" dist/weir.wasm dist/weir`, commit, dir)
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", commit, err, said)
	}
	return dir
}

// admittedOf is how many requests of a user pass.
func admittedOf(t *testing.T, url string, requests int) (admitted int) {
	t.Helper()
	for range requests {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("x-user", "ann")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Error(err)
		}
		if response.StatusCode == http.StatusOK {
			admitted++
		}
	}
	return admitted
}
