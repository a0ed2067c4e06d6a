package redis_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
	"weir/window"
)

// With any policy except noeviction, Redis evicts a full counter when its memory is full. Then
// twice the limit passes, and Evicts reports it. With noeviction Redis refuses hits.
func TestPoliciesThatEvict(t *testing.T) {
	server := redistest.Start(t)
	counters, client := open(t, server.URL(), nil), raw(t, server)
	for _, policy := range []string{"noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"} {
		t.Run(policy, func(t *testing.T) {
			set := func(name, value string) {
				t.Helper()
				must.OK(t, client.ConfigSet(t.Context(), name, value).Err())
			}
			set("maxmemory", "0")
			set("maxmemory-policy", policy)
			must.OK(t, client.FlushAll(t.Context()).Err())
			got, err := counters.Evicts(t.Context())
			if want := strings.TrimPrefix(policy, "noeviction"); got != want || err != nil {
				t.Errorf("evicts by %q, error %v; want %q", got, err, want)
			}
			full := wire.Take{Least: 1, Most: 100, Rooms: []wire.Room{{LimitCounter: counter(window.FirstHitWindow, 1, time.Hour), Limit: 100, Cost: 1}}}
			sequence := uint64(0)
			take := func() uint64 {
				t.Helper()
				sequence++
				out := must.Get(counters.Push(t.Context(), &wire.Push{Namespace: "ns", Sender: 1, Sequence: sequence, Floor: sequence, Takes: []wire.Take{full}}, 1))(t)
				return out.Answer.Grants[0].Units
			}
			passed := take()
			info := must.Get(client.Info(t.Context(), "memory").Result())(t)
			_, text, _ := strings.Cut(info, "used_memory:")
			used := must.Get(strconv.Atoi(text[:strings.Index(text, "\r")]))(t)
			set("maxmemory", fmt.Sprint(used+100_000))
			// Write more keys than there is room for, with longer lives. Some policies choose at
			// random, so write until the counter is evicted.
			outOfMemory := false
			for i := uint64(1); i <= 300 && !outOfMemory && client.Exists(t.Context(), key(full.Rooms[0].LimitCounter)).Val() == 1; i++ {
				p := &wire.Push{Namespace: "evil", Sender: i, Sequence: 1, Floor: 1}
				for j := range byte(100) {
					c := counter(window.FirstHitWindow, j, 24*time.Hour)
					c.ID[1], c.ID[2] = byte(i), byte(i>>8)
					p.Items = append(p.Items, wire.Item{LimitCounter: c, Newest: uint64(time.Now().UnixNano()), Hits: []int64{1}})
				}
				_, err := counters.Push(t.Context(), p, 1)
				outOfMemory = err != nil
			}
			if passed += take(); outOfMemory != (policy == "noeviction") || passed != map[bool]uint64{true: 100, false: 200}[outOfMemory] {
				t.Errorf("%d of 100 pass; out of memory: %v", passed, outOfMemory)
			}
		})
	}
	must.OK(t, client.Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err())
	if policy, err := counters.Evicts(t.Context()); policy != "" || !errors.Is(err, store.ErrUntold) {
		t.Errorf("evicts by %q, error %v; want it untold", policy, err)
	}
	server.Stop()
	if policy, err := counters.Evicts(t.Context()); policy != "" || err == nil || errors.Is(err, store.ErrUntold) {
		t.Errorf("evicts by %q, error %v; want that of a server that is away", policy, err)
	}
}

// A cluster evicts if any of its servers would, including replicas.
func testEvictions(t *testing.T, cluster *redistest.Cluster) {
	counters := open(t, cluster.URL(), nil)
	for _, server := range []int{0, len(cluster.Servers) - 1} {
		for _, policy := range []string{"allkeys-lru", "noeviction"} {
			must.OK(t, cluster.Client(server).ConfigSet(t.Context(), "maxmemory-policy", policy).Err())
			// A new replica is in no list of servers until a master knows it.
			want := strings.TrimPrefix(policy, "noeviction")
			got, err := counters.Evicts(t.Context())
			for err == nil && got != want {
				got, err = counters.Evicts(t.Context())
			}
			must.Is(t, err, nil, "server %d with %s", server, policy)
		}
	}
}
