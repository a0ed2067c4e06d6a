package ratelimitservice

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/commandtest"
	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/store/memory"
	"weir/internal/store/redis/redistest"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// itsFile is a build of envoyproxy/ratelimit, and compared how many requests both services answer.
var (
	itsFile  = flag.String("ratelimit", "", "`file` of envoyproxy/ratelimit's service_cmd to compare with; a nightly run builds one")
	compared = flag.Int("compared", 100_000, "how many requests to compare")
)

// TestComparison asks envoyproxy/ratelimit and Weir the same, of random configurations, and wants
// the same answers, field by field. It leaves out the differences in docs/rate-limit-service.md;
// quota_mode and metadata, which differ from version to version; and limits that requests say,
// which count no refusals.
func TestComparison(t *testing.T) {
	t.Parallel()
	if *itsFile == "" && !nightly.On() {
		return
	}
	file := *itsFile
	if file == "" {
		dir := t.TempDir()
		build := exec.Command("go", "install", "github.com/envoyproxy/ratelimit/src/service_cmd@latest")
		build.Dir, build.Env = dir, append(os.Environ(), "GOBIN="+dir, "GOWORK=off", "GOFLAGS=-mod=mod")
		commandtest.Run(t, build)
		file = filepath.Join(dir, "service_cmd")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)
	random := &generator{rand.New(rand.NewPCG(seed, 0)), lasting(time.Now())}
	const perConfiguration = 5000
	for done := 0; done < *compared && !t.Failed(); done += perConfiguration {
		text := random.configurations()
		it := startIts(t, file, text)
		own := serviceOn(t, CounterOptions{Backend: Local{Backend: backend.New(memory.New(memory.Options{}))}, Timeout: 10 * time.Second},
			strings.Join(text, "---\n"), ServiceOptions{Headers: &Headers{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}})
		for i := 0; i < perConfiguration && !t.Failed(); i++ {
			r := random.request()
			theirs, err := it.client.ShouldRateLimit(t.Context(), r)
			must.OKf(t, err, "%v", r)
			ours, err := own.ShouldRateLimit(t.Context(), r)
			must.OKf(t, err, "%v", r)
			if withoutSeconds(theirs, ours); !proto.Equal(theirs, ours) {
				t.Errorf("request %d, %v:\ngot  %v\nwant %v\n%s", i, r, ours, theirs, strings.Join(text, "---\n"))
			}
		}
		it.end()
		must.Report(t, own.options.Counters.Close(t.Context()))
	}
}

// withoutSeconds takes out of two answers what differs as each was asked at another second.
func withoutSeconds(theirs, ours *pb.RateLimitResponse) {
	for i := range min(len(theirs.Statuses), len(ours.Statuses)) {
		a, b := theirs.Statuses[i].DurationUntilReset, ours.Statuses[i].DurationUntilReset
		if a != nil && b != nil && max(a.Seconds-b.Seconds, b.Seconds-a.Seconds) <= 30 {
			a.Seconds, a.Nanos, b.Seconds, b.Nanos = 0, 0, 0, 0
		}
	}
	for _, h := range append(theirs.ResponseHeadersToAdd, ours.ResponseHeadersToAdd...) {
		if h.Key == "RateLimit-Reset" {
			h.Value = ""
		}
	}
}

// its is a process of the other service.
type its struct {
	client pb.RateLimitServiceClient
	end    func()
}

