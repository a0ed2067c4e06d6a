package convert_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/host"
	"weir/internal/must"
)

// delaying has each user's requests wait: ten go on a second, and 20 wait.
const delaying = nginxHead + `
    log_format delays '$msec|$request_time|$http_x_user|$http_x_number|$limit_req_status|$status';
    access_log DIR/access.log delays;
    limit_req_zone $http_x_user zone=users:1m rate=10r/s;
    server {
        listen unix:DIR/socket;
        limit_req zone=users burst=20;
        location / { empty_gif; }
    }
}
`

// delayedRequest is a request of a user's, who numbers them, and what became of it.
type delayedRequest struct {
	user, number  int
	at, waited    int64 // in milliseconds
	passed, edged bool  // edged: it came as room did
}

// TestNginxDelays sends bursts to nginx, and the same requests at the same times to what its configuration is
// converted to. The same requests pass, in the same order. nginx's clock for limits is another one than its
// log's: of a request that comes within a few milliseconds of the time at which another goes on, either
// may see the room first.
//
// How long requests wait in nginx and in Weir, on a busy machine or not, is logged.
func TestNginxDelays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := strings.ReplaceAll(delaying, "DIR", dir)
	document := converted(t, "nginx", text)
	socket, nginx := startNginx(t, dir, text)
	byNginx := sendBursts(t, socket)
	must.Report(t, nginx.End())
	requests, order := readDelays(t, filepath.Join(dir, "access.log"))
	simulated, simulatedOrder := replayDelays(t, document, requests)
	edges, refused := 0, 0
	for user := range bursts {
		ahead, sure := 0, true
		for i, r := range requests {
			if r.user != user {
				continue
			}
			w := simulated[i]
			if sure = sure && !r.edged; r.edged {
				edges++
			}
			if !r.passed {
				refused++
			}
			if r.passed != w.passed {
				if ahead--; r.passed {
					ahead += 2
				}
			}
			if r.passed != w.passed && sure || ahead < -1 || ahead > 1 {
				t.Fatalf("user %d: request %d, %+v: nginx lets it pass: %t, Weir: %t", user, r.number, r, r.passed, w.passed)
			}
		}
		if sure && !slices.Equal(order[user], simulatedOrder[user]) {
			t.Errorf("user %d: nginx's order is %v, Weir's %v", user, order[user], simulatedOrder[user])
		}
		for _, order := range [][]int{order[user], simulatedOrder[user]} {
			must.Equal(t, slices.IsSorted(order), true, "user %d: requests overtake others: %v", user, order)
		}
	}
	if refused < len(requests)/10 || refused > len(requests)/2 {
		t.Errorf("%d requests of %d were refused", refused, len(requests))
	}
	proxy := filepath.Join(dir, "weir")
	serveWeir(t, proxy, document)
	byWeir := sendBursts(t, proxy)
	t.Logf("%d requests, %d refused, %d came as room did", len(requests), refused, edges)
	t.Logf("nginx:             %s", byNginx)
	t.Logf("Weir:              %s", byWeir)
	t.Logf("Weir, clock faked: %s", waits(simulated))
}

// bursts are how many requests each user sends: at once, and in the middle between two that go on, once
// half of the first have.
var bursts = [...][2]int{{30, 15}, {25, 10}, {18, 14}, {40, 3}}

// waits says how long those of the requests that have passed have waited.
func waits(requests []delayedRequest) string {
	var all []int64
	for _, r := range requests {
		if r.passed {
			all = append(all, r.waited)
		}
	}
	if len(all) == 0 {
		return "none passed"
	}
	slices.Sort(all)
	return fmt.Sprintf("%d passed, waits p50 %d ms, p99 %d ms", len(all), all[len(all)/2], all[len(all)*99/100])
}

// sendBursts sends the bursts of all users, each request on a connection of its own, and says how long they
// waited.
func sendBursts(t *testing.T, socket string) string {
	t.Helper()
	var requests []delayedRequest
	answers := make(chan []delayedRequest)
	for user, sizes := range bursts {
		go func() {
			answered := make(chan delayedRequest, sizes[0]+sizes[1])
			n := 0
			burst := func(size int) {
				for range size {
					r := delayedRequest{user: user, number: n, at: time.Now().UnixMilli()}
					n++
					conn, err := net.Dial("unix", socket)
					if err == nil {
						_, err = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: shop.example\r\nX-User: %d\r\nX-Number: %d\r\nConnection: close\r\n\r\n", user, r.number)
					}
					if err != nil {
						t.Error(err)
						answered <- r
						continue
					}
					go func() {
						defer conn.Close()
						response, err := http.ReadResponse(bufio.NewReader(conn), nil)
						if err != nil {
							t.Errorf("user %d, request %d: %v", user, r.number, err)
						} else {
							r.passed = response.StatusCode == http.StatusOK
							_ = response.Body.Close()
						}
						r.waited = time.Now().UnixMilli() - r.at
						answered <- r
					}()
				}
			}
			var done []delayedRequest
			burst(sizes[0])
			for passed := 0; passed < 9 && len(done) < sizes[0]; {
				r := <-answered
				if done = append(done, r); r.passed {
					passed++
				}
			}
			<-time.After(50 * time.Millisecond)
			burst(sizes[1])
			for len(done) < n {
				done = append(done, <-answered)
			}
			answers <- done
		}()
	}
	for range bursts {
		requests = append(requests, <-answers...)
	}
	return waits(requests)
}

