//go:build linux

// Package gateway has no code: its test installs a release into a real Envoy Gateway, from a registry.
package gateway

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/store/redis/redistest"
)

// These are the addresses of the two Gateways of envoy/gateway.
var gateways = []string{"http://127.0.0.1:10080", "http://127.0.0.1:10081"}

const token = "0123456789abcdef"

// deadline is how long a test waits for what another process does: Envoy Gateway takes half a minute to start where
// others work beside it.
const deadline = 3 * time.Minute

// world is a folder that Envoy Gateway runs in, and what is around it.
type world struct {
	dir, registry, backend, redis string
	environment                   []string
	app                           int // its port
}

// TestEnvoyGateway goes the way of docs/kubernetes.md, Envoy Gateway: it installs a chart from a registry, sees limits hold, upgrades
// under load and goes back, and then has Weir be the service of Envoy Gateway's own global limits.
func TestEnvoyGateway(t *testing.T) {
	if os.Getenv(inside) == "" {
		return // by night alone: see TestMain
	}
	w := newWorld(t)
	began := time.Now()
	w.apply(t, "weir.yaml", w.chart(t, "0.1.0"))
	w.run(t, w.environment, "envoy-gateway", "server", "--config-path", "server.yaml")
	for _, at := range gateways {
		waitFor(t, "an answer of "+at, func() bool { return get(at, "nobody").status == http.StatusOK })
	}
	t.Logf("Envoy Gateway serves after %v", time.Since(began).Round(time.Second))
	for _, test := range []struct {
		name string
		run  func(*testing.T, *world)
	}{{"exact", limitsAreExact}, {"bodies", bodiesAreRead}, {"upgrade", upgradesUnderLoad}, {"tls", backendSpeaksTLS}, {"ratelimit", weirIsTheService}} {
		if !t.Run(test.name, func(t *testing.T) { test.run(t, w) }) {
			return
		}
	}
}

// limitsAreExact sends requests of one user through both Envoys: with sync_rate 0 exactly the limit pass.
func limitsAreExact(t *testing.T, _ *world) {
	must.Equal(t, flood(t, "ann", 400), 300, "passed")
}

// bodiesAreRead wants a request's own number, which the plugin has only where it gets bodies.
func bodiesAreRead(t *testing.T, _ *world) {
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, gateways[0]+"/v1/chat/completions", strings.NewReader(`{"max_tokens": 600}`)))(t)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-User", "max")
	if a := do(request); a.status != http.StatusOK || !strings.Contains(a.header.Get("RateLimit"), `"tokens";r=400`) {
		t.Errorf("%+v: want 400 of 1000 tokens to be left", a)
	}
}

// upgradesUnderLoad installs the next version while requests come, and goes back to the one before, by the digest of its bare
// form: the others are images.
func upgradesUnderLoad(t *testing.T, w *world) {
	flood(t, "eve", 400) // has used up the limit
	old := w.module(t)
	end := make(chan struct{})
	var asking sync.WaitGroup
	var asked, wrong atomic.Int64
	for i, user := range []string{"eve", "bob", "eve", "bob"} {
		asking.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				a := get(gateways[(i+n)%2], user)
				asked.Add(1)
				if a.status != http.StatusTooManyRequests && (user == "eve" || a.status != http.StatusOK) {
					wrong.Add(1)
					t.Errorf("%s: %+v", user, a)
				}
			}
		})
	}
	began := time.Now()
	w.apply(t, "weir.yaml", w.chart(t, "0.2.0"))
	waitFor(t, "the next version", func() bool { return w.module(t) != old && w.module(t) != "" })
	t.Logf("upgraded after %v", time.Since(began).Round(time.Second))
	began = time.Now()
	w.apply(t, "weir.yaml", w.chart(t, "0.1.0", "--set", "plugin.tag="+w.digest(t, "weir-plugin", "v0.1.0-wasm")))
	waitFor(t, "the version before", func() bool { return w.module(t) == old })
	t.Logf("rolled back after %v", time.Since(began).Round(time.Second))
	close(end)
	asking.Wait()
	t.Logf("%d requests meanwhile", asked.Load())
	must.AtLeast(t, asked.Load(), 1, "requests")
	must.Equal(t, wrong.Load(), 0, "requests that were answered otherwise")
}

