package ratelimitservice

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// costs is how many requests of each kind both services answer, and weirFile a build of weir.
var (
	costs    = flag.Int("costs", 0, "how many `requests` to measure the CPU time of, beside envoyproxy/ratelimit as -ratelimit has it")
	weirFile = flag.String("weir", "../../dist/weir", "`file` of weir to measure")
)

// TestCosts tells the CPU time that a request costs in the service and in Redis, of envoyproxy/ratelimit and
// of Weir. Requests have keys of 10,000 users, keys that are seen once, or no limit: then they cost as much as
// gRPC alone. It needs -costs and -ratelimit.
func TestCosts(t *testing.T) {
	if *costs == 0 {
		return
	}
	weir := filepath.Join(t.TempDir(), "ratelimit") // by that name it is weir ratelimit
	file, err := filepath.Abs(*weirFile)
	if err == nil {
		err = os.Symlink(file, weir)
	}
	if err != nil {
		t.Fatal(err)
	}
	const limited, unlimited = "unit: hour, requests_per_unit: 1000000", "unlimited: true"
	for _, kind := range []struct {
		name, limit string
		keys        int
	}{{"10,000 users", limited, 10_000}, {"keys seen once", limited, 1 << 60}, {"no limit", unlimited, 10_000}} {
		text := []string{"domain: d\ndescriptors: [{key: k, rate_limit: {" + kind.limit + "}}]"}
		for _, file := range []string{*itsFile, weir} {
			of := startIts(t, file, text)
			of.ask(t, kind.keys, 0, min(*costs, 20_000)) // it warms up
			service, store := of.cpu(t)
			begun := time.Now()
			of.ask(t, kind.keys, *costs, *costs)
			took := time.Since(begun)
			<-time.After(2 * time.Second) // what is pushed later counts, too
			service2, store2 := of.cpu(t)
			per := func(d time.Duration) float64 { return float64(d) / float64(*costs) / float64(time.Microsecond) }
			t.Logf("%-15s %-12s service %5.1f µs, Redis %5.1f µs, both %5.1f µs a request; %.0f requests/s", kind.name, filepath.Base(file),
				per(service2-service), per(store2-store), per(service2-service+store2-store), float64(*costs)/took.Seconds())
			of.end()
		}
	}
}

// ask asks from a number on, by 64 clients at the same time.
func (of *its) ask(t *testing.T, keys, from, n int) {
	t.Helper()
	const clients = 64
	var asking sync.WaitGroup
	for c := range clients {
		asking.Go(func() {
			for i := from + c; i < from+n; i += clients {
				if _, err := of.client.ShouldRateLimit(t.Context(), request("d", fmt.Sprint("k=user-", i*7919%keys))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	asking.Wait()
}

// cpu is the processor time that the service and Redis have used.
func (of *its) cpu(t *testing.T) (service, store time.Duration) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", of.pid))
	if err != nil {
		t.Fatal(err)
	}
	const tick = 10 * time.Millisecond
	_, rest, _ := strings.Cut(string(stat), ") ")
	for _, field := range strings.Fields(rest)[11:13] { // utime and stime
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		service += time.Duration(n) * tick
	}
	client := redis.NewClient(&redis.Options{Addr: of.redis})
	defer client.Close()
	info, err := client.Info(t.Context(), "cpu").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if seconds, err := strconv.ParseFloat(value, 64); err == nil && (name == "used_cpu_sys" || name == "used_cpu_user") {
			store += time.Duration(seconds * float64(time.Second))
		}
	}
	return service, store
}