// readDelays reads what nginx has logged of requests, in the order of their coming, and of each user those
// that passed in the order in which they went on.
func readDelays(t *testing.T, path string) (requests []delayedRequest, order [len(bursts)][]int) {
	t.Helper()
	log := must.Get(os.ReadFile(path))(t)
	delayed := 0
	for line := range strings.Lines(string(log)) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		if len(fields) != 6 || fields[2] == "" {
			t.Fatalf("a line of nginx's log: %q", line)
		}
		ended, err1 := strconv.ParseInt(strings.Replace(fields[0], ".", "", 1), 10, 64)
		waited, err2 := strconv.ParseInt(strings.Replace(fields[1], ".", "", 1), 10, 64)
		user, err3 := strconv.Atoi(fields[2])
		number, err4 := strconv.Atoi(fields[3])
		must.OK(t, errors.Join(err1, err2, err3, err4))
		passed := fields[4] != "REJECTED"
		must.EqualOrEnd(t, passed, fields[5] == "200", "a line of nginx's log: %q", line)
		if fields[4] == "DELAYED" {
			delayed++
		}
		if requests = append(requests, delayedRequest{user: user, number: number, at: ended - waited, waited: waited, passed: passed}); passed {
			order[user] = append(order[user], number)
		}
	}
	slices.SortFunc(requests, func(a, b delayedRequest) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.user, b.user), cmp.Compare(a.number, b.number))
	})
	first := map[int]int64{}
	for i := range requests {
		r := &requests[i]
		if _, found := first[r.user]; !found {
			first[r.user] = r.at
		}
		after := r.at - first[r.user]
		r.edged = after > 90 && (after+10)%100 < 20
	}
	sum := 0
	for _, sizes := range bursts {
		sum += sizes[0] + sizes[1]
	}
	if len(requests) != sum || delayed == 0 {
		t.Fatalf("nginx has logged %d requests of %d, %d of them delayed", len(requests), sum, delayed)
	}
	return requests, order
}

// replayDelays has the compiled plugin decide requests by a configuration, each at its time, and of each user
// returns those that passed in the order in which they went on.
func replayDelays(t *testing.T, configuration []byte, requests []delayedRequest) (decided []delayedRequest, order [len(bursts)][]int) {
	t.Helper()
	now := requests[0].at
	var period time.Duration
	vm, root := started(t, configuration, host.VMConfig{OnTickPeriod: func(_ *host.Root, p time.Duration) { period = p }}, func() int64 { return now * 1e6 })
	type waiter struct {
		*host.Stream
		request int
	}
	var waiting []waiter
	decided = slices.Clone(requests)
	for next, ticked := 0, now; next < len(requests) || len(waiting) > 0; now++ {
		if now > requests[len(requests)-1].at+10_000 {
			t.Fatalf("%d requests wait for too long", len(waiting))
		}
		if period > 0 && now-ticked >= period.Milliseconds() {
			ticked = now
			must.OK(t, vm.Tick(root))
		}
		for ; next < len(requests) && requests[next].at <= now; next++ {
			s := must.Get(root.NewStream(host.StreamInfo{Source: "10.0.0.1:4711"}))(t)
			h := host.NewHeaders(":method", "GET", ":path", "/", ":authority", "shop.example", "x-user", strconv.Itoa(requests[next].user))
			must.Get(s.RequestHeaders(h, true))(t)
			waiting = append(waiting, waiter{s, next})
		}
		waiting = slices.DeleteFunc(waiting, func(w waiter) bool {
			if w.Paused(host.Request) {
				return false
			}
			d := &decided[w.request]
			if d.passed, d.waited = w.LocalReply() == nil, now-d.at; d.passed {
				order[d.user] = append(order[d.user], d.number)
			}
			w.Close()
			return true
		})
	}
	return decided, order
}

// serveWeir has a proxy listen on a socket, with the compiled plugin and a configuration, until the test ends.
func serveWeir(t *testing.T, socket string, configuration []byte) {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	to := must.Get(url.Parse(upstream.URL))(t)
	p := must.Get(host.NewProxy(t.Context(), host.ProxyConfig{
		Module: plugin(t), VMID: "weir", Plugin: host.Plugin{Name: "weir", RootID: "weir", Configuration: configuration}, Upstream: to,
	}))(t)
	l := must.Get(net.Listen("unix", socket))(t)
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	t.Cleanup(func() { must.Report(t, errors.Join(p.Close(context.WithoutCancel(t.Context())), <-served)) })
}