// backendSpeaksTLS gives the backend a certificate. Envoys ask it by the authority that the chart names, and by another do
// without it, so that each has the whole limit.
func backendSpeaksTLS(t *testing.T, w *world) {
	for _, name := range []string{"backend", "other"} {
		w.certificate(t, name, "weir.weir-system.svc.cluster.local")
	}
	w.backend = commandtest.FreeAddress(t)
	w.run(t, w.environment, "weir", "serve", "--store", "memory", "--listen", w.backend, "--tls-cert", "backend.crt", "--tls-key", "backend.key")
	// In this order: a node that could not reach the backend does not ask it again at once.
	for _, of := range []struct {
		authority string
		passes    int64
	}{{"backend.crt", 300}, {"other.crt", 400}} {
		file := filepath.Join(w.dir, of.authority)
		w.apply(t, "weir.yaml", w.chart(t, "0.1.0", "--set", "backend.tls.secretName=weir-tls,envoyGateway.trustedCA="+file))
		waitFor(t, "the authority "+of.authority, func() bool {
			return !slices.ContainsFunc(w.dumps(t, "dynamic_active_clusters"), func(dump string) bool { return !strings.Contains(dump, strconv.Quote(file)) })
		})
		must.Equal(t, flood(t, "user of "+of.authority, 400), of.passes, "%s: passed", of.authority)
	}
}

