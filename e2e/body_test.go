package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"

	"weir/e2e/host"
)

// heldBack is a way to the backend that keeps answers back until the test lets them go.
type heldBack struct{ asked, release chan struct{} }

func (h *heldBack) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	h.asked <- struct{}{}
	<-h.release
	return response, err
}

// A request with a body that waits for the backend is held back whole, also where the proxy stops headers only and the body comes
// meanwhile. Rejected, with a gRPC status, it never reaches the upstream; allowed, it does with its body and its trailers.
func TestBodyWaitsForTheBackend(t *testing.T) {
	t.Parallel()
	const once = `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 0, "rules": [
		{"name": "per-user", "key": [{"header": "x-user"}], "limits": [{"limit": 1, "window": "366d", "algorithm": "fixed_window"}]}]}`
	for _, headersOnly := range []bool{false, true} {
		for _, size := range []int{1, 100_000, 5_000_000} {
			t.Run(fmt.Sprintf("headers only %v, %d bytes", headersOnly, size), func(t *testing.T) {
				t.Parallel()
				var reached atomic.Int64
				type message struct {
					size    int
					trailer string
				}
				arrived := make(chan message, 2)
				base := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
					reached.Add(1)
					body, err := io.ReadAll(r.Body)
					if err != nil {
						t.Error(err)
					}
					arrived <- message{len(body), r.Trailer.Get("x-sum")}
				})
				backend := serve(t, "memory")
				_, elsewhere := costlyNodes(t, 1, once, backend, http.DefaultTransport)
				way := &heldBack{asked: make(chan struct{}), release: make(chan struct{})}
				proxy, address := node(t, host.ProxyConfig{
					Process:          host.NewProcess(host.ProcessConfig{Clusters: map[string]string{"weir": backend}}),
					Plugin:           host.Plugin{Configuration: []byte(once), AllowOnHeadersStopIteration: headersOnly},
					Upstream:         base,
					CalloutTransport: way,
					ManualTicks:      true,
				})
				seen := func() (n uint64) {
					proxy.Do(0, func(vm *host.VM, _ *host.Root) { n = vm.Callbacks()["proxy_on_request_body"] })
					return n
				}
				for _, user := range []string{"ann", "bob"} {
					client := client(t) // a refused body may cost the connection
					want := "200 OK"
					if user == "ann" {
						want = "200 OK8Rate limit exceeded"
						if status, _, err := get(client, elsewhere[0], user); err != nil || status != http.StatusOK {
							t.Fatal(status, err)
						}
					}
					request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, io.NopCloser(bytes.NewReader(make([]byte, size))))
					if err != nil {
						t.Fatal(err)
					}
					request.Header.Set("x-user", user)
					request.Header.Set("content-type", "application/grpc")
					request.Trailer = http.Header{"X-Sum": {"7"}}
					before, status := seen(), make(chan string, 1)
					go func() {
						response, err := client.Do(request)
						if err != nil {
							t.Error(err)
							status <- "none"
							return
						}
						status <- response.Status + response.Header.Get("grpc-status") + response.Header.Get("grpc-message")
						if err := response.Body.Close(); err != nil {
							t.Error(err)
						}
					}()
					select {
					case <-way.asked:
					case got := <-status:
						t.Fatalf("%s: got %s before the backend was asked", user, got)
					}
					for headersOnly && seen() == before && reached.Load() == 0 {
						runtime.Gosched()
					}
					if reached.Load() != 0 {
						t.Errorf("%s: the upstream has the request before it is decided", user)
					}
					close(way.release)
					if got := <-status; got != want {
						t.Errorf("%s: got %s, want %s", user, got, want)
					}
					if user == "bob" {
						if got := <-arrived; got != (message{size, "7"}) {
							t.Errorf("%s: the upstream got %+v", user, got)
						}
					} else if reached.Load() != 0 {
						t.Errorf("%s: the upstream got a rejected request", user)
					}
					way.release = make(chan struct{})
				}
			})
		}
	}
}
