//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"weir/internal/commandtest"
	"weir/internal/must"
	"weir/internal/wire"
	"weir/window"
)

// bounded is a process with listeners. Addresses are by the log's message.
type bounded struct {
	*commandtest.Process
	addresses map[string]string
}

// startBounded starts a process that logs so many addresses.
func startBounded(t *testing.T, command *exec.Cmd, listeners int) *bounded {
	t.Helper()
	b := &bounded{startProcess(t, command), map[string]string{}}
	for len(b.addresses) < listeners {
		name, address, _ := strings.Cut(b.Wait(t, `msg="(.*" address=\S+)`), `" address=`)
		b.addresses[name] = address
	}
	return b
}

// resident returns the memory of the process, in bytes, and peak the most that it ever was.
func (b *bounded) resident(t *testing.T) int { return b.memory(t, "VmRSS:") }
func (b *bounded) peak(t *testing.T) int     { return b.memory(t, "VmHWM:") }

func (b *bounded) memory(t *testing.T, which string) int {
	t.Helper()
	status := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", b.Cmd.Process.Pid)))(t)
	var kilobytes int
	must.Get(fmt.Sscanf(string(status[strings.Index(string(status), which):]), which+" %d kB", &kilobytes))(t)
	return kilobytes << 10
}

// wantGrown wants a process to have grown by at most so many bytes, and to answer requests still.
func (b *bounded) wantGrown(t *testing.T, grown, most int, what string) {
	t.Helper()
	t.Logf("%s%d MB more", what, grown>>20)
	must.AtMost(t, grown, most, "%sbytes more", what)
	must.Equal(t, must.Get(ask1(t, b.addresses["the rate limit service listens"], "k"))(t).GetOverallCode(), pb.RateLimitResponse_OK, "%sthen", what)
}

// descriptorsIn writes a configuration of the rate limit service.
func descriptorsIn(t *testing.T, text string) (root string) {
	t.Helper()
	root = t.TempDir()
	must.OK(t, os.Mkdir(filepath.Join(root, "config"), 0o700))
	must.File(t, filepath.Join(root, "config", "d.yaml"), text)
	return root
}

const oneLimit = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 100000}}]"

// built returns the command of make build, whose memory is that of users: the race detector takes
// several times as much.
func built(t *testing.T) string {
	t.Helper()
	binary, err := filepath.Abs("../../dist/weir")
	if err == nil {
		_, err = os.Stat(binary)
	}
	must.OKf(t, err, "make build")
	return binary
}

// serving is weir serve, and ratelimiting weir ratelimit, with all listeners. limited is how many files
// they may have.
func serving(t *testing.T, limited string, environment ...string) *bounded {
	root := descriptorsIn(t, oneLimit)
	command := exec.Command("sh", "-c", "ulimit -n "+limited+`; exec "$0" "$@"`, built(t), "serve", "--listen", "127.0.0.1:0", "--rate-limit-service", "127.0.0.1:0",
		"--rate-limit-http", "127.0.0.1:0", "--descriptors", filepath.Join(root, "config"))
	command.Env = environment
	return startBounded(t, command, 3)
}

func ratelimiting(t *testing.T, limited, text string, environment ...string) *bounded {
	command := exec.Command("sh", "-c", "ulimit -n "+limited+`; exec "$0" "$@"`, built(t), "ratelimit")
	command.Env = append([]string{
		"RUNTIME_ROOT=" + descriptorsIn(t, text), "RUNTIME_SUBDIRECTORY=", "WEIR_STORE=memory", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "HOST=127.0.0.1", "PORT=0",
		"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=127.0.0.1:0", "LOG_LEVEL=info",
	}, environment...)
	return startBounded(t, command, 3)
}