// certificate writes a certificate that has signed itself, and its key.
func (w *world) certificate(t *testing.T, name, host string) {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	certificate := must.Get(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	private := must.Get(x509.MarshalPKCS8PrivateKey(key))(t)
	w.write(t, name+".crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})))
	w.write(t, name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

// weirIsTheService has a BackendTrafficPolicy of Envoy Gateway's limit requests. Weir gets it by xDS, with the environment
// that Envoy Gateway gives the service's container; there is an instance for each Envoy, and both are on one Redis.
func weirIsTheService(t *testing.T, w *world) {
	certificates := filepath.Join(w.dir, "eg/config/certs/envoy-rate-limit")
	policy := must.Text(t, "../../envoy/gateway/rate-limits.yaml")
	for i, gateway := range []string{"eg", "other"} {
		port := freePort(t)
		environment := strings.NewReplacer("/certs/", certificates+"/", "envoy-gateway:18001", "127.0.0.1:18001", "redis:6379", w.redis).Replace(
			must.Text(t, "testdata/ratelimit.env"))
		w.run(t, slices.Concat(w.environment, strings.Fields(environment), ownPorts(t, port), []string{"CONFIG_GRPC_XDS_SERVER_TLS_SAN=envoy-gateway"}), "weir", "ratelimit")
		policy += strings.NewReplacer("GATEWAY", gateway, "8081", strconv.Itoa(port)).Replace(must.Text(t, "testdata/ratelimit-cluster.yaml"))
		if i == 0 {
			w.remove(t, "weir.yaml")
			w.apply(t, "rate-limits.yaml", policy)
		}
	}
	w.apply(t, "rate-limits.yaml", policy)
	for _, at := range gateways {
		waitFor(t, "limits at "+at, func() bool {
			a := get(at, "nobody")
			return a.status == http.StatusOK && strings.HasPrefix(a.header.Get("X-RateLimit-Limit"), "100,")
		})
	}
	must.Equal(t, flood(t, "ann", 200), 100, "passed")
	w.apply(t, "rate-limits.yaml", strings.Replace(policy, "requests: 100", "requests: 150", 1))
	for _, at := range gateways {
		waitFor(t, "the new limit at "+at, func() bool { return strings.HasPrefix(get(at, "nobody").header.Get("X-RateLimit-Limit"), "150,") })
	}
	must.Equal(t, flood(t, "ann", 200), 50, "passed after the limit was raised")
}

// ownPorts are settings of a rate limit service: Envoy Gateway and its Envoys listen here where it would in a pod of its own.
func ownPorts(t *testing.T, grpc int) []string {
	t.Helper()
	return []string{"GRPC_HOST=127.0.0.1", fmt.Sprint("GRPC_PORT=", grpc), "HOST=127.0.0.1", fmt.Sprint("PORT=", freePort(t)), fmt.Sprint("PROMETHEUS_ADDR=127.0.0.1:", freePort(t))}
}

// newPlace makes a folder with programs, a registry with two versions of Weir, the counter backend, and the service that is
// limited.
func newPlace(t *testing.T) *world {
	t.Helper()
	w := &world{dir: t.TempDir()}
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(app.Close)
	w.app = app.Listener.Addr().(*net.TCPAddr).Port
	images := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(images.Close)
	w.registry = strings.TrimPrefix(images.URL, "http://")
	bin := filepath.Join(w.dir, "bin")
	link(t, "../../dist/weir", filepath.Join(bin, "weir"))
	link(t, os.Getenv("HELM"), filepath.Join(bin, "helm"))
	link(t, os.Getenv("ENVOY_GATEWAY"), filepath.Join(bin, "envoy-gateway"))
	w.environment = append(os.Environ(), "HOME="+w.dir, "PATH="+bin+":"+os.Getenv("PATH"), "WEIR_TOKEN="+token)
	w.backend = commandtest.FreeAddress(t)
	w.run(t, w.environment, "weir", "serve", "--store", "memory", "--listen", w.backend)
	for _, version := range []string{"v0.1.0", "v0.2.0"} {
		w.release(t, version)
	}
	return w
}

// newWorld makes a place with Envoy Gateway's configuration.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := newPlace(t)
	w.redis = strings.TrimPrefix(redistest.Start(t).URL(), "redis://")
	envoy := must.Get(envoytest.Newest())(t)
	link(t, envoy.Path, filepath.Join(w.dir, "eg/data/envoy-versions/1.40.0/bin/envoy"))
	w.command(t, "envoy-gateway", "certgen", "--local", "--config-home", "eg/config")
	w.write(t, "server.yaml", must.Text(t, "../../envoy/gateway/server.yaml"))
	w.apply(t, "gateway.yaml", strings.Replace(must.Text(t, "../../envoy/gateway/resources/gateway.yaml"), "port: 3000", fmt.Sprint("port: ", w.app), 1))
	w.apply(t, "standalone.yaml", must.Text(t, "../../envoy/gateway/resources/standalone.yaml"))
	data := map[string]string{}
	for _, file := range []string{"ca.crt", "tls.crt", "tls.key"} {
		data[file] = base64.StdEncoding.EncodeToString([]byte(must.Text(t, filepath.Join(w.dir, "eg/config/certs/envoy", file))))
	}
	secret := must.Get(json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]string{"name": "envoy", "namespace": "envoy-gateway-system"}, "type": "kubernetes.io/tls", "data": data,
	}))(t)
	w.apply(t, "secret.yaml", string(secret))
	return w
}

// release makes the files of a version, and pushes its images. The plugin of a version is not that of the others.
func (w *world) release(t *testing.T, version string) {
	t.Helper()
	files := t.TempDir()
	plugin := []byte(must.Text(t, "../../dist/weir.wasm"))
	// A custom section: its length, that of its name, and its name.
	plugin = append(plugin, append([]byte{0, byte(len(version) + 1), byte(len(version))}, version...)...)
	must.OK(t, os.WriteFile(filepath.Join(files, "weir.wasm"), plugin, 0o600))
	for _, arch := range []string{"amd64", "arm64"} {
		// The command's image is not run.
		script := filepath.Join(files, "weir")
		must.OK(t, os.WriteFile(script, []byte(version), 0o700))
		w.command(t, "tar", "czf", filepath.Join(files, "weir_linux_"+arch+".tar.gz"), "-C", files, "weir")
	}
	chart := must.Get(filepath.Abs("../../charts/weir"))(t)
	w.command(t, os.Getenv("IMAGES"), "-chart", chart, "-tag", version, "-files", files)
	w.command(t, os.Getenv("IMAGES"), "-image", w.registry+"/weir", "-tag", version, "-files", files)
}

