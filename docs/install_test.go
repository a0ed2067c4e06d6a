package docs

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
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

	"weir/internal/commandtest"
	"weir/internal/must"
)

// releases is a folder with a folder of files for v0.1.0 and for v0.2.0, which make release has made.
var releases = flag.String("releases", "", "`folder` of releases that TestInstall installs; it makes some of what make build has left")

// archived are the files of a version's archive.
func archived(t *testing.T, version string) (files map[string]string) {
	t.Helper()
	if *releases == "" {
		// A custom section, so that versions have different plugins: its length, that of its name, and its name.
		plugin := must.Text(t, "../dist/weir.wasm") + string([]byte{0, byte(len(version) + 1), byte(len(version))}) + version
		return map[string]string{
			"weir": must.Text(t, "../dist/weir"), "weir.wasm": plugin, "weir.service": must.Text(t, "../deploy/weir.service"),
			"quickstart.yaml": strings.ReplaceAll(must.Text(t, "../envoy/quickstart.yaml"), "dist/weir.wasm", "weir.wasm"),
		}
	}
	archive := must.Get(os.Open(filepath.Join(*releases, version, "weir_linux_amd64.tar.gz")))(t)
	defer archive.Close()
	unzipped := must.Get(gzip.NewReader(archive))(t)
	files = map[string]string{}
	for r := tar.NewReader(unzipped); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		content := must.Get(io.ReadAll(r))(t)
		files[head.Name] = string(content)
	}
}

// released are the versions that a web server has, as releases have them. The checksum of the last is that
// of another file. The text of quickstart.yaml may be changed.
func released(t *testing.T, changed func(string) string) (url string) {
	t.Helper()
	dir := t.TempDir()
	var archive []byte
	for _, version := range []string{"v0.1.0", "v0.2.0", "v0.3.0"} {
		files := filepath.Join(dir, "weir", version)
		must.OK(t, os.MkdirAll(files, 0o700))
		if version != "v0.3.0" {
			contents := archived(t, version)
			contents["quickstart.yaml"] = changed(contents["quickstart.yaml"])
			archive = packed(t, contents)
		}
		sums := fmt.Sprintf("%x  weir_linux_amd64.tar.gz\n", sha256.Sum256(archive))
		if version == "v0.3.0" {
			archive = append(archive, 0)
		}
		for name, content := range map[string][]byte{"weir_linux_amd64.tar.gz": archive, "checksums.txt": []byte(sums)} {
			must.OK(t, os.WriteFile(filepath.Join(files, name), content, 0o600))
		}
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	return server.URL
}

// packed is an archive with some files.
func packed(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var archive bytes.Buffer
	zipped := must.Get(gzip.NewWriterLevel(&archive, gzip.NoCompression))(t)
	w := tar.NewWriter(zipped)
	for name, content := range files {
		must.OK(t, w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o755}))
		must.Get(w.Write([]byte(content)))(t)
	}
	must.OK(t, errors.Join(w.Close(), zipped.Close()))
	return archive.Bytes()
}

