package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/envoytest"
	"weir/internal/host"
	"weir/internal/must"
	"weir/internal/wire"
)

// customs holds back callouts with hits or takes until the test decides about each. Empty callouts
// pass: a worker makes such a callout at its first tick, at any time.
type customs struct {
	mu      sync.Mutex
	closed  bool
	arrived chan *heldCallout
}

// heldCallout is a callout that was not sent yet.
type heldCallout struct {
	request *http.Request
	body    []byte
	answer  chan *http.Response // nil if the callout was lost
}

func newCustoms() *customs { return &customs{arrived: make(chan *heldCallout, 1000)} }

// hold sets whether callouts are held back from now on.
func (c *customs) hold(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = on
}

func (c *customs) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if wire.IsReport(body) || wire.IsUsed(body) {
		r.Body = io.NopCloser(bytes.NewReader(body))
		return envoytest.Client.Transport.RoundTrip(r)
	}
	push, err := wire.DecodePush(body)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if !closed || len(push.Items)+len(push.Takes) == 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
		return envoytest.Client.Transport.RoundTrip(r)
	}
	call := &heldCallout{request: r, body: body, answer: make(chan *http.Response, 1)}
	c.arrived <- call
	select {
	case response := <-call.answer:
		if response == nil {
			return nil, errLost
		}
		return response, nil
	case <-r.Context().Done(): // the proxy has ended, or its timeout has
		return nil, r.Context().Err()
	}
}

// next waits for a held callout.
func (c *customs) next(t *testing.T) *heldCallout {
	t.Helper()
	select {
	case call := <-c.arrived:
		return call
	case <-time.After(hang):
		t.Fatal("no callout was made")
		return nil
	}
}

// deliver lets the backend apply a callout, and returns the answer to the proxy if it still waits.
func (h *heldCallout) deliver(t *testing.T) {
	t.Helper()
	request := h.request.Clone(context.Background())
	request.Body = io.NopCloser(bytes.NewReader(h.body))
	response := must.Get(envoytest.Client.Transport.RoundTrip(request))(t)
	answer, err := io.ReadAll(response.Body)
	must.OK(t, errors.Join(err, response.Body.Close()))
	must.EqualOrEnd(t, response.StatusCode, http.StatusOK, "a callout that was held up: status")
	response.Body = io.NopCloser(bytes.NewReader(answer))
	select {
	case h.answer <- response:
	default: // it was delivered before
	}
}

func (h *heldCallout) lose() { h.answer <- nil }

// thousand is charged by the costs of responses, which nodes push later.
const thousand = `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 1, "rules": [{"name": "per-user", "key": [{"header": "x-user"}],
	"cost": {"header": "x-cost", "least": 0}, "cost_on_response": {"header": "x-charge"}, "limits": [{"limit": 1000, "window": "366d", "algorithm": "fixed_window"}, {"limit": 1000, "window": "366d"}]}]}`

// stage is a backend, and a node with two workers. The test controls its time and its callouts.
// Client i is connected to worker i.
type stage struct {
	t       *testing.T
	backend string
	clock   *fakeClock
	customs *customs
	proxy   *proxyNode
	clients [2]*http.Client
	traffic *traffic
}

func newStage(t *testing.T) *stage {
	clock := newClock()
	s := &stage{t: t, backend: serveBy(t, clock), clock: clock, customs: newCustoms()}
	s.startNode()
	return s
}

// startNode starts a node, after the previous node if there was one.
func (s *stage) startNode() {
	t := s.t
	t.Helper()
	proxy := startProxy(t, nodeConfig{clock: s.clock, backend: s.backend, configuration: thousand},
		host.ProxyConfig{CalloutTransport: s.customs, ManualTicks: true, FailurePolicy: host.FailReload})
	before := s.traffic
	s.proxy, s.traffic = proxy, newTraffic(1, proxy.url())
	s.traffic.charged = true
	if before != nil {
		s.traffic.admitted = before.admitted
	}
	for i := range s.clients {
		s.clients[i] = client(t)
		s.admit(i, "ann", 1) // its connection goes to the next worker
	}
}

