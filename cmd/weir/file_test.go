package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// served is a weir serve with its store in a file. It can be killed, and started again with the
// same file.
type served struct {
	*commandtest.Process
	t       *testing.T
	store   string
	address string
	more    []string // arguments
}

// serveStore starts a weir serve, and ends it at the test's end.
func serveStore(t *testing.T, store string, more ...string) *served {
	t.Helper()
	s := &served{t: t, store: store, address: "127.0.0.1:0", more: more}
	s.start()
	return s
}

func (s *served) start() {
	s.t.Helper()
	var address string
	address, s.Process = startServe(s.t, append([]string{"--listen", s.address, "--store", s.store}, s.more...), nil)
	if s.address != address { // pushers read the address after the first start
		s.address = address
	}
}

// Kill kills the process, whose address nobody else gets.
func (s *served) Kill(t testing.TB) {
	t.Helper()
	s.Process.Kill(t)
	commandtest.Hold(t, s.address)
}

// end ends the process like an operator does.
func (s *served) end() {
	s.t.Helper()
	must.Reportf(s.t, s.End(), "%s", s.Printed())
}

func (s *served) url(path string) string { return "http://" + s.address + path }

// counted returns the hits of all counters, by key.
func (s *served) counted() map[wire.ID]int64 {
	s.t.Helper()
	status, text := ask(s.t, "GET", s.url("/v1/counters?namespace=shop"), "", nil)
	if status != http.StatusOK {
		s.t.Fatalf("counters: status %d: %s", status, text)
	}
	sums := map[wire.ID]int64{}
	for decoder := json.NewDecoder(strings.NewReader(text)); decoder.More(); {
		var line store.CounterLine
		must.OK(s.t, decoder.Decode(&line))
		id := must.Get(hex.DecodeString(line.ID))(s.t)
		for _, w := range line.Windows {
			sums[wire.ID(id)] += w.Hits
		}
	}
	return sums
}

// longCounter returns a key's counter with a window that does not end.
func longCounter(id wire.ID) wire.LimitCounter {
	return wire.LimitCounter{ID: id, Kind: uint8(window.FixedWindow), WidthMillis: wire.MaxWidthMillis}
}

func hits(id wire.ID, n int64) wire.Item {
	c := longCounter(id)
	return wire.Item{LimitCounter: c, Newest: store.NumberAt(c, uint64(time.Now().UnixNano())), Hits: []int64{n}}
}

// pusher pushes like a node: one push after the other, each until it is answered.
type pusher struct {
	to       *served
	id       uint64
	sequence uint64
	failed   int64
	// counted has the hits that it has pushed or was granted, by key.
	counted map[wire.ID]int64
}

func newPusher(to *served, id uint64) *pusher {
	return &pusher{to: to, id: id, counted: map[wire.ID]int64{}}
}

func (p *pusher) next(items []wire.Item, takes []wire.Take) *wire.Push {
	p.sequence++
	return &wire.Push{Namespace: "shop", Sender: p.id, Sequence: p.sequence, Floor: p.sequence, Items: items, Takes: takes}
}

// try sends a push once, and records the answer.
func (p *pusher) try(client *http.Client, push *wire.Push) (status int, err error) {
	response, err := client.Post(p.to.url(wire.PushPath), wire.ContentType, bytes.NewReader(wire.AppendPush(nil, push)))
	if err != nil {
		return 0, err
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil || response.StatusCode != http.StatusOK {
		return response.StatusCode, err
	}
	answer, err := wire.DecodeAnswer(body)
	if err != nil {
		return response.StatusCode, err
	}
	for _, item := range push.Items {
		p.counted[item.ID] += item.Hits[0]
	}
	for i, grant := range answer.Grants {
		p.counted[push.Takes[i].Rooms[0].ID] += int64(grant.Units)
	}
	return response.StatusCode, nil
}

// push sends a push until it is answered.
func (p *pusher) push(client *http.Client, push *wire.Push) {
	for {
		if status, err := p.try(client, push); err == nil && status == http.StatusOK {
			return
		}
		p.failed++
	}
}

func add(sums, more map[wire.ID]int64) {
	for id, n := range more {
		sums[id] += n
	}
}

// senders starts a number of pushers for each backend, until stop is called, which returns their
// counted hits. They take hits of a limit, and if leases is true some of them as leases.
func senders(to []*served, each int, limit uint64, leases bool) (answered *atomic.Int64, stop func() (counted map[wire.ID]int64, failed int64)) {
	answered = new(atomic.Int64)
	var group sync.WaitGroup
	over := make(chan struct{})
	var all []*pusher
	for i, backend := range to {
		for j := range each {
			p := newPusher(backend, uint64(1000*i+j+1))
			all = append(all, p)
			group.Go(func() {
				random := rand.New(rand.NewPCG(p.id, 3))
				client := &http.Client{Transport: &http.Transport{}}
				defer client.CloseIdleConnections()
				for {
					select {
					case <-over:
						return
					default:
					}
					room := wire.Room{LimitCounter: longCounter(wire.ID{1, byte(random.IntN(8))}), Limit: limit, Cost: 1}
					p.push(client, p.next(
						[]wire.Item{hits(wire.ID{0, byte(random.IntN(8))}, 1+random.Int64N(9))},
						[]wire.Take{{Least: 1, Most: 1 + random.Uint64N(5), Rooms: []wire.Room{room}, Lease: leases && random.IntN(2) == 0}}))
					answered.Add(1)
				}
			})
		}
	}
	return answered, func() (map[wire.ID]int64, int64) {
		close(over)
		group.Wait()
		counted, failed := map[wire.ID]int64{}, int64(0)
		for _, p := range all {
			add(counted, p.counted)
			failed += p.failed
		}
		return counted, failed
	}
}

// Senders push, and take hits of limits that are nearly used up, while weir serve is killed again
// and again. It has exactly the pushed and the granted hits, and no more than the limits.
func TestServeFileKilled(t *testing.T) {
	const kills, limit = 3, 300
	backend := serveStore(t, "file:"+filepath.Join(t.TempDir(), "weir.db"))
	answered, stop := senders([]*served{backend}, 8, limit, false)
	for range kills {
		for n := answered.Load(); answered.Load() < n+200; {
			runtime.Gosched()
		}
		backend.Kill(t)
		backend.start()
	}
	want, failed := stop()
	must.Same(t, backend.counted(), want, "the backend has")
	for id, n := range want {
		if id[0] == 1 && n > limit {
			t.Errorf("%d hits were granted of a limit of %d", n, limit)
		}
	}
	must.AtLeast(t, failed, 1, "pushes that have failed")
	t.Logf("%d pushes answered, %d attempts failed", answered.Load(), failed)
}

// disk is a small disk, which fills up.
type disk struct {
	path       string
	fill, free func(pid int)
}

// smallDisk is a separate file system, if the test may mount one. Otherwise it limits the size of
// the process's files.
func smallDisk(t *testing.T) disk {
	t.Helper()
	d := disk{path: t.TempDir()}
	must := func(err error) {
		t.Helper()
		must.OK(t, err)
	}
	if err := unix.Mount("weir", d.path, "tmpfs", 0, "size=1m"); err != nil {
		t.Logf("mount: %v; a bound on the size of files has to do", err)
		bound := func(pid int, most uint64) {
			must(unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: most, Max: unix.RLIM_INFINITY}, nil))
		}
		d.fill = func(pid int) { bound(pid, 64<<10) }
		d.free = func(pid int) { bound(pid, unix.RLIM_INFINITY) }
		return d
	}
	t.Cleanup(func() { must(unix.Unmount(d.path, 0)) })
	ballast := filepath.Join(d.path, "ballast")
	d.fill = func(int) {
		file, err := os.Create(ballast)
		must(err)
		for err = nil; err == nil; {
			_, err = file.Write(make([]byte, 4096))
		}
		if must(file.Close()); !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	d.free = func(int) { must(os.Remove(ballast)) }
	return d
}

