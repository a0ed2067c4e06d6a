package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/host"
	"weir/internal/must"
	"weir/internal/nightly"
)

// lastVersion returns the tag of the last release before this commit. Before the first release it
// is an earlier commit.
func lastVersion(t *testing.T) string {
	t.Helper()
	tag, err := exec.CommandContext(t.Context(), "git", "-C", "..", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^").Output()
	if err != nil {
		return "4d4bc2f"
	}
	return strings.TrimSpace(string(tag))
}

// TestLastVersion upgrades a backend and goes back, with the same file, and with a node of either
// version. All share a limit, and each backend reads the file of the other.
func TestLastVersion(t *testing.T) {
	if !nightly.On() {
		return // this test builds the last version
	}
	onWazeroAlone(t, func(t *testing.T) {
		release := buildVersion(t, lastVersion(t))
		wasm := must.Get(os.ReadFile(filepath.Join(release, "dist/weir.wasm")))(t)
		lastPlugin := must.Get(host.Compile(t.Context(), wasm, host.Options{CacheDir: cacheDir}))(t)
		t.Cleanup(func() { must.Report(t, lastPlugin.Close(context.Background())) })
		const limit, each = 100, 20
		store, left := "file:"+filepath.Join(t.TempDir(), "weir.db"), limit
		for _, command := range []string{filepath.Join(release, "dist/weir"), commandFile, filepath.Join(release, "dist/weir")} {
			t.Run("", func(t *testing.T) {
				p := startCommand(t, exec.Command(command, "serve", "--listen", "127.0.0.1:0", "--store", store))
				config := nodeConfig{backend: p.Wait(t, `address=(\S+)`), configuration: `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 0, ` +
					perUser(`{"limit": 100, "window": "366d", "algorithm": "fixed_window"}`)[1:]}
				var last, next *proxyNode
				for _, plugin := range []*host.Module{lastPlugin, module} {
					n := startProxy(t, config, host.ProxyConfig{Module: plugin})
					last, next = next, n
					want, got := min(each, left), 0
					for range each {
						if ask(t, envoytest.Client, n.url(), "x-user", "ann").status == http.StatusOK {
							got++
						}
					}
					must.Equal(t, got, want, "of %d requests are admitted", each)
					left -= want
				}
				if command == commandFile {
					// A rule that is moved, by what only the newer node reads. The backend knows.
					out := weir(t, config.backend, "rule", "set", "default", "per-user", "--limit", "0/366d", "--force", "--wait", "60s")
					must.Contains(t, out, "known to 2 of 2 nodes; 1 of them can't apply all overrides", "weir rule set")
					left--
					for _, of := range []struct {
						*proxyNode
						want int
					}{{last, http.StatusOK}, {next, http.StatusTooManyRequests}} {
						must.Equal(t, ask(t, envoytest.Client, of.url(), "x-user", "ann").status, of.want, "status by a rule that is moved to 0")
					}
					weir(t, config.backend, "rule", "reset", "default", "per-user", "--wait", "60s")
				}
				settle(t, config.backend, "default", int64(limit-left))
			})
		}
	})
}

// buildVersion builds a commit in a new folder.
func buildVersion(t *testing.T, commit string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	build := exec.CommandContext(t.Context(), "bash", "-eo", "pipefail", "-c",
		`git -C .. archive "$0" | tar -x -C "$1" && make -s -C "$1" dist/weir.wasm dist/weir`, commit, dir)
	commandtest.Run(t, build)
	return dir
}