// admit sends a user's requests, which must all pass.
func (s *stage) admit(worker int, user string, n int) {
	s.t.Helper()
	for range n {
		if status, _, err := s.traffic.ask(s.t, s.clients[worker], 0, user); err != nil || status != http.StatusOK {
			s.t.Fatalf("%s: got %d, %v", user, status, err)
		}
	}
}

func (s *stage) tick(d time.Duration) {
	s.t.Helper()
	s.clock.advance(s.t, d)
	if err := s.proxy.Tick(); err != nil && !errors.Is(err, host.ErrFailed) {
		s.t.Fatal(err)
	}
}

// settle lets time pass until the backend has counted the admitted hits, less some that are lost.
// Then it waits longer than any timeout, to see that the count stays.
func (s *stage) settle(gone int64) {
	s.t.Helper()
	want := 2 * (s.traffic.total() - gone)
	pass := func(d time.Duration) int64 {
		s.tick(d)
		s.proxy.Idle()
		return counted(s.t, s.backend, "default")
	}
	for rounds := 0; pass(100*time.Millisecond) != want; rounds++ {
		if rounds == 2000 {
			s.t.Fatalf("the backend has %d hits, want %d", counted(s.t, s.backend, "default"), want)
		}
	}
	for range 100 {
		pass(2 * time.Second)
	}
	must.Equal(s.t, counted(s.t, s.backend, "default"), want, "hits that the backend has later on")
}

// push lets worker 0 admit three hits of bob, and returns the held callout with them.
func (s *stage) push() *heldCallout {
	s.t.Helper()
	s.admit(0, "bob", 1)
	s.settle(0)
	s.admit(0, "bob", 1) // asks for what others have counted, which is known for a second
	s.customs.hold(true)
	s.admit(0, "bob", 2)
	s.tick(2 * time.Second)
	call := s.customs.next(s.t)
	s.customs.hold(false)
	return call
}

// trap ends the VM of worker 0 like a trap. The next request creates a new VM.
func (s *stage) trap() {
	s.t.Helper()
	s.proxy.Do(0, func(vm *host.VM, _ *host.Root) {
		must.Report(s.t, vm.Kill())
	})
}

// A worker's VM traps while its push is under way, or the node is closed. The push counts once if it
// reaches the backend, even later or twice, and is lost otherwise. All other hits of the key, of both
// workers, count as usual.
func TestTrappedInFlight(t *testing.T) {
	onWazeroAlone(t, func(t *testing.T) {
		for _, closed := range []bool{false, true} {
			for _, applied := range []bool{true, false} {
				t.Run(fmt.Sprintf("closed is %v, applied is %v", closed, applied), func(t *testing.T) {
					t.Parallel()
					s := newStage(t)
					call := s.push()
					if !closed {
						s.trap()
					} else if err := s.proxy.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
					gone := int64(0)
					if applied {
						call.deliver(t)
					} else {
						call.lose()
						gone = 3
					}
					if closed {
						s.startNode()
					}
					s.admit(1, "bob", 2)
					s.admit(0, "bob", 2)
					s.settle(gone)
					if applied {
						call.deliver(t)
					}
					s.admit(0, "bob", 1)
					s.settle(gone)
				})
			}
		}
	})
}

// paused lets a request in each worker wait for the backend, and returns their callouts. The client of
// worker 0 leaves when ctx ends.
func (s *stage) paused(ctx context.Context) (answers [2]chan error, calls []*heldCallout) {
	s.t.Helper()
	s.settle(0)
	s.customs.hold(true)
	for i, ctx := range []context.Context{ctx, s.t.Context()} {
		answers[i] = make(chan error, 1)
		// The cost is one that only the backend can allow.
		request := request(s.t, s.traffic.addresses[0], nil, "x-user", fmt.Sprint("carol", i), "x-cost", "500").WithContext(ctx)
		go func() {
			r, err := do(s.clients[i], request)
			if err == nil && r.status != http.StatusOK {
				err = fmt.Errorf("status %d", r.status)
			}
			answers[i] <- err
		}()
		calls = append(calls, s.customs.next(s.t))
	}
	s.customs.hold(false)
	return answers, calls
}