// TestInstall types in an empty folder what getting-started.md has somebody type who has a release: four commands until
// servers run, and a fifth that gets the first 429. Then, while requests come, it upgrades the backend and the plugin, and goes back.
func TestInstall(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		return // make test-fast
	}
	began := time.Now()
	s := newShell(t)
	files := released(t, s.replace.Replace)
	s.dir = t.TempDir()
	var samples []string
	_, section, _ := strings.Cut(must.Text(t, "getting-started.md"), "\n## From a release\n")
	for _, sample := range shellSamples(section) {
		if strings.HasPrefix(sample, "$ ") {
			samples = append(samples, strings.ReplaceAll(sample, "https://files.example", files))
		}
	}
	if len(samples) != 3 || commandsIn(samples[0])+commandsIn(samples[1]) > 5 || commandsIn(samples[2]) > 3 {
		t.Fatalf("%d samples: %q", len(samples), samples)
	}
	// The page's own servers would end with the test: others replace them.
	before, servers, _ := strings.Cut(samples[0], "$ ./weir serve")
	s.sample(t, before)
	backend := s.backend(t)
	_, first, _ := strings.Cut(servers, "\n")
	// Envoys of a base take each other's place, and leave those of others alone.
	base := " --base-id " + s.ready["-c quickstart.yaml"][len("127.0.0.1:"):]
	envoy := s.envoy(t, first+base)
	s.sample(t, samples[1])
	t.Logf("the first 429 after %d commands and %v", commandsIn(samples[0])+commandsIn(samples[1]), time.Since(began).Round(time.Second/10))

	// Clients that open a connection for each request, as these would be refused.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	done, asked := make(chan struct{}), make(chan map[int]int)
	began = time.Now()
	go func() {
		statuses := map[int]int{}
		next := time.NewTicker(5 * time.Millisecond)
		defer next.Stop()
		for {
			select {
			case <-done:
				asked <- statuses
				return
			case <-t.Context().Done(): // the test has failed
				return
			case <-next.C:
			}
			response, err := client.Get("http://" + s.ready["-c quickstart.yaml"] + "/")
			if err != nil {
				if statuses[0]++; statuses[0] < 5 {
					t.Error(err)
				}
				continue
			}
			statuses[response.StatusCode]++
			_ = response.Body.Close()
		}
	}()
	fetched, takesOver, _ := strings.Cut(samples[2], "$ envoy")
	for epoch, version := range []string{"v0.2.0", "v0.1.0"} {
		s.sample(t, strings.ReplaceAll(fetched, "v0.2.0", version))
		s.tells(t, version)
		anew := func() {
			_ = backend.Process.Signal(syscall.SIGTERM)
			must.Reportf(t, backend.Wait(), "%s", version)
			backend = s.backend(t)
		}
		if version == "v0.2.0" {
			anew()
		}
		next := s.envoy(t, "$ envoy"+strings.ReplaceAll(takesOver, "epoch 1", fmt.Sprint("epoch ", epoch+1))+base)
		select {
		case err := <-envoy.ended: // which the next Envoy has told to end
			must.Reportf(t, err, "%s", version)
		case err := <-next.ended:
			t.Fatalf("%s: %v\n%s", version, err, must.Text(t, next.log))
		}
		if envoy = next; version == "v0.1.0" { // on the way back the backend is last
			anew()
		}
	}
	close(done)
	statuses := <-asked
	minutes := int(time.Since(began).Minutes()) + 2
	t.Logf("answers while all was upgraded, and went back: %v in %v", statuses, time.Since(began).Round(time.Second/10))
	if statuses[0] > 0 || statuses[429] == 0 || len(statuses) > 2 || statuses[503] > 10*minutes {
		t.Errorf("%v: some requests had no answer, or passed a limit that was used up", statuses)
	}
	_ = envoy.Process.Signal(syscall.SIGTERM)
	_ = backend.Process.Signal(syscall.SIGTERM)
	must.Report(t, errors.Join(<-envoy.ended, backend.Wait()))
	plugin := must.Text(t, filepath.Join(s.dir, "weir.wasm"))
	for _, line := range strings.Split(strings.ReplaceAll(fetched, "v0.2.0", "v0.3.0"), "\n") {
		if line, found := strings.CutPrefix(strings.TrimSpace(line), "$ sha256sum"); found {
			must.Fails(t, s.typed(t.Context(), "sha256sum"+line).Run(), "a file that is not the checksum's")
		} else if found := strings.HasPrefix(line, "$ "); found {
			commandtest.Run(t, s.typed(t.Context(), line[2:]))
		}
	}
	must.Equal(t, must.Text(t, filepath.Join(s.dir, "weir.wasm")) == plugin, true, "a file that is not the checksum's stays as it was")
}

// tells wants the command of a release to say the version.
func (s *shell) tells(t *testing.T, version string) {
	t.Helper()
	said, err := s.typed(t.Context(), "./weir version").CombinedOutput()
	if err != nil || *releases != "" && !strings.HasPrefix(string(said), "weir "+version+", commit ") {
		t.Errorf("%s: %v\n%s", version, err, said)
	}
}

// commandsIn is how many commands a sample has somebody type.
func commandsIn(sample string) int { return strings.Count(sample, "$ ") }

// envoyProcess is an Envoy that a test has started.
type envoyProcess struct {
	*exec.Cmd
	ended chan error // gets the process's end
	log   string
}

// envoy starts a sample's Envoy, and waits until it listens.
func (s *shell) envoy(t *testing.T, sample string) *envoyProcess {
	t.Helper()
	log := must.Get(os.Create(filepath.Join(t.TempDir(), "envoy")))(t)
	command := strings.TrimPrefix(strings.Join(strings.Fields(sample), " "), "$ ")
	p := &envoyProcess{s.typed(context.Background(), "exec "+command), make(chan error, 1), log.Name()}
	p.Stdout, p.Stderr = log, log
	must.OK(t, p.Start())
	go func() { p.ended <- errors.Join(p.Wait(), log.Close()) }()
	t.Cleanup(func() { _ = p.Process.Kill() })
	for deadline := time.Now().Add(time.Minute); ; {
		if conn, err := net.Dial("tcp", s.ready["-c quickstart.yaml"]); err == nil {
			_ = conn.Close()
			return p
		} else if time.Now().After(deadline) {
			t.Fatalf("%v\n%s", err, must.Text(t, p.log))
		}
	}
}

