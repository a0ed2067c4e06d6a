package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"weir/internal/envoytest"
	"weir/internal/must"
)

// TestKept has requests that are over with their headers: the plugin hands the response's header out
// before the response comes. It takes the place of the upstream's, however many there are.
func TestKept(t *testing.T) {
	t.Parallel()
	header := func(name, value string) object {
		return object{"header": object{"key": name, "value": value}, "append_action": "APPEND_IF_EXISTS_OR_ADD"}
	}
	others := func(n int) (list []object) {
		for i := range n {
			list = append(list, header(fmt.Sprintf("x-other-%d", i), "upstream"))
		}
		return list
	}
	upstreams := map[string][]object{
		"/none": {}, "/one": {header("x-do", "upstream")}, "/two": {header("x-do", "first"), header("x-other", "upstream"), header("x-do", "second")},
		"/most": others(63), "/many": append(others(70), header("x-do", "upstream")),
	}
	var routes []object
	for path, headers := range upstreams {
		routes = append(routes, object{"match": object{"path": path}, "direct_response": object{"status": 200}, "response_headers_to_add": headers})
	}
	e := start(t, listenerOf("kept", routes, filter(build(t), "kept", "")))
	for path, headers := range upstreams {
		for _, do := range []string{"keep", "pass"} {
			r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address(t, e, "kept")+path, http.NoBody))(t)
			r.Header.Set("x-do", do)
			response := must.Get(anew.Do(r))(t)
			must.OK(t, response.Body.Close())
			want := map[string][]string{}
			for _, h := range headers {
				name, value := h["header"].(object)["key"].(string), h["header"].(object)["value"].(string)
				want[http.CanonicalHeaderKey(name)] = append(want[http.CanonicalHeaderKey(name)], value)
			}
			if do == "keep" {
				want["X-Do"] = []string{"keep"}
			}
			for name, values := range response.Header {
				if name[:2] == "X-" && !slices.Equal(values, want[name]) {
					t.Errorf("%s, %s: %s: got %q, want %q", path, do, name, values, want[name])
				}
				delete(want, name)
			}
			must.Equal(t, len(want), 0, "%s, %s: headers that the response lacks: %v", path, do, want)
		}
	}
}

// TestRedirect has Envoy follow an upstream's redirect by itself. The redirected request finds the
// place free that the request before it held, as with Envoy's wasm host.
func TestRedirect(t *testing.T) {
	t.Parallel()
	file := build(t)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "http://"+r.Host+"/there", http.StatusFound)
		}
	}))
	t.Cleanup(upstream.Close)
	for form, filter := range map[string]func(file, name, configuration string) object{"native": filter, "wasm": inWasm} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			e, files := startUpdated(t, 1)
			must.OK(t, files.SetClusters(t.Context(), e, clusterOf(upstream)))
			routes := []object{{"match": object{"prefix": "/"}, "route": object{"cluster": "upstream", "internal_redirect_policy": object{}}}}
			must.OK(t, files.SetListeners(t.Context(), e, []object{listenerOf("app", routes, filter(file, "app", ""))}))
			wantStatus(t, address(t, e, "app"), "in flight", 200)
		})
	}
}

// TestResumedByBody has a request that waits at its headers and goes on with its body. It waits for the
// plugin no longer: when the VM fails before the upstream has answered, the request still gets its answer.
func TestResumedByBody(t *testing.T) {
	t.Parallel()
	arrived, answer := make(chan bool, 1), make(chan bool)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("x-do") == "forever" {
			arrived <- true
			select {
			case <-answer:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(upstream.Close)
	e, files := startUpdated(t, 1)
	must.OK(t, files.SetClusters(t.Context(), e, clusterOf(upstream)))
	routes := []object{{"match": object{"prefix": "/"}, "route": object{"cluster": "upstream"}}}
	must.OK(t, files.SetListeners(t.Context(), e, []object{listenerOf("app", routes, filter(build(t), "app", ""))}))
	app := address(t, e, "app")
	done := make(chan bool)
	go func() {
		defer close(done)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+app, strings.NewReader("body"))
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("x-do", "forever")
		response, err := anew.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer response.Body.Close()
		must.Equal(t, response.StatusCode, http.StatusOK, "status, the upstream's")
	}()
	<-arrived
	wantStatus(t, app, "unreachable", 503)
	wantStatus(t, app, "", 503)
	close(answer)
	<-done
}

// clusterOf returns the cluster upstream, which is a server.
func clusterOf(server *httptest.Server) []object {
	return []object{envoytest.Cluster("upstream", server.Listener.Addr().String())}
}