// ended waits for the end of a request.
func ended(t *testing.T, answer chan error) error {
	t.Helper()
	select {
	case err := <-answer:
		return err
	case <-time.After(hang):
		t.Fatal("a request hangs")
		return nil
	}
}

// Requests that wait for the backend all end: if it answers, if the callout is lost, if the
// worker's VM traps (the request then ends when the client leaves), if the configuration is
// replaced, and if the node is closed.
func TestPausedRequestsEnd(t *testing.T) {
	onWazeroAlone(t, func(t *testing.T) {
		for name, end := range map[string]func(t *testing.T, s *stage, calls []*heldCallout, leave func()) (wants [2]string){
			"answered": func(t *testing.T, _ *stage, calls []*heldCallout, _ func()) [2]string {
				for _, call := range calls {
					call.deliver(t)
				}
				return [2]string{}
			},
			"lost": func(_ *testing.T, _ *stage, calls []*heldCallout, _ func()) [2]string {
				for _, call := range calls {
					call.lose()
				}
				return [2]string{}
			},
			"never answered": func(_ *testing.T, s *stage, _ []*heldCallout, _ func()) [2]string {
				s.tick(61 * time.Second) // longer than backend.timeout
				return [2]string{}
			},
			"trapped": func(t *testing.T, s *stage, calls []*heldCallout, leave func()) [2]string {
				s.trap()
				calls[0].deliver(t)
				calls[1].deliver(t)
				s.admit(1, "dan", 1)
				leave()
				return [2]string{context.Canceled.Error(), ""}
			},
			"reconfigured": func(t *testing.T, s *stage, calls []*heldCallout, _ func()) [2]string {
				for _, changed := range []string{strings.Replace(thousand, `"60s"`, `"50s"`, 1), thousand} {
					must.OK(t, s.proxy.Configure([]byte(changed)))
				}
				s.admit(0, "dan", 1)
				for _, call := range calls {
					call.deliver(t)
				}
				return [2]string{}
			},
			"reconfigured and never answered": func(t *testing.T, s *stage, _ []*heldCallout, _ func()) [2]string {
				must.OK(t, s.proxy.Configure([]byte(strings.Replace(thousand, `"60s"`, `"50s"`, 1))))
				s.tick(61 * time.Second)
				return [2]string{}
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				answers, calls := s.paused(ctx)
				wants := end(t, s, calls, leave)
				for i, want := range wants {
					switch err := ended(t, answers[i]); {
					case err == nil && want != "", err != nil && (want == "" || !strings.Contains(err.Error(), want)):
						t.Errorf("worker %d: got %v, want %q", i, err, want)
					}
				}
				s.clients[0].CloseIdleConnections()
			})
		}
	})
}

// Configurations are replaced while requests wait and callouts are lost: no hit is lost with them,
// none counts twice, and no request hangs.
func TestReconfiguredUnderFaults(t *testing.T) {
	onEach(t, 2, func(t *testing.T, d driver) {
		backend := serve(t, "memory")
		way := newUnlucky(23, backend)
		proxies, addresses := nodes(t, d, 2, nodeConfig{configuration: costly, backend: through(t, way, backend)})
		f := newTraffic(20, addresses...)
		for round := range 12 {
			f.during(t, func() {
				changed := []string{
					strings.Replace(costly, `"500ms"`, `"400ms"`, 1),
					strings.Replace(costly, `0.02`, `0.05`, 1),
					costly,
				}[round%3]
				for _, p := range proxies {
					must.Report(t, p.configure(changed))
				}
			})
		}
		way.heal()
		agree(t, backend, "default", limitsPerHit, f.admitted)
		for _, p := range proxies {
			p.wantMetric(t, metricName("lost_hits_total"), 0)
		}
		t.Logf("%d hits admitted, %d requests refused, %d of %d callouts lost", f.total(), f.refused, way.lost.Load(), way.calls.Load())
	})
}
