package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"weir/internal/must"
)

// oncePerUser lets each user pass once, and asks the backend every time.
const oncePerUser = `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 0, "rules": [
	{"name": "per-user", "key": [{"header": "x-user"}], "limits": [{"limit": 1, "window": "366d", "algorithm": "fixed_window"}]}]}`

// A request with a body that waits for the backend is held back completely, even if the proxy stops
// only headers and the body comes meanwhile. A rejected request never reaches the upstream. An
// allowed request reaches it with its body and its trailers.
func TestRequestWaitsWhole(t *testing.T) {
	onEveryByNight(t, 2, func(t *testing.T, d driver) {
		for _, headersOnly := range []bool{false, true} {
			waitsWhole(t, d, headersOnly)
		}
	})
}

func waitsWhole(t *testing.T, d driver, headersOnly bool) {
	t.Run(fmt.Sprintf("headers only %v", headersOnly), func(t *testing.T) {
		d.beside(t)
		type message struct {
			size    int
			trailer string
		}
		var reached atomic.Int64
		arrived := make(chan message, 100) // also for messages that should not arrive
		backend, way := serve(t, "memory"), newCustoms()
		elsewhere := d.node(t, nodeConfig{configuration: oncePerUser, backend: backend})
		proxy := d.node(t, nodeConfig{
			configuration: oncePerUser, backend: through(t, way, backend), stopsHeadersOnly: headersOnly,
			upstream: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				reached.Add(1)
				body, err := io.ReadAll(r.Body)
				must.Report(t, err)
				arrived <- message{len(body), r.Trailer.Get("x-sum")}
			}),
		})
		sent := int64(0)
		for _, http2 := range []bool{false, true} {
			for _, size := range []int{1, 100_000, 5_000_000} {
				for _, passes := range []bool{false, true} {
					user := fmt.Sprintf("http2 %v, %d bytes, passes %v", http2, size, passes)
					if !passes {
						must.EqualOrEnd(t, ask(t, client(t), elsewhere.url(), "x-user", user).status, http.StatusOK, "%s: elsewhere: status", user)
					}
					request := request(t, proxy.url(), io.NopCloser(bytes.NewReader(make([]byte, size))), "x-user", user)
					request.Trailer = http.Header{"X-Sum": {"7"}}
					way.hold(true)
					status := make(chan int, 1)
					go func() {
						r, err := do(clientOf(t, http2), request)
						if err != nil {
							t.Error(user, err)
						}
						status <- r.status
					}()
					call := way.next(t)
					// Only the first part of a large body is read before the request goes on.
					sent += int64(min(size, 10_000))
					proxy.received(t, sent)
					must.Equal(t, reached.Load(), 0, "%s: the upstream has the request before it is decided", user)
					way.hold(false)
					call.deliver(t)
					got, want := <-status, http.StatusTooManyRequests
					if passes {
						want = http.StatusOK
						if got == want {
							must.Equal(t, <-arrived, message{size, "7"}, "%s: the upstream", user)
						}
						reached.Store(0)
					}
					must.Equal(t, got, want, "%s: status", user)
					must.Equal(t, reached.Load(), 0, "%s: the upstream got a rejected request", user)
				}
			}
		}
	})
}

// clientOf returns a client that uses HTTP/1.1, or HTTP/2 without TLS.
func clientOf(t *testing.T, http2 bool) *http.Client {
	if http2 {
		return http2Client(t)
	}
	return client(t)
}

// A client that leaves while its request waits takes nothing: the backend's grant goes back, and
// another request passes instead.
func TestClientLeavesWhileItWaits(t *testing.T) {
	onEach(t, 2, func(t *testing.T, d driver) {
		backend, way := serve(t, "memory"), newCustoms()
		elsewhere := d.node(t, nodeConfig{configuration: oncePerUser, backend: backend})
		proxy := d.node(t, nodeConfig{configuration: oncePerUser, backend: through(t, way, backend)})
		for _, http2 := range []bool{false, true} {
			for i := range 20 {
				user := fmt.Sprintf("http2 %v, %d", http2, i)
				ctx, leave := context.WithCancel(t.Context())
				request := request(t, proxy.url(), nil, "x-user", user).WithContext(ctx)
				way.hold(true)
				left := make(chan error, 1)
				go func() {
					_, err := do(clientOf(t, http2), request)
					left <- err
				}()
				call := way.next(t)
				way.hold(false)
				leave()
				if err := <-left; err == nil {
					t.Fatalf("%s: got an answer before the backend gave one", user)
				}
				proxy.idle(t)
				call.deliver(t)
				must.EqualOrEnd(t, soon(func() bool { return ask(t, client(t), elsewhere.url(), "x-user", user).status == http.StatusOK }), true, "%s: the hit of a client that has left comes back", user)
			}
		}
	})
}
