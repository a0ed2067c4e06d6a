package e2e

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/internal/host"
	"weir/internal/nightly"
)

// TestDelays has requests wait in a proxy with two workers, and lets them go in the order of their coming, one
// each tenth of a second. What is above the queue is refused at once.
func TestDelays(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		const queue = 5
		clock := newClock()
		n := d.node(t, nodeConfig{clock: clock, configuration: `{"rules": [{"name": "r", "delay": {"most": "30s", "queue": 5},
			"limits": [{"limit": 10, "window": "1s", "algorithm": "token_bucket", "burst": 1}]}]}`})
		type answered struct {
			number int
			reply  reply
			err    error
		}
		answers := make(chan answered, queue)
		ask(t, client(t), n.url()).want(t, "x-ratelimit-delayed:")
		for i := range queue {
			client := client(t)
			go func() {
				r, err := send(t, client, n.url())
				answers <- answered{i, r, err}
			}()
			waits := metricName("delayed_requests_total")
			for deadline := time.Now().Add(hang); n.metric(t, waits) <= int64(i); {
				if time.Now().After(deadline) {
					t.Fatalf("request %d does not wait", i)
				}
			}
		}
		if r := ask(t, client(t), n.url()); r.status != http.StatusTooManyRequests {
			t.Errorf("status %d with a full queue", r.status)
		}
		for i := range queue {
			clock.advance(t, 100*time.Millisecond)
			got := <-answers
			if got.err != nil || got.reply.status != http.StatusOK || got.number != i {
				t.Fatalf("request %d is answered in the place of %d: %d, %v", got.number, i, got.reply.status, got.err)
			}
			got.reply.want(t, fmt.Sprintf("x-ratelimit-delayed: %d", 100*(i+1)))
		}
		select {
		case got := <-answers:
			t.Errorf("request %d is answered twice", got.number)
		default:
		}
	})
}

// smooth lets ten requests pass a second, and 20 wait, as nginx's limit_req does with rate=10r/s
// and burst=20.
const smooth = `{"rules": [{"name": "r", "delay": {"most": "2s", "queue": 20},
	"limits": [{"limit": 10, "window": "1s", "algorithm": "token_bucket", "burst": 1}]}]}`

// waited is how long an answer took, and whether it was let pass.
type waited struct {
	passed bool
	took   time.Duration
}

