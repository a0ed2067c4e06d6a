package envoy_test

import (
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/nightly"
)

// endpoint returns an address as the quickstart writes it.
func endpoint(t *testing.T, address string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	must.OK(t, err)
	return host + ", port_value: " + port
}

// The guide shows the quickstart unchanged. Two Envoys that run it with a backend without a token,
// as in the guide, together admit exactly ten requests of an address.
func TestQuickstartRuns(t *testing.T) {
	t.Parallel()
	const name = "quickstart.yaml"
	must.Contains(t, must.Text(t, "../docs/getting-started.md"), "\n```yaml\n"+must.Text(t, name)+"```\n", "getting-started.md does not show %s as it is", name)
	onEachEnvoy(t, func(t *testing.T, on envoytest.Binary) {
		runQuickstart(t, on, must.Text(t, name), "dist/weir.wasm", pluginFile(t))
	})
}

// native.yaml does the same with the native plugin, which only nightly runs build.
func TestNativeRuns(t *testing.T) {
	t.Parallel()
	if !nightly.On() {
		return
	}
	file := must.Get(filepath.Abs("../dist/libweir.so"))(t)
	newest := must.Get(envoytest.Newest())(t)
	runQuickstart(t, newest, must.Text(t, "native.yaml"), "dist/libweir.so", file)
}

// runQuickstart lets two Envoys run a configuration with a backend. The module's path is replaced
// by file.
func runQuickstart(t *testing.T, on envoytest.Binary, text, module, file string) {
	t.Helper()
	around := surroundings{
		backend:  &backend{own: startServeIn(t, nil), hosts: map[string]bool{}},
		upstream: surround(t).upstream,
	}
	encoded := onFreePorts(t, text, module, file, around)
	var clients []client
	for range 2 {
		p := around.run(t, on, encoded)
		listeners := slices.Collect(maps.Keys(p.listeners))
		must.EqualOrEnd(t, len(listeners), 1, "listeners %q", listeners)
		clients = append(clients, p.at(local, listeners[0]))
	}
	for i := range 12 {
		want := http.StatusOK
		if i >= 10 {
			want = http.StatusTooManyRequests
		}
		a := clients[i%2].send(t, "GET", "/")
		must.Equal(t, a.status, want, "request %d of 12: status, with %s", i+1, a.header)
	}
}

// onFreePorts returns a bootstrap of this folder with another file for its module, on free ports,
// with the test's backend and upstream.
func onFreePorts(t *testing.T, text, module, file string, around surroundings) []byte {
	t.Helper()
	text = substitute(t, text, map[string]string{
		"port_value: 10000":           "port_value: 0",
		module:                        file,
		`{"cluster": "weir_backend"}`: `{"cluster": "weir_backend", "timeout": "` + patience + `"}`,
		"127.0.0.1, port_value: 3000": endpoint(t, around.upstream),
		"127.0.0.1, port_value: 9180": endpoint(t, around.backend.own),
	})
	bootstrap := envoytest.Object{}
	must.OK(t, yaml.UnmarshalStrict([]byte(text), &bootstrap))
	// The test asks the admin interface for the listener's port.
	bootstrap["admin"] = envoytest.Object{"address": envoytest.Address("127.0.0.1", 0)}
	return must.Get(json.Marshal(bootstrap))(t)
}
