package docs

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// release serves files as a release has them, which are made of what make build has left. A file's text may be changed.
func release(t *testing.T, changed func(string) string) (url string) {
	t.Helper()
	dir := t.TempDir()
	archive := filepath.Join(dir, "weir_linux_amd64.tar.gz")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	zipped, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(zipped)
	quickstart := changed(strings.ReplaceAll(read(t, "../envoy/quickstart.yaml"), "dist/weir.wasm", "weir.wasm"))
	for name, content := range map[string]string{
		"weir": read(t, "../dist/weir"), "weir.wasm": read(t, "../dist/weir.wasm"), "quickstart.yaml": quickstart, "weir.service": read(t, "../deploy/weir.service"),
	} {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	for _, close := range []func() error{w.Close, zipped.Close, f.Close} {
		if err := close(); err != nil {
			t.Fatal(err)
		}
	}
	sums := fmt.Sprintf("%x  weir_linux_amd64.tar.gz\n", sha256.Sum256([]byte(read(t, archive))))
	if err := os.WriteFile(filepath.Join(dir, "checksums.txt"), []byte(sums), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	return server.URL
}

// TestInstall types in an empty folder what install.md has somebody type there: five commands until servers run, and the first
// 429. Then the backend is replaced, and replaced back, while requests come.
func TestInstall(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		return // make test-fast
	}
	s := newShell(t)
	url := release(t, s.replace.Replace)
	s.dir = t.TempDir()
	var samples []string
	for _, sample := range shellSamples(read(t, "install.md")) {
		if strings.HasPrefix(sample, "$ ") {
			samples = append(samples, strings.ReplaceAll(sample, "https://files.example/weir/v0.1.0", url))
		}
	}
	if len(samples) != 2 || strings.Count(samples[0], "$ ") > 5+1 { // the last one opens the sample of the limit
		t.Fatalf("%d samples: %q", len(samples), samples)
	}
	// The page's own backend would end with the test, so another replaces it.
	before, serving, _ := strings.Cut(samples[0], "$ ./weir serve")
	s.sample(t, before)
	backend := s.backend(t)
	_, envoy, _ := strings.Cut(serving, "\n")
	s.sample(t, envoy)
	s.sample(t, samples[1])

	done, asked := make(chan struct{}), make(chan map[int]int)
	go func() {
		statuses := map[int]int{}
		for {
			select {
			case <-done:
				asked <- statuses
				return
			default:
			}
			response, err := http.Get("http://" + s.ready["quickstart.yaml"] + "/")
			if err != nil {
				statuses[0]++
				continue
			}
			statuses[response.StatusCode]++
			_ = response.Body.Close()
		}
	}()
	for _, step := range []string{"replaced", "replaced back"} {
		_ = backend.Process.Signal(syscall.SIGTERM)
		if err := backend.Wait(); err != nil {
			t.Errorf("%s: %v", step, err)
		}
		backend = s.backend(t)
	}
	close(done)
	statuses := <-asked
	t.Logf("answers while the backend was replaced and replaced back: %v", statuses)
	if statuses[0] > 0 || statuses[429] == 0 || len(statuses) > 2 || statuses[503] > 10 {
		t.Errorf("%v: some requests had no answer, or passed a limit that was used up", statuses)
	}
	_ = backend.Process.Signal(syscall.SIGTERM)
	if err := backend.Wait(); err != nil {
		t.Error(err)
	}
}

// backend starts ./weir serve on its file, and waits until it listens.
func (s *shell) backend(t *testing.T) *exec.Cmd {
	t.Helper()
	address := s.ready["weir serve"]
	cmd := s.typed(t.Context(), "exec ./weir serve --store file:weir.db --listen "+address)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if response, err := http.Get("http://" + address + "/readyz"); err == nil {
			_ = response.Body.Close()
			return cmd
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestUnit has systemd check the unit, and runs its command with its environment.
func TestUnit(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	command, err := filepath.Abs("../dist/weir")
	if err != nil {
		t.Fatal(err)
	}
	unit := strings.ReplaceAll(read(t, "../deploy/weir.service"), "/usr/local/bin/weir", command)
	file := filepath.Join(s.dir, "weir.service")
	if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	if verify, err := exec.LookPath("systemd-analyze"); err == nil {
		if said, err := exec.CommandContext(t.Context(), verify, "verify", file).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, said)
		}
	}
	start := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(unit)
	environment := regexp.MustCompile(`(?m)^Environment=(.*)$`).FindStringSubmatch(unit)
	if start == nil || environment == nil {
		t.Fatal("no command")
	}
	settings := strings.NewReplacer("/var/lib/weir", s.dir, "127.0.0.1:9180", s.ready["weir serve"]).Replace(environment[1])
	s.env = append(s.env, strings.Fields(settings)...)
	said := s.serve(t, start[1], s.ready["weir serve"])
	// It listens before it opens its store.
	response, err := http.Get("http://" + s.ready["weir serve"] + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("ready: got %s, %v", response.Status, err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "weir.db")); err != nil {
		t.Errorf("%v\n%s", err, said())
	}
}

// TestCompose runs the backend of the Compose file, with its arguments and its environment.
func TestCompose(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	var file struct {
		Services map[string]struct {
			Image       string
			Command     []string
			Environment map[string]string
			DependsOn   []string `yaml:"depends_on"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "../deploy/compose.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for name, service := range file.Services {
		for _, needed := range service.DependsOn {
			if file.Services[needed].Image == "" {
				t.Errorf("%s needs %s, which the file has not", name, needed)
			}
		}
	}
	weir := file.Services["weir"]
	s.env = append(s.env, "WEIR_TOKEN=0123456789abcdef", "WEIR_STORE="+s.replace.Replace(weir.Environment["WEIR_STORE"]))
	said := s.serve(t, s.replace.Replace("weir "+strings.Join(weir.Command, " ")), s.ready["weir serve"])
	response, err := http.Get("http://" + s.ready["weir serve"] + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	if _ = response.Body.Close(); response.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", response.Status, said())
	}
}