// While the disk is full pushes fail, and readiness reports it. When there is room again everything
// recovers, and each push counts once.
func TestServeFileFullDisk(t *testing.T) {
	d := smallDisk(t)
	backend := serveStore(t, "file:"+filepath.Join(d.path, "weir.db"))
	p, keys := newPusher(backend, 1), 0
	more := func() *wire.Push {
		var items []wire.Item
		for range 100 {
			keys++
			items = append(items, hits(wire.ID{byte(keys), byte(keys >> 8)}, 1))
		}
		return p.next(items, nil)
	}
	try := func(push *wire.Push) int {
		t.Helper()
		return must.Get(p.try(envoytest.Client, push))(t)
	}
	ready := func(want int) {
		t.Helper()
		for { // a result may be cached for a second
			status, text := ask(t, "GET", backend.url("/readyz"), "", nil)
			if status != want {
				continue
			}
			if want != http.StatusOK && !strings.Contains(text, "the store takes no hits") {
				t.Errorf("readyz: %s", text)
			}
			return
		}
	}
	must.EqualOrEnd(t, try(more()), http.StatusOK, "status")
	ready(http.StatusOK)
	d.fill(backend.Cmd.Process.Pid)
	refused := more()
	for try(refused) == http.StatusOK {
		refused = more()
	}
	if line := backend.Wait(t, "(.*)"); !strings.Contains(line, "the store fails") ||
		!strings.Contains(line, unix.ENOSPC.Error()) && !strings.Contains(line, unix.EFBIG.Error()) {
		t.Errorf("log: %s", line)
	}
	ready(http.StatusServiceUnavailable)
	other := newPusher(backend, 2)
	late := other.next([]wire.Item{hits(wire.ID{1}, 5)}, nil)
	for range 3 {
		if status, err := other.try(envoytest.Client, late); status != http.StatusServiceUnavailable || err != nil {
			t.Errorf("another sender: status %d, %v", status, err)
		}
		must.Equal(t, try(refused), http.StatusServiceUnavailable, "status")
	}
	wantStatus(t, "GET", backend.url("/livez"), "", nil, http.StatusOK)

	d.free(backend.Cmd.Process.Pid)
	must.Equal(t, try(refused), http.StatusOK, "status, though there is room")
	if status, err := other.try(envoytest.Client, late); status != http.StatusOK || err != nil {
		t.Errorf("another sender: status %d, %v, though there is room", status, err)
	}
	ready(http.StatusOK)
	want := p.counted
	add(want, other.counted)
	for _, moment := range []string{"now", "after a crash"} {
		if got := backend.counted(); !maps.Equal(got, want) {
			t.Errorf("%s: the backend has %d counters, want %d, each with a hit for each push", moment, len(got), len(want))
		}
		backend.Kill(t)
		backend.start()
	}
}

// A second process with the same file ends at once with the reason. A killed process does not block
// the file.
func TestServeFileTwice(t *testing.T) {
	backend := serveStore(t, "file:"+filepath.Join(t.TempDir(), "weir.db"))
	executeAll(t, nil, []lineTest{
		{"serve --listen 127.0.0.1:0 --store " + backend.store, 1, "", ": another process has it open: only one weir serve can use a file at a time"},
	})
	backend.Kill(t)
	backend.start()
}