// Connections without a request, at whatever listener, keep nobody out of the others.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	for name, b := range map[string]*bounded{
		"serve": serving(t, "256"), "ratelimit": ratelimiting(t, "256", oneLimit), "a socket": ratelimiting(t, "256", oneLimit, "GRPC_UDS="+socket),
	} {
		probe := "http://" + b.addresses["the counter backend listens"] + "/livez"
		if name != "serve" {
			probe = "http://" + b.addresses["the rate limit service's /json listens"] + "/healthcheck"
		}
		for listener, address := range b.addresses {
			network := "tcp"
			if strings.HasPrefix(address, "/") {
				network = "unix"
			}
			for i := range 600 {
				c := must.Get(net.Dial(network, address))(t)
				defer c.Close()
				text := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
				if i%2 == 0 {
					text = "POST /v1/push HTTP/1.1\r\nHost: " // half a header
				}
				_, _ = io.WriteString(c, text) // the first connections may be closed already
				if i == 599 {
					// Once the last has an answer, or was closed, all are accepted. Connections that are accepted later than
					// the probe's could make it the oldest that waits.
					_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
					if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
						t.Fatalf("%s: %q has not answered its last connection", name, listener)
					}
				}
			}
			client := http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
			answer, err := client.Get(probe)
			if err != nil {
				t.Errorf("%s, connections at %q: %v", name, listener, err)
				continue
			}
			answer.Body.Close()
			client.CloseIdleConnections()
			must.Equal(t, answer.StatusCode, http.StatusOK, "%s, connections at %q: %s", name, listener, answer.Status)
		}
	}
}

// Requests that never end take a bounded memory: 300 messages of 4 MB, on one connection and on many,
// and 300 bodies of /json. Meanwhile others are answered.
func TestUnfinishedRequests(t *testing.T) {
	t.Parallel()
	const collecting = "GOMEMLIMIT=96MiB" // or garbage piles up while the collector has no processor; what is held goes above it
	for name, b := range map[string]*bounded{"serve": serving(t, "4096", collecting), "ratelimit": ratelimiting(t, "4096", oneLimit, collecting)} {
		service := b.addresses["the rate limit service listens"]
		for path, address := range map[string]string{pb.RateLimitService_ShouldRateLimit_FullMethodName: service, "/json": b.addresses["the rate limit service's /json listens"]} {
			for _, connections := range []int{1, 30} {
				before := b.resident(t)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 300)
				for range connections {
					transport := onOneConnection()
					for range 300 / connections {
						body := &unending{ctx: ctx, left: 3_900_000}
						if path != "/json" {
							body.head = binary.BigEndian.AppendUint32([]byte{0}, 4_000_000)
						} else {
							body.left = 900_000
						}
						request := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, body))(t)
						request.Header.Set("Content-Type", "application/grpc")
						request.Header.Set("Te", "trailers")
						body.sent = func() { done <- nil }
						go func() {
							answer, err := transport.RoundTrip(request)
							if err == nil {
								err = answer.Body.Close()
							}
							done <- err
						}()
					}
				}
				for range 300 { // each is sent, or its connection is closed
					<-done
				}
				// 16 MiB, and garbage that is not collected yet. It was 348 MB and more.
				b.wantGrown(t, b.resident(t)-before, 160<<20, fmt.Sprintf("%s, %s on %d connections: ", name, path, connections))
				cancel()
			}
		}
	}
}

// onOneConnection sends all requests to an address on one connection, without TLS.
func onOneConnection() http.RoundTripper {
	return &http2.Transport{ //nolint:staticcheck // net/http's opens connections of its own for the first of many requests
		AllowHTTP: true, DialTLSContext: func(ctx context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}}
}

// unending is a body that does not end before its context.
type unending struct {
	ctx  context.Context
	head []byte
	left int
	sent func()
}

// Read implements io.Reader.
func (u *unending) Read(into []byte) (int, error) {
	if len(u.head) > 0 {
		n := copy(into, u.head)
		u.head = u.head[n:]
		return n, nil
	}
	if u.left == 0 {
		u.sent()
		<-u.ctx.Done()
		return 0, u.ctx.Err()
	}
	n := min(len(into), u.left)
	u.left -= n
	return n, nil
}

