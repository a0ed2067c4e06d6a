package e2e

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"weir/internal/envoytest"
	"weir/internal/nightly"
	"weir/internal/store/redis/redistest"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// Ten weir ratelimit share a Redis. Once each has a part of the limits, descriptors of keys that it has never
// seen do not wait, though their limits differ.
func TestFarKeysOfServices(t *testing.T) {
	t.Parallel()
	const descriptors = "domain: far\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 100000}}, " +
		"{key: guest, rate_limit: {unit: hour, requests_per_unit: 5000}}]"
	url := redistest.Start(t).URL()
	var all [10]*instance
	var clients [len(all)]pb.RateLimitServiceClient
	for i := range all {
		all[i] = rateLimits(t, descriptors, "WEIR_STORE="+url)
		client, err := grpc.NewClient(all[i].address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		clients[i] = pb.NewRateLimitServiceClient(client)
	}
	asked := 0
	ask := func(i int) {
		t.Helper()
		for _, key := range []string{"user", "guest"} {
			asked++
			answer, err := clients[i].ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "far", Descriptors: []*common.RateLimitDescriptor{{
				Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: fmt.Sprint(asked)}},
			}}})
			if err != nil || answer.GetOverallCode() != pb.RateLimitResponse_OK {
				t.Fatal(answer, err)
			}
		}
	}
	sum := func(name string) (n float64) {
		for _, i := range all {
			n += i.metric(t, name)
		}
		return n
	}
	for deadline := time.Now().Add(hang); ; {
		before := asked
		waited := sum("weir_waited_requests_total")
		for range 10 {
			for i := range all {
				ask(i)
			}
		}
		waits, advanced := sum("weir_waited_requests_total")-waited, sum("weir_advanced_hits_total")
		if of1000 := waits * 1000 / float64(asked-before); of1000 <= 20 && advanced > 0 {
			t.Logf("of 1,000 descriptors %.0f wait; %.0f hits advanced", of1000, advanced)
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("of 1,000 descriptors %.0f wait, want at most 20; %.0f hits advanced", of1000, advanced)
		}
	}
}

