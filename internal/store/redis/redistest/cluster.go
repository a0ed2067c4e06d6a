package redistest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/commandtest"
	"weir/internal/must"
)

// masters is the number of masters. Each has a replica.
const masters = 3

// slots is the number of slots of every Redis Cluster.
const slots = 16384

// Cluster is a Redis Cluster of a test: three masters with a third of the slots each, and a replica
// of each. It is not safe for concurrent use.
type Cluster struct {
	// Servers are the masters and then their replicas, in their roles at the start.
	Servers []*Server

	t       testing.TB
	clients []*goredis.Client
	ids     []string
}

// StartCluster starts a cluster, and returns when all of its servers agree on it. It is stopped at
// the test's end.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	for range 2 * masters {
		s := launch(t, func(port string) []string { return []string{"--port", port} }, func() []string {
			_, bus, _ := net.SplitHostPort(commandtest.FreeAddress(t))
			// A machine busy with other tests must not cause a failover: only KillMaster does.
			return []string{"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", hasty, "--cluster-replica-no-failover", "yes", "--repl-diskless-sync-delay", "0"}
		})
		client := goredis.NewClient(&goredis.Options{Addr: s.Addr, MaxRetries: -1})
		t.Cleanup(func() { must.Report(t, client.Close()) })
		c.Servers, c.clients = append(c.Servers, s), append(c.clients, client)
		c.ids = append(c.ids, c.do(client, "cluster", "myid"))
	}
	for i, client := range c.clients {
		c.do(client, "cluster", "set-config-epoch", i+1)
		if i < masters {
			c.do(client, "cluster", "addslotsrange", i*slots/masters, (i+1)*slots/masters-1)
		}
		if i > 0 {
			host, port, _ := net.SplitHostPort(c.Servers[i].Addr)
			c.do(c.clients[0], "cluster", "meet", host, port, c.Servers[i].options[3])
		}
	}
	c.until("the servers know each other", func() bool {
		for _, client := range c.clients {
			if !strings.Contains(c.do(client, "cluster", "info"), fmt.Sprintf("cluster_known_nodes:%d\r\n", len(c.clients))) {
				return false
			}
		}
		return true
	})
	for i, client := range c.clients[masters:] {
		c.do(client, "cluster", "replicate", c.ids[i])
	}
	c.until("all have replicas and agree", func() bool {
		for i, client := range c.clients {
			nodes := c.do(client, "cluster", "nodes")
			if !strings.Contains(c.do(client, "cluster", "info"), "cluster_state:ok") || strings.Count(nodes, "slave") != masters {
				return false
			}
			if i < masters && !strings.Contains(c.do(client, "info", "replication"), "state=online") {
				return false
			}
		}
		return true
	})
	c.nodeTimeout(patient)
	return c
}

// How long servers wait for each other, in milliseconds. With a shorter time they agree sooner, and a
// master of a busy machine is taken for dead.
const (
	hasty   = "1000"
	patient = "15000"
)

func (c *Cluster) nodeTimeout(millis string) {
	c.t.Helper()
	for _, client := range c.clients {
		c.do(client, "config", "set", "cluster-node-timeout", millis)
	}
}

// URL returns the cluster's URL for a store.
func (c *Cluster) URL() string {
	addrs := make([]string, len(c.Servers))
	for i, s := range c.Servers {
		addrs[i] = s.Addr
	}
	return "redis+cluster://" + strings.Join(addrs, ",")
}

// Client returns a client of server i alone.
func (c *Cluster) Client(i int) *goredis.Client { return c.clients[i] }

// Flush removes all keys.
func (c *Cluster) Flush() {
	c.t.Helper()
	for _, client := range c.clients[:masters] {
		c.do(client, "flushall")
	}
}

// KillMaster kills the server that was master i at the start, and returns when its replica has
// taken over for all others.
func (c *Cluster) KillMaster(i int) {
	c.t.Helper()
	c.do(c.clients[masters+i], "config", "set", "cluster-replica-no-failover", "no")
	c.nodeTimeout(hasty)
	c.Servers[i].Stop()
	host, _, _ := net.SplitHostPort(c.Servers[i].Addr)
	commandtest.Hold(c.t, net.JoinHostPort(host, c.Servers[i].options[3])) // the bus
	c.until("the replica takes over", func() bool {
		for j, client := range c.clients {
			if j == i {
				continue
			}
			var replica string
			for line := range strings.Lines(c.do(client, "cluster", "nodes")) {
				if strings.HasPrefix(line, c.ids[masters+i]) {
					replica = line
				}
			}
			// A line has the address, then the flags, and the slots at the end.
			if !strings.Contains(replica, "master") || !strings.Contains(replica, "-"+strconv.Itoa((i+1)*slots/masters-1)) ||
				!strings.Contains(c.do(client, "cluster", "info"), "cluster_state:ok") {
				return false
			}
		}
		return true
	})
}

// ReturnMaster starts a killed master again, and returns when it is a replica of the server that
// took over.
func (c *Cluster) ReturnMaster(i int) {
	c.t.Helper()
	c.Servers[i].Restart()
	c.until("the old master is a replica", func() bool {
		return strings.Contains(c.do(c.clients[masters+i], "info", "replication"), "state=online")
	})
	c.nodeTimeout(patient)
}

// MoveSlot moves a slot with all its keys from one master to another, key by key, in the steps that
// operators' tools take. It calls between before each step.
func (c *Cluster) MoveSlot(slot, from, to int, between func()) {
	c.t.Helper()
	source, target := c.clients[from], c.clients[to]
	c.do(target, "cluster", "setslot", slot, "importing", c.ids[from])
	c.do(source, "cluster", "setslot", slot, "migrating", c.ids[to])
	host, port, _ := net.SplitHostPort(c.Servers[to].Addr)
	for {
		keys := must.Get(source.ClusterGetKeysInSlot(context.Background(), slot, 1).Result())(c.t)
		between()
		if len(keys) == 0 {
			break
		}
		c.do(source, "migrate", host, port, keys[0], 0, 5000)
	}
	for _, client := range []*goredis.Client{target, source} {
		c.do(client, "cluster", "setslot", slot, "node", c.ids[to])
	}
}

// do runs a command. The test fails if the command does.
func (c *Cluster) do(client *goredis.Client, args ...any) string {
	c.t.Helper()
	// The test's context has ended in its cleanup.
	reply, err := client.Do(context.Background(), args...).Result()
	must.OKf(c.t, err, "redis cluster: %v", args)
	return fmt.Sprint(reply)
}

// until waits until done is true.
func (c *Cluster) until(what string, done func() bool) {
	c.t.Helper()
	until(c.t, what, c.Pause, done)
}

// until waits until done is true, with pauses between.
func until(t testing.TB, what string, pause func(context.Context), done func() bool) {
	t.Helper()
	for range 3000 {
		if done() {
			return
		}
		pause(context.Background())
	}
	t.Fatalf("redis: not in time: %s", what)
}

// Pause returns a little later. No command tells when a cluster's state changes, so it waits for
// more replicas than exist.
func (c *Cluster) Pause(ctx context.Context) {
	for _, client := range c.clients {
		if client.Wait(ctx, 100, 20*time.Millisecond).Err() == nil {
			return // a master has waited
		}
	}
}
