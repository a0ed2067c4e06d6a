package redis_test

import (
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/must"
	"weir/internal/store/advancetest"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
)

// follow starts a replica of a server, and returns when the replica has all that the server has.
func follow(t *testing.T, master *goredis.Client) *redistest.Server {
	t.Helper()
	must.OK(t, master.ConfigSet(t.Context(), "repl-diskless-sync-delay", "0").Err())
	host, port, err := net.SplitHostPort(master.Options().Addr)
	must.OK(t, err)
	replica := redistest.Start(t, "--replicaof", host, port)
	conn := master.Conn()
	must.OK(t, conn.Set(t.Context(), "x", 1, 0).Err())
	if n, err := conn.Do(t.Context(), "wait", 1, 4000).Int(); n != 1 {
		t.Fatalf("%d replicas, error %v", n, err)
	}
	return replica
}

// With wait_replicas, a limit is listed after replicas have all near keys that a walk has found. A replica that lacks
// some and takes over would let senders advance their hits.
func TestWalkWaitsForReplicas(t *testing.T) {
	server := redistest.Start(t)
	f := newFleet(t, server)
	now := func() time.Time { return f.Now }
	f.Hit(600, 0, 10)
	replica := raw(t, follow(t, f.client))
	addr := between(t, server.Addr, func(command []string) {
		if command[0] == "scan" {
			must.Report(t, replica.Do(t.Context(), "replicaof", "no", "one").Err())
		}
	})
	f.Store = open(t, "redis://"+addr+"?wait_replicas=1&wait_timeout=2s", now)
	f.Push(1, func(p *wire.Push) {
		p.Advance, p.Takes = f.Word, []wire.Take{advancetest.Thousand(9999, 1, advancetest.Rule)}
	})
	near := must.Get(replica.ZCard(t.Context(), fleetKey+":near").Result())(t)
	contents, err := f.client.HGet(t.Context(), fleetKey, "contents").Result()
	if err != nil || near < 10 && strings.Contains(contents, `"Listed":true`) {
		t.Errorf("the replica has %d near keys of 10, and the fleet is %s, error %v", near, contents, err)
	}
}

// A server that has become a replica tells nobody that a part goes on.
func TestReplicasGiveNoParts(t *testing.T) {
	f := begin(t)
	f.Tells()
	f.Tells()
	must.OK(t, f.client.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
	f.Sequence++
	p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: f.Sequence, Floor: f.Sequence, Advance: f.Word}
	out, err := f.Store.Push(t.Context(), p, 1)
	must.Fails(t, err, "the sender hears %+v", out.Answer.Near)
}

// A backend's own clock may be wrong. Before it has heard Redis's time, it writes none to a fleet. Its sender still hears that
// the store has lists: else it would not ask soon again.
func TestFleetsGoByTheServersClock(t *testing.T) {
	server := redistest.Start(t)
	client, s := raw(t, server), open(t, server.URL(), nil)
	for sequence := range uint64(2) {
		p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: 1 + sequence, Floor: 1, Takes: []wire.Take{advancetest.Thousand(1, 1, advancetest.Rule)}}
		p.Advance = wire.Advance{Present: true, Wants: true, Settled: true}
		near := must.Get(s.Push(t.Context(), p, 1))(t).Answer.Near
		if n, err := client.Exists(t.Context(), fleetKey).Uint64(); n != sequence || err != nil || !near.Present {
			t.Errorf("after push %d there are %d fleets, error %v, and the sender hears %+v", sequence+1, n, err, near)
		}
	}
}

// A full Redis refuses hits, and tells totals.
func TestFullFleet(t *testing.T) {
	f := begin(t)
	must.OK(t, f.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for range 3 {
		f.Now = f.Now.Add(2 * time.Second)
		f.Hit(0, 1, 2)
	}
}
