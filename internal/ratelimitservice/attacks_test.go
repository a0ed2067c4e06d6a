package ratelimitservice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/backend/backendtest"
	"weir/internal/must"
	"weir/internal/store/memory"
	"weir/ratelimit"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// served is a service that is served until the test ends, or end is called, and a connection to it.
type served struct {
	connection *grpc.ClientConn
	client     pb.RateLimitServiceClient
	address    string
	server     *Server
	end        func()
}

func serveService(t *testing.T, s *Service) served {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	server := NewServer(s, ServerOptions{})
	go func() { ended <- server.Serve(ctx, l) }()
	end := sync.OnceFunc(func() {
		cancel()
		must.Report(t, <-ended)
	})
	t.Cleanup(end)
	connection := must.Get(grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	t.Cleanup(func() { must.Report(t, connection.Close()) })
	return served{connection, pb.NewRateLimitServiceClient(connection), l.Addr().String(), server, end}
}

// raw sends bytes as they are.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = data
	return nil
}
func (raw) Name() string { return "proto" }

// Requests that are none are answered with an error, and others go on.
func TestForgedRequests(t *testing.T) {
	t.Parallel()
	stats := NewStats()
	s := start(t, newClock(), "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 10}}]", ServiceOptions{Stats: stats})
	on := serveService(t, s)
	many := func(n int, entry string) *pb.RateLimitRequest {
		return request("d", slices.Repeat([]string{entry}, n)...)
	}
	long := strings.Repeat("x", 1<<20)
	for _, test := range []struct {
		name    string
		request *pb.RateLimitRequest
		want    codes.Code
	}{
		{"too many descriptors", many(1001, "k=many"), codes.InvalidArgument},
		{"as many of the same as it may have", many(1000, "k=same"), codes.OK},
		{"a long value", request("d", "k="+long), codes.OK},
		{"a long value again", request("d", "k="+long), codes.OK},
		{"a long key", request("d", long+"=v"), codes.OK},
		{"a long domain", request(long, "k=v"), codes.OK},
		{"a message that is too large", request("d", "k="+strings.Repeat("x", 5<<20)), codes.ResourceExhausted},
		{"many entries", request("d", strings.TrimSuffix(strings.Repeat("k=v,", 100_000), ",")), codes.OK},
		{"empty entries", request("d", ""), codes.OK},
		{"strange bytes", request("d", "k=\x00\n\u2028"), codes.OK},
	} {
		_, err := on.client.ShouldRateLimit(t.Context(), test.request)
		must.Equal(t, status.Code(err), test.want, "%s: %.200v", test.name, err)
	}
	crowd := protowire.AppendBytes([]byte{0x12}, bytes.Repeat([]byte{0x0a, 0}, maxEntries+1))
	for _, body := range [][]byte{{0xff}, {0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}, bytes.Repeat([]byte{0x12, 0x80}, 1000), crowd} {
		var answer []byte
		err := on.connection.Invoke(t.Context(), pb.RateLimitService_ShouldRateLimit_FullMethodName, body, &answer, grpc.ForceCodec(raw{}))
		must.Equal(t, status.Code(err), codes.Internal, "%x: %v", body[:1], err)
	}
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n", "\x16\x03\x01\x02\x00\x01" + strings.Repeat("\x00", 64), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\xff", 64)} {
		c := must.Get(net.Dial("tcp", on.address))(t)
		must.Get(io.WriteString(c, text))(t)
		// It has a word for HTTP/2 at most, and hangs up.
		must.Report(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		var timeout net.Error
		if _, err := io.Copy(io.Discard, c); errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("after %.10q the connection stays open", text)
		}
		must.Report(t, c.Close())
	}
	before := len(stats.all())
	for i := range 10_000 {
		must.Get(s.ShouldRateLimit(t.Context(), request(fmt.Sprint("domain", i), "k=v")))(t)
	}
	must.Equal(t, len(stats.all()), before, "series, after domains that nobody has configured")
	must.Equal(t, must.Get(on.client.ShouldRateLimit(t.Context(), request("d", "k=v")))(t).GetStatuses()[0].GetLimitRemaining(), 9, "in the end")
}

// slow is a backend that takes pushes only as it is let.
type slow struct {
	Local
	entered chan struct{}
	lets    chan struct{}
}