// backend starts ./weir serve on its file, and waits until it listens.
func (s *shell) backend(t *testing.T) *exec.Cmd {
	t.Helper()
	address := s.ready["weir serve"]
	cmd := s.typed(t.Context(), "exec ./weir serve --store file:weir.db --listen "+address)
	must.OK(t, cmd.Start())
	for deadline := time.Now().Add(time.Minute); ; {
		if response, err := http.Get("http://" + address + "/readyz"); err == nil {
			_ = response.Body.Close()
			return cmd
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestUnit types what backend.md has root type, in a folder in the place of /. It has systemd check the installed unit, where
// there is one, and runs the unit's command with its environment and with that of the file beside it. systemctl is not typed.
func TestUnit(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	root := filepath.Join(s.dir, "root")
	in := strings.NewReplacer("/usr/local/", root+"/usr/local/", "/etc/", root+"/etc/", "/var/lib/weir", root+"/var/lib/weir")
	for _, dir := range []string{"usr/local/bin", "etc/systemd/system", "var/lib/weir"} {
		must.OK(t, os.MkdirAll(filepath.Join(root, dir), 0o700))
	}
	for name, content := range map[string]string{"weir": must.Text(t, "../dist/weir"), "weir.service": in.Replace(must.Text(t, "../deploy/weir.service"))} {
		must.OK(t, os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600))
	}
	typed := 0
	for _, sample := range shellSamples(must.Text(t, "backend.md")) {
		if !strings.HasPrefix(sample, "install ") {
			continue
		}
		for command := range strings.Lines(sample) {
			if strings.HasPrefix(command, "systemctl ") {
				continue
			}
			commandtest.Run(t, s.typed(t.Context(), in.Replace(command)))
			typed++
		}
	}
	settings := filepath.Join(root, "etc/weir/weir.env")
	if info, err := os.Stat(settings); err != nil || info.Mode().Perm() != 0o600 || typed != 4 {
		t.Fatalf("%d commands typed: %v, %v: want a file that its owner alone reads", typed, info, err)
	}
	file := filepath.Join(root, "etc/systemd/system/weir.service")
	if verify, err := exec.LookPath("systemd-analyze"); err == nil {
		commandtest.Run(t, exec.CommandContext(t.Context(), verify, "verify", file))
	}
	unit := must.Text(t, file)
	start := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(unit)
	environment := regexp.MustCompile(`(?m)^Environment=(.*)$`).FindStringSubmatch(unit)
	if start == nil || environment == nil || !strings.Contains(unit, "\nEnvironmentFile=-"+settings+"\n") {
		t.Fatalf("no command, or not its settings:\n%s", unit)
	}
	s.env = append(s.env, strings.Fields(strings.ReplaceAll(environment[1], "127.0.0.1:9180", s.ready["weir serve"]))...)
	s.env = append(s.env, strings.Fields(must.Text(t, settings))...)
	said := s.serve(t, start[1], s.ready["weir serve"])
	// It listens before it opens its store.
	response := must.Get(http.Get("http://" + s.ready["weir serve"] + "/readyz"))(t)
	must.Report(t, response.Body.Close())
	must.Equal(t, response.StatusCode, http.StatusOK, "ready: status")
	must.Get(os.Stat(filepath.Join(root, "var/lib/weir/weir.db")))(t)
	// What it has said may come after its answer.
	for deadline := time.Now().Add(time.Minute); !strings.Contains(said(), "token_required=true"); <-time.After(10 * time.Millisecond) {
		must.EqualOrEnd(t, time.Now().Before(deadline), true, "the log tells of the token: %s", said())
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
			Healthcheck struct{ Test []string }
			Environment map[string]string
			DependsOn   []string `yaml:"depends_on"`
		}
	}
	must.OK(t, yaml.Unmarshal([]byte(must.Text(t, "../deploy/compose.yaml")), &file))
	for name, service := range file.Services {
		for _, needed := range service.DependsOn {
			if file.Services[needed].Image == "" {
				t.Errorf("%s needs %s, which the file has not", name, needed)
			}
		}
	}
	// What docker compose up --wait waits for: Envoy listens once it has compiled the plugin.
	check := file.Services["envoy"].Healthcheck.Test
	must.EqualOrEnd(t, len(check), 4, "words of Envoy's health check")
	must.Equal(t, check[0], "CMD", "its kind")
	listens := func() error {
		place := strings.Replace(s.ready["weir serve"], ":", "/", 1)
		return exec.CommandContext(t.Context(), check[1], check[2], strings.Replace(check[3], "127.0.0.1/10001", place, 1)).Run()
	}
	must.Fails(t, listens(), "the health check, while nobody listens")
	weir := file.Services["weir"]
	s.env = append(s.env, "WEIR_TOKEN=0123456789abcdef", "WEIR_STORE="+s.replace.Replace(weir.Environment["WEIR_STORE"]))
	said := s.serve(t, s.replace.Replace("weir "+strings.Join(weir.Command, " ")), s.ready["weir serve"])
	must.Reportf(t, listens(), "the health check")
	response := must.Get(http.Get("http://" + s.ready["weir serve"] + "/readyz"))(t)
	if _ = response.Body.Close(); response.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", response.Status, said())
	}
}