func startIts(t *testing.T, file string, text []string) *its {
	t.Helper()
	root := t.TempDir()
	folder := filepath.Join(root, "ratelimit", "config")
	for i := range text {
		write(t, filepath.Join(folder, fmt.Sprint(i, ".yaml")), text[i])
	}
	var ports []string
	for _, address := range commandtest.FreeAddresses(t, 3) {
		_, port, _ := net.SplitHostPort(address)
		ports = append(ports, port)
	}
	cmd := exec.Command(file)
	cmd.Env = append(os.Environ(), "REDIS_SOCKET_TYPE=tcp", "REDIS_TYPE=SINGLE", "REDIS_URL="+redistest.Start(t).Addr, "RUNTIME_ROOT="+root,
		"RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=error", "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1",
		"DEBUG_HOST=127.0.0.1", "GRPC_PORT="+ports[0], "PORT="+ports[1], "DEBUG_PORT="+ports[2],
		"LIMIT_RESPONSE_HEADERS_ENABLED=true")
	process := commandtest.Start(t, cmd)
	client := must.Get(grpc.NewClient("127.0.0.1:"+ports[0], grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	end := sync.OnceFunc(func() {
		must.Report(t, client.Close())
		if process.Kill(t); t.Failed() {
			t.Logf("the other service said:\n%s", process.Printed())
		}
	})
	t.Cleanup(end)
	of := &its{pb.NewRateLimitServiceClient(client), end}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := of.client.ShouldRateLimit(ctx, request("none", "a=b"), grpc.WaitForReady(true)); err != nil {
		t.Fatalf("%v\n%s", err, process.Printed())
	}
	return of
}

// generator makes configurations and requests.
type generator struct {
	*rand.Rand
	units []string
}

// lasting are the units whose windows go on for a while.
func lasting(now time.Time) (names []string) {
	for unit, window := range units {
		if left := window - time.Duration(now.UnixNano())%window; left > 20*time.Minute {
			names = append(names, strings.ToLower(unit.String()))
		}
	}
	return names
}

func (g *generator) of(texts ...string) string { return texts[g.IntN(len(texts))] }

func (g *generator) configurations() (text []string) {
	for d := range 5 {
		text = append(text, fmt.Sprintf("domain: d%d\ndescriptors:\n%s", d, g.descriptors("", 0)))
	}
	return text
}

func (g *generator) descriptors(indent string, depth int) (text string) {
	given := map[string]bool{}
	for range 1 + g.IntN(6) {
		key, value := g.of("a", "b", "a_x"), g.of("", "", "x", "y", "xx", "x*", "xy*", "*", "x_y")
		if d := (Descriptor{Key: key, Value: value}); given[d.composite()] {
			continue
		} else {
			given[d.composite()] = true
		}
		text += indent + "- key: " + key + "\n"
		if value != "" {
			text += indent + fmt.Sprintf("  value: %q\n", value)
		}
		if strings.HasSuffix(value, "*") && g.IntN(2) == 0 {
			text += indent + "  share_threshold: true\n"
		}
		if g.IntN(8) == 0 {
			text += indent + "  shadow_mode: true\n" // quota_mode differs from version to version
		}
		switch g.IntN(8) {
		case 0:
			text += indent + "  rate_limit: {unlimited: true}\n"
		case 1, 2:
		default:
			limit := fmt.Sprintf("unit: %s, requests_per_unit: %d", g.of(g.units...), 5+g.IntN(30))
			name := g.of("", "", "one", "two", "three")
			if name != "" {
				limit += ", name: " + name
			}
			if other := g.of("", "", "one", "two", "three"); other != "" && other != name {
				limit += ", replaces: [{name: " + other + "}]"
			}
			text += indent + "  rate_limit: {" + limit + "}\n"
		}
		if depth < 2 && g.IntN(3) == 0 {
			text += indent + "  descriptors:\n" + g.descriptors(indent+"  ", depth+1)
		}
	}
	return text
}

func (g *generator) request() *pb.RateLimitRequest {
	r := &pb.RateLimitRequest{Domain: fmt.Sprint("d", g.IntN(6)), HitsAddend: uint32(g.IntN(4))}
	given := map[string]bool{}
	for range 1 + g.IntN(4) {
		d := &common.RateLimitDescriptor{}
		for range 1 + g.IntN(3) {
			// No two keys and values are the same once they are joined, as the other service does.
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: g.of("a", "b", "a_x", "c"), Value: g.of("", "x", "y", "xx", "xyz", "xy", "z")})
		}
		if g.IntN(12) == 0 {
			d.HitsAddend = wrapperspb.UInt64(uint64(g.IntN(5)))
		}
		// Both count what is the same one after the other, in either order.
		text := ""
		for _, e := range d.Entries {
			text += e.Key + "_" + e.Value + "_"
		}
		if !given[text] {
			given[text] = true
			r.Descriptors = append(r.Descriptors, d)
		}
	}
	return r
}
