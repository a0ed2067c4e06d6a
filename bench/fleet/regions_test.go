package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/ratelimit"
)

var (
	realOcean     = flag.Duration("ocean", 0, "measure two real regions with a round trip of this time to their parent; 0 for none")
	realPartition = flag.Duration("partition", 30*time.Second, "for how long the regions are cut off, for -ocean")
)

// ocean carries bytes to a server and back, each half a round trip late, unless it is cut.
type ocean struct {
	net.Listener
	to    string
	half  time.Duration
	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

// cross returns the address of an ocean in front of a server.
func cross(t *testing.T, to string, trip time.Duration) *ocean {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &ocean{Listener: l, to: to, half: trip / 2, conns: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = l.Close()
		o.set(true)
	})
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			o.mu.Lock()
			if o.cut {
				o.mu.Unlock()
				_, _ = near.Close(), far.Close()
				continue
			}
			o.conns[near], o.conns[far] = true, true
			o.mu.Unlock()
			go o.carry(near, far)
			go o.carry(far, near)
		}
	}()
	return o
}

// set cuts all connections and refuses new connections, or lets them be again.
func (o *ocean) set(cut bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cut = cut; cut {
		for c := range o.conns {
			_ = c.Close()
		}
		clear(o.conns)
	}
}

// carry ends when either side does.
func (o *ocean) carry(from, to net.Conn) {
	type part struct {
		due   time.Time
		bytes []byte
	}
	sent := make(chan part, 1<<14)
	go func() {
		defer close(sent)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			if n > 0 {
				sent <- part{time.Now().Add(o.half), b[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range sent {
		<-time.After(time.Until(p.due))
		if _, err := to.Write(p.bytes); err != nil {
			break
		}
	}
	_, _ = from.Close(), to.Close()
	for range sent { // the reader ends
	}
}

// TestRealRegions measures what clients of two regions wait that are an ocean away from their parent,
// beside clients of a backend without a parent, and then cuts the ocean for a while. In the end the
// parent has exactly the hits that passed, and none above a limit. Its waits are a measurement and no
// test: go test ./bench/fleet -run TestRealRegions -ocean 150ms -v.
func TestRealRegions(t *testing.T) {
	if *realOcean == 0 {
		return
	}
	binary := filepath.Join(t.TempDir(), "weir")
	if out, err := exec.Command("go", "build", "-o", binary, "weir/cmd/weir").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	parent := serve(t, binary, "memory")
	at, err := url.Parse(parent.url)
	if err != nil {
		t.Fatal(err)
	}
	link := cross(t, at.Host, *realOcean)
	var sides []*side
	for _, name := range []string{"region 1", "region 2", "no parent"} {
		var flags []string
		if name != "no parent" {
			flags = []string{"--parent", "http://" + link.Addr().String()}
		}
		sides = append(sides, newSide(t, name, serve(t, binary, "file", flags...)))
	}
	run := func(what string, span time.Duration) {
		t.Helper()
		var group sync.WaitGroup
		for _, s := range sides {
			group.Go(func() { s.run(t, span) })
		}
		group.Wait()
		for _, s := range sides {
			t.Logf("%s, %s: of %d requests p50 %.1f ms, p99 %.1f ms, longest %.1f ms; %d over the ocean", what, s.name,
				s.asked, s.waits.quantile(0.5), s.waits.quantile(0.99), s.waits.quantile(1), s.over(*realOcean))
		}
	}
	run("at first", 10*time.Second)
	run("connected", *realSpan)
	link.set(true)
	run("cut off", *realPartition)
	link.set(false)
	run("connected again", 10*time.Second)

	few := int64(0)
	for _, s := range sides {
		s.close(t)
	}
	for _, s := range sides[:2] {
		s.serving.end()
		few += s.few.Load()
	}
	if few > fewHits {
		t.Errorf("%d hits passed of a limit of %d", few, fewHits)
	}
	want := sides[0].all.Load() + sides[1].all.Load() + few
	// The parent counts all hits of a key, and those of each region.
	if got := parent.hits(); got != 2*want {
		t.Errorf("the parent's counters have %d hits together, want twice the %d that passed", got, want)
	}
	t.Logf("%d hits passed and are at the parent, %d of a limit of %d", want, few, fewHits)
}

// A side is the programs that ask a backend.
type side struct {
	name       string
	serving    *serving
	namespaces []*ratelimit.Namespace
	clients    []*ratelimit.Client
	all, few   atomic.Int64 // hits that passed, of keys far from their limit and of the key that is not

	mu    sync.Mutex
	asked int // of keys far from their limit
	waits waits
}

const (
	programs = 20
	fewHits  = 2000
)

func newSide(t *testing.T, name string, s *serving) *side {
	t.Helper()
	all := &side{name: name, serving: s}
	const year = 366 * 24 * time.Hour
	for range programs {
		client, err := ratelimit.Dial(s.url, ratelimit.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		namespace, err := ratelimit.NewNamespace(ratelimit.Options{
			Name: "fleet", Backend: client, Timeout: time.Second, Capacity: 1 << 14, OnBackendFailure: ratelimit.FailDeny,
			Rules: []ratelimit.Rule{
				{Name: "far", Limits: []ratelimit.Limit{ratelimit.FixedWindow(1_000_000, year)}},
				{Name: "few", Limits: []ratelimit.Limit{ratelimit.FixedWindow(fewHits, year)}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		all.clients, all.namespaces = append(all.clients, client), append(all.namespaces, namespace)
	}
	return all
}

// run sends ten requests a second of each program. Every fourth is followed by a request for a key that all share.
func (s *side) run(t *testing.T, span time.Duration) {
	s.asked, s.waits = 0, waits{}
	end := time.Now().Add(span)
	var group sync.WaitGroup
	for i, namespace := range s.namespaces {
		far, err := namespace.Limiter("far")
		if err != nil {
			t.Error(err)
			return
		}
		few, err := namespace.Limiter("few")
		if err != nil {
			t.Error(err)
			return
		}
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			keys := rand.NewZipf(random, 1.2, 1, 99) // the first request for a key in a region waits
			for at, n := time.Now(), 0; ; n++ {
				if at = at.Add(time.Duration(random.ExpFloat64() * float64(time.Second) / 10)); at.After(end) {
					return
				}
				<-time.After(time.Until(at))
				began := time.Now()
				passed, err := far.Allow(t.Context(), fmt.Sprint(keys.Uint64()))
				took := time.Since(began)
				if err == nil && passed {
					s.all.Add(1)
				}
				s.mu.Lock()
				s.asked++
				s.waits.add(int64(took))
				s.mu.Unlock()
				if n%4 > 0 {
					continue
				}
				if passed, err := few.Allow(t.Context(), "one"); err == nil && passed {
					s.few.Add(1)
				}
			}
		})
	}
	group.Wait()
}

// over is how many requests waited for so long.
func (s *side) over(trip time.Duration) (n int) {
	for tenths, count := range s.waits {
		if time.Duration(tenths)*time.Millisecond/10 >= trip {
			n += count
		}
	}
	return n
}

// close brings the last hits to the backend, and gives back what is leased.
func (s *side) close(t *testing.T) {
	t.Helper()
	for i, namespace := range s.namespaces {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := errors.Join(namespace.Close(ctx), s.clients[i].Close()); err != nil {
			t.Error(err)
		}
		cancel()
	}
}

// hits is the sum of all counters.
func (s *serving) hits() (sum int64) {
	s.t.Helper()
	answer, err := http.Get(s.url + "/v1/counters?namespace=fleet")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	for decoder := json.NewDecoder(answer.Body); ; {
		var line struct {
			Windows []struct {
				Hits int64 `json:"hits"`
			} `json:"windows"`
		}
		if err := decoder.Decode(&line); errors.Is(err, io.EOF) {
			return sum
		} else if err != nil {
			s.t.Fatal(err)
		}
		for _, w := range line.Windows {
			sum += w.Hits
		}
	}
}