// chart has Helm render the chart of a version as docs/kubernetes.md has somebody install it for Envoy Gateway, and returns the resources of
// Envoy Gateway: there is no cluster for the others. The backend is elsewhere.
func (w *world) chart(t *testing.T, version string, more ...string) string {
	t.Helper()
	install, values := shown(t, "Envoy Gateway")
	w.write(t, "values.yaml", strings.NewReplacer("registry.example", w.registry, "gateways:\n", "gateways:\n    - {name: other, listeners: [http]}\n").Replace(values))
	arguments := strings.Fields("template " + strings.ReplaceAll(install[1], "registry.example", w.registry) + " --version " + version + " " + install[2] +
		" -f values.yaml --plain-http --kube-version 1.31.0 --set " + install[3] + "=" + token)
	rendered := w.command(t, "helm", append(arguments, more...)...)
	w.write(t, "rendered.yaml", rendered)
	must.Lacks(t, w.command(t, "weir", "check", "rendered.yaml"), "default is taken", "weir check, with the patches that give the plugin bodies")
	var ours []string
	for part := range strings.SplitSeq(rendered, "\n---\n") {
		if strings.Contains(part, "apiVersion: gateway.envoyproxy.io/") {
			ours = append(ours, part)
		}
	}
	must.EqualOrEnd(t, len(ours), 3, "resources of Envoy Gateway in\n%s", rendered)
	host, port, _ := strings.Cut(w.backend, ":")
	return strings.NewReplacer("weir.weir-system.svc.cluster.local, port_value: 9180", host+", port_value: "+port).Replace(strings.Join(ours, "\n---\n"))
}

var (
	installs = regexp.MustCompile(`helm install (weir oci://registry\.example/weir-chart) --version 0\.1\.0 (-n \S+) -f values\.yaml \\\n +--set (\S+)="\$TOKEN"`)
	valuesOf = regexp.MustCompile("(?s)```yaml\n# values.yaml\n(.*?)```")
)

// section is the text of a section of docs/kubernetes.md.
func section(t *testing.T, name string) string {
	t.Helper()
	_, text, _ := strings.Cut(must.Text(t, "../../docs/kubernetes.md"), "\n## "+name+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// shown returns the command and the values with which a section of docs/kubernetes.md has somebody install the chart.
func shown(t *testing.T, name string) (install []string, values string) {
	t.Helper()
	text := section(t, name)
	install, found := installs.FindStringSubmatch(text), valuesOf.FindStringSubmatch(text)
	if install == nil || found == nil {
		t.Fatalf("docs/kubernetes.md, %s: no command to install by, or no values", name)
	}
	return install, found[1]
}

func (w *world) digest(t *testing.T, image, tag string) string {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodHead, "http://"+w.registry+"/v2/"+image+"/manifests/"+tag, nil))(t)
	a := do(request)
	if !strings.HasPrefix(a.header.Get("Docker-Content-Digest"), "sha256:") {
		t.Fatalf("%+v", a)
	}
	return a.header.Get("Docker-Content-Digest")
}

var pluginSum = regexp.MustCompile(`"sha256": "([0-9a-f]+)"`)

// module is the sum of the plugin that both Envoys run, or empty while they run different plugins.
func (w *world) module(t *testing.T) string {
	t.Helper()
	var sums []string
	for _, text := range w.dumps(t, "dynamic_listeners") {
		var dump struct {
			Configs []struct {
				ActiveState json.RawMessage `json:"active_state"` // what takes connections; others warm or drain
			}
		}
		must.OK(t, json.Unmarshal([]byte(text), &dump))
		for _, listener := range dump.Configs {
			if sum := pluginSum.FindSubmatch(listener.ActiveState); sum != nil {
				sums = append(sums, string(sum[1]))
			}
		}
	}
	if slices.Sort(sums); len(sums) != 2 || len(slices.Compact(sums)) != 1 {
		return ""
	}
	return sums[0]
}