// Whole requests take a bounded memory, too, whatever they ask for, while nobody takes their answers.
func TestAnswersThatNobodyTakes(t *testing.T) {
	t.Parallel()
	r := &pb.RateLimitRequest{Domain: "d"}
	for i := range 1000 {
		r.Descriptors = append(r.Descriptors, &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: "k", Value: fmt.Sprint(i)}}})
	}
	encoded := must.Get(proto.Marshal(r))(t)
	message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(encoded))), encoded...)
	b := ratelimiting(t, "4096", oneLimit, "RESPONSE_DYNAMIC_METADATA=true")
	service := b.addresses["the rate limit service listens"]
	before := b.resident(t)
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() { askAndTakeNothing(t, service, message, 150) })
	}
	asking.Wait()
	b.wantGrown(t, b.peak(t)-before, 400<<20, "")
}

// So do whole requests of /json.
func TestManyLargeBodies(t *testing.T) {
	t.Parallel()
	body := []byte(`{"domain": "d", "descriptors": [` + strings.TrimSuffix(strings.Repeat(`{"entries": [{"key": "k", "value": "v"}]},`, 1000), ",") + "]}")
	b := ratelimiting(t, "4096", oneLimit)
	url := "http://" + b.addresses["the rate limit service's /json listens"] + "/json"
	before := b.resident(t)
	var asking sync.WaitGroup
	for range 8 {
		transport := onOneConnection()
		for range 250 {
			asking.Go(func() {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				answer, err := transport.RoundTrip(request)
				if err != nil {
					return // its connection was closed
				}
				answer.Body.Close()
			})
		}
	}
	asking.Wait()
	b.wantGrown(t, b.peak(t)-before, 450<<20, "")
}

// askAndTakeNothing asks the service so often on a connection on which answers have no room. It waits
// until all are there, or the service closes the connection.
func askAndTakeNothing(t *testing.T, address string, message []byte, times int) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	var header bytes.Buffer
	encoder := hpack.NewEncoder(&header)
	framer := http2.NewFramer(c, c)
	sending := []error{func() error { _, err := io.WriteString(c, http2.ClientPreface); return err }(), framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})}
	// room is what may be sent, and answered how many answers have begun.
	room, answered := 1<<16-1, 0
	for sent := 0; errors.Join(sending...) == nil && answered < times; {
		if sent < times && room >= len(message) {
			header.Reset()
			for _, f := range []hpack.HeaderField{
				{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: pb.RateLimitService_ShouldRateLimit_FullMethodName},
				{Name: ":authority", Value: address}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
			} {
				sending = append(sending, encoder.WriteField(f))
			}
			stream := uint32(2*sent + 1)
			sending = append(sending, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header.Bytes(), EndHeaders: true}), framer.WriteData(stream, true, message))
			room -= len(message)
			sent++
			continue
		}
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		switch of := frame.(type) {
		case *http2.WindowUpdateFrame:
			if of.StreamID == 0 {
				room += int(of.Increment)
			}
		case *http2.PingFrame:
			if !of.IsAck() {
				sending = append(sending, framer.WritePing(true, of.Data))
			}
		case *http2.HeadersFrame:
			answered++
		}
	}
}

// ask1 asks the service for a hit of each value of a key.
func ask1(t *testing.T, address, key string, values ...string) (*pb.RateLimitResponse, error) {
	t.Helper()
	client := dialRateLimit(t, address)
	defer client.Close()
	r := &pb.RateLimitRequest{Domain: "d"}
	for _, value := range append(values, "last") {
		r.Descriptors = append(r.Descriptors, &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}})
	}
	return pb.NewRateLimitServiceClient(client).ShouldRateLimit(t.Context(), r)
}