func (s *slow) Push(ctx context.Context, push []byte) ([]byte, error) {
	s.entered <- struct{}{}
	select {
	case <-s.lets:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.Local.Push(ctx, push)
}

// A client that goes while its request waits takes nothing, and those that wait when a server ends are
// answered.
func TestRequestsUnderWay(t *testing.T) {
	t.Parallel()
	const waiting = 20
	counts := memory.New(memory.Options{})
	way := &slow{Local{Backend: backend.New(counts)}, make(chan struct{}, 1000), make(chan struct{})}
	s := serviceOn(t, CounterOptions{Backend: way, Timeout: time.Minute}, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1000}}]", ServiceOptions{})
	counters, on := s.options.Counters, serveService(t, s)

	gone, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := on.client.ShouldRateLimit(gone, request("d", "k=v"))
		left <- err
	}()
	<-way.entered
	leave()
	must.Equal(t, status.Code(<-left), codes.Canceled, "who has gone got")
	answers := make(chan error, waiting)
	for i := range waiting {
		go func() {
			answer, err := on.client.ShouldRateLimit(t.Context(), request("d", fmt.Sprint("k=", i%3)))
			if err == nil && answer.GetOverallCode() != pb.RateLimitResponse_OK {
				err = errors.New("over its limit")
			}
			answers <- err
		}()
	}
	for counters.namespaces[0].Stats().WaitedRequests <= waiting { // the first one has gone
		runtime.Gosched()
	}
	var ending sync.WaitGroup
	ending.Go(on.end)
	close(way.lets) // when it may have begun to end
	for range waiting {
		must.Report(t, <-answers)
	}
	ending.Wait()
	must.Report(t, counters.Close(t.Context()))
	// The hits of requests that were answered are counted, and nothing else.
	must.Equal(t, backendtest.Sum(t, counts, DefaultNamespace), waiting, "hits of requests that were answered")
}

// While the backend is away, requests are answered as the mode says.
func TestBackendIsAway(t *testing.T) {
	t.Parallel()
	for mode, want := range map[ratelimit.FailureMode]string{
		ratelimit.FailLocal: "OK OK OVER_LIMIT", ratelimit.FailAllow: "OK OK OK", ratelimit.FailDeny: "OVER_LIMIT OVER_LIMIT OVER_LIMIT",
	} {
		s := serviceOn(t, CounterOptions{Backend: away{}, Timeout: 10 * time.Millisecond, OnBackendFailure: mode},
			"domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 2}}]", ServiceOptions{})
		var got []string
		for range 3 {
			answer := must.Get(s.ShouldRateLimit(t.Context(), request("d", "k=v")))(t)
			got = append(got, answer.GetOverallCode().String())
		}
		must.Equal(t, strings.Join(got, " "), want, "%v", mode)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		must.Fails(t, s.options.Counters.Close(ctx), "what was not pushed")
	}
}

type away struct{}

func (away) Push(context.Context, []byte) ([]byte, error) { return nil, errors.New("away") }

// A descriptor without hits passes while its limit is just used up, and not when that has refused hits, however
// a domain charges.
func TestAsksWithoutHits(t *testing.T) {
	t.Parallel()
	for _, charge := range charges {
		s := start(t, newClock(), "domain: d\ncharge: "+charge+"\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 2}}, {key: none, rate_limit: {unit: day, requests_per_unit: 0}}]", ServiceOptions{})
		look := func(descriptor string) string {
			text, _, _ := strings.Cut(told(t, s, costing(0, descriptor)), " ")
			return text
		}
		got := look("k=v") + " " + look("none=v")
		for range 2 {
			told(t, s, request("d", "k=v"))
		}
		got += " " + look("k=v")
		for _, key := range []string{"k=v", "none=v"} {
			if refused := told(t, s, request("d", key)); !strings.HasPrefix(refused, "OVER_LIMIT") {
				t.Errorf("%s: %s", key, refused)
			}
		}
		got += " " + look("k=v") + " " + look("none=v") + " " + look("k=other")
		must.Equal(t, got, "OK OK OK OVER_LIMIT OVER_LIMIT OK", "%s", charge)
	}
}

// Hits that are too many to add up are refused, however a domain charges.
func TestHitsThatAreTooMany(t *testing.T) {
	t.Parallel()
	for _, charge := range charges {
		s := start(t, newClock(), "domain: d\ncharge: "+charge+"\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 2}}]", ServiceOptions{Stats: NewStats()})
		for _, hits := range []uint64{1 << 63, math.MaxUint64, math.MaxUint64/2 + 2} {
			if answer := told(t, s, costing(hits, "k=v", "k=v")); !strings.HasPrefix(answer, "OVER_LIMIT") {
				t.Errorf("%s: two descriptors of %d hits: %s", charge, hits, answer)
			}
		}
	}
}

// Descriptors of the same counter are decided one after the other, however many others stand between them.
func TestSameDescriptorsFarApart(t *testing.T) {
	t.Parallel()
	s := start(t, newClock(), "domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 10}}]", ServiceOptions{})
	all := []string{"k=same"}
	for i := range maxDescriptors - 2 {
		all = append(all, fmt.Sprint("k=", i))
	}
	answer := must.Get(s.ShouldRateLimit(t.Context(), request("d", append(all, "k=same")...)))(t)
	for i, status := range answer.GetStatuses() {
		want := uint32(9)
		if i == maxDescriptors-1 {
			want = 8
		}
		must.Equal(t, status.GetCode(), pb.RateLimitResponse_OK, "descriptor %d", i)
		must.Equal(t, status.GetLimitRemaining(), want, "descriptor %d: left", i)
	}
}