// dumps are both Envoys' configurations of a kind.
func (w *world) dumps(t *testing.T, kind string) (dumps []string) {
	t.Helper()
	files := must.Get(filepath.Glob(filepath.Join(w.dir, "eg/run/*/admin-address.txt")))(t)
	must.EqualOrEnd(t, len(files), 2, "addresses in %v", files)
	for _, file := range files {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+must.Text(t, file)+"/config_dump?resource="+kind, nil))(t)
		dumps = append(dumps, do(request).body)
	}
	return dumps
}

// run runs a process until the test ends, which prints what it has said if the test has failed.
func (w *world) run(t *testing.T, environment []string, name string, arguments ...string) (stop func()) {
	t.Helper()
	said := must.Get(os.Create(filepath.Join(t.TempDir(), name)))(t)
	cmd := exec.Command(w.path(name), arguments...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = w.dir, environment, said, said
	must.OK(t, cmd.Start())
	stop = sync.OnceFunc(func() {
		must.Reportf(t, cmd.Process.Signal(syscall.SIGTERM), "%s has ended by itself", name)
		_ = cmd.Wait()
		if text := must.Text(t, said.Name()); t.Failed() {
			t.Logf("%s: …%s", name, text[max(0, len(text)-4000):])
		}
	})
	t.Cleanup(stop)
	return stop
}

func (w *world) path(name string) string {
	if here := filepath.Join(w.dir, "bin", name); !strings.Contains(name, "/") {
		if _, err := os.Stat(here); err == nil {
			return here
		}
	}
	return name
}

// start is a command that is not started yet.
func (w *world) start(name string, arguments ...string) *exec.Cmd {
	cmd := exec.Command(w.path(name), arguments...)
	cmd.Dir, cmd.Env = w.dir, w.environment
	return cmd
}

// command runs a command to its end, and returns its output.
func (w *world) command(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	cmd := w.start(name, arguments...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	must.OKf(t, cmd.Run(), "%s %v: %s%s", name, arguments, &out, &said)
	return out.String()
}

// apply has Envoy Gateway read resources of a file, in the place of those that it had.
func (w *world) apply(t *testing.T, name, text string) {
	t.Helper()
	// Not in pieces: it reads a file as soon as it is there.
	w.write(t, "."+name, text)
	must.OK(t, os.MkdirAll(filepath.Join(w.dir, "resources"), 0o700))
	must.OK(t, os.Rename(filepath.Join(w.dir, "."+name), filepath.Join(w.dir, "resources", name)))
}

func (w *world) remove(t *testing.T, name string) {
	t.Helper()
	must.OK(t, os.Remove(filepath.Join(w.dir, "resources", name)))
}

func (w *world) write(t *testing.T, name, text string) {
	t.Helper()
	must.OK(t, os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600))
}

// answer is a request's answer; its status is 0 if there is none.
type answer struct {
	status int
	header http.Header
	body   string
}

func do(r *http.Request) answer {
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{body: err.Error()}
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return answer{body: err.Error()}
	}
	return answer{response.StatusCode, response.Header, string(body)}
}

func get(url, user string) answer {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return answer{body: err.Error()}
	}
	request.Header.Set("X-User", user)
	return do(request)
}

// flood sends requests of a user through all gateways at once, and says how many passed, and how many had another
// answer than a refusal.
func flood(t *testing.T, user string, requests int) (passed int64) {
	t.Helper()
	const clients = 8
	var asking sync.WaitGroup
	var ok atomic.Int64
	for i := range clients {
		asking.Go(func() {
			for range requests / clients {
				switch a := get(gateways[i%len(gateways)], user); a.status {
				case http.StatusOK:
					ok.Add(1)
				case http.StatusTooManyRequests:
				default:
					t.Errorf("%+v", a)
				}
			}
		})
	}
	asking.Wait()
	return ok.Load()
}

func waitFor(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !happened(); {
		if time.Now().After(end) {
			t.Fatalf("no %s after %v", what, deadline)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	return int(netip.MustParseAddrPort(commandtest.FreeAddress(t)).Port())
}

func link(t *testing.T, file, at string) {
	t.Helper()
	file, err := filepath.Abs(file)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(at), 0o700)
	}
	if err == nil {
		err = os.Symlink(file, at)
	}
	must.OK(t, err)
}