// A flood of keys takes no more memory than it may, in the store and in the service's nodes, whatever
// counts them.
func TestMaxMemoryOfAProcess(t *testing.T) {
	t.Parallel()
	const text = `
domain: d
descriptors:
  - {key: fixed, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: sliding, rate_limit: {window: 1h, requests_per_unit: 10, algorithm: sliding_window}}
  - {key: parts, rate_limit: {window: 1h, precision: 1m, requests_per_unit: 10, algorithm: sliding_window}}
  - {key: first, rate_limit: {window: 1h, start: first_hit, requests_per_unit: 10}}
  - {key: log, rate_limit: {window: 1h, requests_per_unit: 30, algorithm: sliding_log}}
  - {key: bucket, rate_limit: {window: 1h, requests_per_unit: 10, algorithm: token_bucket}}
`
	flooded := func(environment ...string) (grown int) {
		b := ratelimiting(t, "4096", text, environment...)
		before := b.resident(t)
		for _, key := range []string{"fixed", "sliding", "parts", "first", "log", "bucket"} {
			for i := range 15 {
				values := make([]string, 999)
				for j := range values {
					values[j] = fmt.Sprint(i*999 + j)
				}
				must.Get(ask1(t, b.addresses["the rate limit service listens"], key, values...))(t)
			}
			grown = max(grown, b.resident(t)-before)
		}
		return grown
	}
	free, bounded := flooded(), flooded("WEIR_MAX_MEMORY=16Mi")
	t.Logf("%d MB more without a bound, %d MB with 16", free>>20, bounded>>20)
	must.AtMost(t, bounded, min(16<<20+besidesMemory, free*3/4), "bytes more, where it takes %d without a bound", free)
}

// The chart's backend, full to its bound, fits the memory that the chart gives its container.
func TestChartsMemoryFits(t *testing.T) {
	t.Parallel()
	values := must.Get(os.ReadFile("../../charts/weir/values.yaml"))(t)
	var limit int
	must.Get(fmt.Sscanf(regexp.MustCompile(`limits: \{memory: .*`).FindString(string(values)), "limits: {memory: %dMi}", &limit))(t)
	const hour = 3_600_000
	now := uint64(time.Now().UnixMilli())
	for name, shape := range map[string]struct {
		wire.Item
		items int // in a push
	}{
		"windows": {wire.Item{LimitCounter: wire.LimitCounter{Kind: uint8(window.SlidingWindow), WidthMillis: hour}, Newest: now / hour, Hits: []int64{1, 1}}, wire.MaxItems},
		"logs of 30": {wire.Item{LimitCounter: wire.LimitCounter{Kind: uint8(window.SlidingBuckets), WidthMillis: hour, Precision: 1}, Newest: now * 1e6, Limit: 30,
			Hits: slices.Repeat([]int64{1}, 30), Ages: make([]uint64, 30)}, 64},
	} {
		for i := range shape.Ages {
			shape.Ages[i] = uint64(i) * 1e9
		}
		b := startBounded(t, exec.Command(built(t), "serve", "--listen", "127.0.0.1:0", "--store", "memory", fmt.Sprint("--max-memory=", limit<<20*6/10)), 1)
		url := "http://" + b.addresses["the counter backend listens"]
		metric := func(name string) (value float64) {
			_, metrics := ask(t, "GET", url+"/metrics", "", nil)
			must.Get(fmt.Sscan(regexp.MustCompile(`\n` + name + ` (.*)`).FindStringSubmatch(metrics)[1], &value))(t)
			return value
		}
		p := wire.Push{Namespace: "ns", Sender: 1, Items: slices.Repeat([]wire.Item{shape.Item}, shape.items)}
		for p.Sequence%100 != 99 || metric(`weir_memory_evicted_total\{record="counter"\}`) < 10_000 {
			p.Sequence, p.Floor = p.Sequence+1, p.Sequence+1
			for i := range p.Items {
				binary.BigEndian.PutUint64(p.Items[i].ID[:], (p.Sequence<<16|uint64(i))*0x9e3779b97f4a7c15)
			}
			wantStatus(t, "POST", url+wire.PushPath, "", wire.AppendPush(nil, &p), http.StatusOK)
		}
		t.Logf("%.0f %s: %d MiB of %d", metric("weir_memory_counters"), name, b.peak(t)>>20, limit)
		must.AtMost(t, b.peak(t), limit<<20, "%s: bytes", name)
	}
}