// burst sends requests at the same time, each by a connection that is there.
func burst(t *testing.T, address string, requests int) []waited {
	t.Helper()
	all := make([]waited, requests)
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	ready.Add(requests)
	for i := range requests {
		done.Go(func() {
			client := client(t)
			ready.Done()
			<-start
			before := time.Now()
			r, err := send(t, client, address)
			all[i] = waited{err == nil && r.status < http.StatusMultipleChoices, time.Since(before)}
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
	slices.SortFunc(all, func(a, b waited) int { return cmp.Compare(a.took, b.took) })
	return all
}

// paced wants of a burst's requests as many to pass as there is room for, and none before its turn.
// It returns how long they waited.
func paced(t *testing.T, of string, all []waited, passes int) (took []time.Duration) {
	t.Helper()
	for _, w := range all {
		if w.passed {
			took = append(took, w.took)
		}
	}
	if len(took) != passes {
		t.Errorf("%s: %d of %d pass, want %d", of, len(took), len(all), passes)
	}
	for i, d := range took {
		// The first of a burst may have come a little before the others.
		if least := time.Duration(i)*100*time.Millisecond - 20*time.Millisecond; d < least {
			t.Errorf("%s: request %d passes after %v", of, i, d)
		}
	}
	return took
}

// TestDelaysLikeNginx sends the same bursts through nginx's limit_req and through a rule with
// delay: as many requests pass, at the same pace.
func TestDelaysLikeNginx(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		dir := t.TempDir()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := listener.Addr().String()
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		configuration := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/error.log crit; events {}
			http { access_log off; client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;
			limit_req_zone $server_name zone=all:1m rate=10r/s;
			server { listen %[2]s; location / { limit_req zone=all burst=20; empty_gif; } } }`, dir, address)
		file := filepath.Join(dir, "nginx.conf")
		if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
			t.Fatal(err)
		}
		path, err := exec.LookPath("nginx")
		if err != nil {
			path = "/usr/sbin/nginx"
		}
		nginx := exec.Command(path, "-c", file, "-p", dir)
		if err := nginx.Start(); err != nil {
			t.Fatalf("%v: scripts/test-dependencies installs nginx", err)
		}
		t.Cleanup(func() {
			_ = nginx.Process.Kill()
			_ = nginx.Wait()
		})
		for deadline := time.Now().Add(hang); ; <-time.After(10 * time.Millisecond) {
			if c, err := net.Dial("tcp", address); err == nil {
				_ = c.Close()
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("nginx does not listen")
			}
		}
		n := d.node(t, nodeConfig{configuration: smooth})
		var theirs, ours []time.Duration
		for range nightly.Or(5, 1) {
			var group sync.WaitGroup
			var a, b []waited
			group.Go(func() { a = burst(t, "http://"+address, 30) })
			group.Go(func() { b = burst(t, n.url(), 30) })
			group.Wait()
			theirs = append(theirs, paced(t, "nginx", a, 21)...)
			ours = append(ours, paced(t, "Weir", b, 21)...)
			<-time.After(200 * time.Millisecond) // so that the next burst finds room
		}
		slices.Sort(theirs)
		slices.Sort(ours)
		at := func(all []time.Duration, percent int) time.Duration {
			return all[min(len(all)-1, len(all)*percent/100)].Round(time.Millisecond)
		}
		t.Logf("p50 %v and %v, p99 %v and %v, of nginx and of Weir", at(theirs, 50), at(ours, 50), at(theirs, 99), at(ours, 99))
	})
}

// TestDelaysAreDrained replaces the configuration while requests wait. All of them have room in the
// end, in their order, though nobody comes to the listener that they wait in.
func TestDelaysAreDrained(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		n := d.node(t, nodeConfig{configuration: smooth})
		const waiting = 8
		answers := make(chan waited, waiting+1)
		for range waiting + 1 {
			go func() {
				r, err := send(t, client(t), n.url())
				answers <- waited{passed: err == nil && r.status == http.StatusOK}
			}()
		}
		for deadline := time.Now().Add(hang); n.metric(t, metricName("delayed_requests_total")) < waiting; {
			if time.Now().After(deadline) {
				t.Fatal("no requests wait")
			}
		}
		if err := n.configure(`{"rules": [{"name": "other", "limits": [{"limit": 1000, "window": "1s"}]}]}`); err != nil {
			t.Fatal(err)
		}
		ask(t, client(t), n.url()).want(t, "x-ratelimit-limit: 1000")
		for i := range waiting + 1 {
			if w := <-answers; !w.passed {
				t.Errorf("request %d does not pass", i)
			}
		}
		n.idle(t)
	})
}

// TestDelayedMemory has as many requests wait for room as may in a process. What the VM and the
// shared data take for each is told in docs/configuration.md.
func TestDelayedMemory(t *testing.T) {
	onWazeroAlone(t, func(t *testing.T) {
		const requests = 10_000
		process := host.NewProcess(host.ProcessConfig{Clock: newClock().now})
		w := newWorker(t, process, `{"rules": [{"name": "r", "key": [{"header": "x-user"}], "delay": {"most": "5m", "queue": 10000},
			"limits": [{"limit": 100, "window": "1s", "algorithm": "token_bucket", "burst": 1}]}]}`)
		memory := func(waiting bool) int64 {
			for i := range requests + 1 {
				stream, err := w.root.NewStream(host.StreamInfo{Source: "10.0.0.1:1", Protocol: "HTTP/1.1"})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(stream.Close)
				user := "ann"
				if !waiting {
					user = fmt.Sprint(i)
				}
				action, err := stream.RequestHeaders(host.NewHeaders(":method", "GET", ":path", "/", ":authority", "shop.example", "x-user", user), true)
				if err != nil || (action == host.Pause) != (waiting && i > 0) {
					t.Fatalf("request %d: action %v, %v", i, action, err)
				}
			}
			return w.vm.MemorySize()
		}
		passing := memory(false)
		waits := memory(true)
		each := (waits - passing) / requests
		t.Logf("%d requests: %.1f MiB, and %.1f when as many wait besides: %d bytes each", requests, float64(passing)/(1<<20), float64(waits)/(1<<20), each)
		if each > 1024 {
			t.Errorf("a request that waits takes %d bytes", each)
		}
	})
}
