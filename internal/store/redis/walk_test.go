package redis_test

import (
	"bufio"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store/advancetest"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
)

// A server that starts again has its keys in another order. A walk that was under way begins again.
func TestWalkAndRestart(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	f := newFleet(t, server)
	const near = 4000
	f.Hit(600, 0, near)
	limits, keys := 0, 0
	for i := range 60 {
		if i == 4 {
			server.Restart()
		}
		n := f.Push(1, func(p *wire.Push) {
			if p.Advance = f.Word; i == 0 {
				p.Takes = []wire.Take{advancetest.Thousand(9999, 1, advancetest.Rule)}
			}
		}).Near
		limits, keys = limits+n.LimitCount(), keys+n.KeyCount()
		f.Hear(n)
	}
	noted, err := f.client.ZCard(t.Context(), fleetKey+":near").Result()
	if err != nil || limits == 0 || noted != near {
		t.Errorf("%d limits are listed, and %d keys near, of %d; error %v", limits, noted, near, err)
	}
}

// A backend looks through the server's keys for a namespace at a time. Others' pushes would wait for the looks of many.
func TestWalksComeOneByOne(t *testing.T) {
	server := redistest.Start(t)
	var s *redis.Store
	push := func(namespace string) {
		p := &wire.Push{Namespace: namespace, Sender: 1, Sequence: 1, Floor: 1, Advance: wire.Advance{Present: true, Wants: true}, Takes: []wire.Take{advancetest.Thousand(1, 1, advancetest.Rule)}}
		_, err := s.Push(t.Context(), p, 1)
		must.Report(t, err)
	}
	scans := atomic.Int64{}
	addr := between(t, server.Addr, func(command []string) {
		if command[0] != "scan" || scans.Add(1) != 1 {
			return
		}
		push("other")
		must.Equal(t, scans.Load(), 1, "looks at once")
	})
	s = open(t, "redis://"+addr, func() time.Time { return time.Unix(1_767_571_260, 0) })
	push("ns")
	push("other")
	must.Equal(t, scans.Load(), 2, "looks")
}

// A sender may fall silent while a backend looks whether any sender may go by a limit that nobody asks for. The limit is not
// forgotten then.
func TestReviewIsOneStep(t *testing.T) {
	f := begin(t)
	f.Word.Settled = false // so Redis never notes that the sender has heard that the limit leaves the list
	for range 8 {
		f.Now = f.Now.Add(15 * time.Minute)
		for range 3 {
			f.Now = f.Now.Add(time.Second)
			f.Tells()
		}
	}
	contents := func() string {
		return must.Get(f.client.HGet(t.Context(), fleetKey, "contents").Result())(t)
	}
	if is := contents(); !strings.Contains(is, `"Listed":false,"Unlisted":1`) {
		t.Fatalf("the fleet is %s", is)
	}
	f.Now = f.Now.Add(11 * time.Second)
	now, later := f.Now, f.Now.Add(6*time.Second)
	sweeper := open(t, "redis://"+f.client.Options().Addr, func() time.Time { return later })
	sweeps := atomic.Int64{}
	addr := between(t, f.client.Options().Addr, func(command []string) {
		// Other scripts get all keys of the fleet.
		if slices.Contains(command, fleetKey+":heard") && !slices.Contains(command, fleetKey+":divisors") && sweeps.Add(1) == 1 {
			// When this is answered, the server has read what came before.
			if n, err := f.client.ZCard(t.Context(), fleetKey+":silent").Result(); n != 0 || err != nil {
				t.Errorf("%d senders are silent, error %v", n, err)
			}
			p := &wire.Push{Namespace: "ns", Sender: 3, Sequence: 1, Floor: 1, Takes: []wire.Take{advancetest.Thousand(1, 1, advancetest.Rule)}}
			_, err := sweeper.Push(t.Context(), p, 1)
			must.Report(t, err)
		}
	})
	reviewer := open(t, "redis://"+addr, func() time.Time { return now })
	p := &wire.Push{Namespace: "ns", Sender: 2, Sequence: 1, Floor: 1, Advance: wire.Advance{Present: true}}
	must.Get(reviewer.Push(t.Context(), p, 1))(t)
	if n, err := f.client.ZCard(t.Context(), fleetKey+":silent").Result(); n != 1 || sweeps.Load() == 0 || err != nil {
		t.Fatalf("%d senders are silent, in %d reviews, error %v", n, sweeps.Load(), err)
	}
	must.Lacks(t, contents(), `"Limits":[]`, "fleet")
}

// between returns the address of a proxy before a server. It passes commands on one by one, and calls before with each.
func between(t *testing.T, server string, before func(command []string)) string {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var group sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		group.Wait()
	})
	group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", server)
			if err != nil {
				t.Error(err)
				return
			}
			group.Go(func() {
				_, _ = io.Copy(client, there)
				_ = client.Close()
			})
			group.Go(func() {
				in := bufio.NewReader(client)
				for command, raw, err := readCommand(in); err == nil; command, raw, err = readCommand(in) {
					before(command)
					if _, err := there.Write(raw); err != nil {
						break
					}
				}
				_ = there.Close()
			})
		}
	})
	return listener.Addr().String()
}

// readCommand reads a command, and what it was on the wire.
func readCommand(in *bufio.Reader) (command []string, raw []byte, err error) {
	number := func() (n int) {
		var line string
		if line, err = in.ReadString('\n'); err == nil {
			raw = append(raw, line...)
			n, err = strconv.Atoi(strings.TrimSpace(line[1:]))
		}
		return n
	}
	for n := number(); err == nil && len(command) < n; {
		part := make([]byte, number()+len("\r\n"))
		if err == nil {
			_, err = io.ReadFull(in, part)
		}
		raw = append(raw, part...)
		command = append(command, strings.TrimSuffix(string(part), "\r\n"))
	}
	return command, raw, err
}