// metric returns the last value of a metric of a rate limit service.
func (i *instance) metric(t *testing.T, name string) (value float64) {
	t.Helper()
	response, err := envoytest.Client.Get("http://" + i.metrics)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if of, number, _ := strings.Cut(lines.Text(), "} "); strings.HasPrefix(of, name+"{") {
			if value, err = strconv.ParseFloat(number, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	return value
}

// In a fleet of ten nodes, requests for keys that a node has never seen do not wait. A key near its
// limit gets all of it, and no more. Once all is quiet the backend has exactly the admitted hits.
func TestFarKeysWaitForNothing(t *testing.T) {
	t.Parallel()
	for _, store := range nightly.Or([]string{"memory", "file", "redis"}, []string{"memory", "redis"}) {
		t.Run(store, func(t *testing.T) {
			url := store
			switch store {
			case "file":
				url += ":" + filepath.Join(t.TempDir(), "weir.db")
			case "redis":
				url = redistest.Start(t).URL()
			}
			onWazero(t, func(t *testing.T, d driver) { farKeysWaitForNothing(t, d, url) })
		})
	}
}

func farKeysWaitForNothing(t *testing.T, d driver, store string) {
	const (
		limit = 500
		users = 300
	)
	backend := serve(t, store)
	all, addresses := nodes(t, d, 10, nodeConfig{backend: backend, configuration: `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 0.2, ` +
		perUser(fmt.Sprintf(`{"limit": %d, "window": "366d", "algorithm": "fixed_window"}`, limit))[1:]})
	f, client, random := newTraffic(1, addresses...), client(t), rand.New(rand.NewPCG(1, 33))
	ask := func(node int, user string) {
		t.Helper()
		if _, _, err := f.ask(client, node, user); err != nil {
			t.Fatal(err)
		}
	}
	// Each node has a part of the limits.
	for i, deadline := 0, time.Now().Add(hang); ; i++ {
		ready := true
		for n := range all {
			ask(n, fmt.Sprint("first ", i, " at ", n))
			ready = all[n].metric(t, metricName("advanced_hits_total")) > 0 && ready
		}
		if ready {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("some nodes have no part of the limits")
		}
	}
	waited, advanced := metric(t, all, "waited_requests"), metric(t, all, "advanced_hits")
	for user := range users {
		for range 3 {
			ask(random.IntN(len(all)), fmt.Sprint("user ", user))
		}
	}
	waited, advanced = metric(t, all, "waited_requests")-waited, metric(t, all, "advanced_hits")-advanced
	t.Logf("of %d requests %d waited, and %d hits were advanced", 3*users, waited, advanced)
	// A node that did not run for ten seconds has lost its part.
	if waited > 3*users/20 || advanced < 3*users*19/20 {
		t.Errorf("of %d requests %d waited, and %d hits were advanced", 3*users, waited, advanced)
	}

	before := f.total()
	for deadline := time.Now().Add(hang); f.total()-before < limit; ask(random.IntN(len(all)), "ann") {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests for a key were admitted in the end, want %d", f.total()-before, limit)
		}
	}
	for range limit {
		ask(random.IntN(len(all)), "ann")
	}
	settle(t, backend, "default", f.total())
	if got := f.total() - before; got != limit {
		t.Errorf("%d requests for a key were admitted, want %d", got, limit)
	}
}

// Nodes hear that a key is full, and refuse its first request by that. After the operator has emptied the
// key's counter, each node refuses one request at most, and all of the limit passes again.
func TestFullKeysAreEmptied(t *testing.T) {
	t.Parallel()
	for _, store := range nightly.Or([]string{"memory", "file"}, []string{"memory"}) {
		t.Run(store, func(t *testing.T) {
			url := store
			if store == "file" {
				url += ":" + filepath.Join(t.TempDir(), "weir.db")
			}
			onWazero(t, func(t *testing.T, d driver) { fullKeysAreEmptied(t, d, url) })
		})
	}
}

func fullKeysAreEmptied(t *testing.T, d driver, store string) {
	const limit = 500
	backend := serve(t, store)
	all, addresses := nodes(t, d, 10, nodeConfig{backend: backend, configuration: `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 0.2, ` +
		perUser(fmt.Sprintf(`{"limit": %d, "window": "366d", "algorithm": "fixed_window"}`, limit))[1:]})
	f, client := newTraffic(1, addresses...), client(t)
	ask := func(node int, user string) (passed bool) {
		t.Helper()
		before := f.total()
		if _, _, err := f.ask(client, node, user); err != nil {
			t.Fatal(err)
		}
		return f.total() > before
	}
	// Half of the nodes use up the limit.
	for i, deadline := 0, time.Now().Add(hang); f.total() < limit; i++ {
		ask(i%5, "ann")
		if time.Now().After(deadline) {
			t.Fatalf("%d requests passed, want %d", f.total(), limit)
		}
	}
	// The other nodes have a part, and refuse by the list.
	waits := func(node int) (waited bool) {
		t.Helper()
		before := metric(t, all, "waited_requests")
		if user := fmt.Sprint("ann ", node); ask(node, user) {
			return metric(t, all, "waited_requests") > before
		}
		return true
	}
	for deadline, ready := time.Now().Add(hang), false; !ready; {
		ready = true
		for n := range all {
			ready = !waits(n) && ready
		}
		if time.Now().After(deadline) {
			t.Fatal("some nodes have no part of the limits")
		}
	}
	for i, heard := 0, time.Now().Add(2*time.Second); time.Now().Before(heard); i++ {
		ask(i%len(all), fmt.Sprint("other ", i))
	}
	waited := metric(t, all, "waited_requests")
	for n := 5; n < len(all); n++ {
		if ask(n, "ann") {
			t.Errorf("node %d lets a request for a full key pass", n)
		}
	}
	t.Logf("%d of 5 refusals waited", metric(t, all, "waited_requests")-waited)
	weir(t, backend, "counter", "reset", "default", "per-user", "ann", "--wait", "60s")
	before := f.total()
	refused := make([]int, len(all))
	for i, deadline := 0, time.Now().Add(hang); f.total()-before < limit; i++ {
		if n := i % len(all); !ask(n, "ann") && f.total()-before < limit/2 {
			refused[n]++
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d requests passed after the reset, want %d", f.total()-before, limit)
		}
	}
	for n, refused := range refused {
		if refused > 1 {
			t.Errorf("node %d has refused %d requests", n, refused)
		}
	}
}
