package ratelimitservice

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/ratelimit"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
)

func TestServer(t *testing.T) {
	t.Parallel()
	s := start(t, newClock(), messaging, ServiceOptions{})
	on := serveService(t, s)
	answer, err := on.client.ShouldRateLimit(t.Context(), request("messaging", "to_number=1"))
	if err != nil || answer.OverallCode != pb.RateLimitResponse_OK || answer.Statuses[0].LimitRemaining != 2 {
		t.Errorf("answered %v, %v", answer, err)
	}
	_, err = on.client.ShouldRateLimit(t.Context(), request("", "to_number=1"))
	must.Equal(t, fmt.Sprint(err), "rpc error: code = Unknown desc = rate limit domain must not be empty", "without a domain")
	health := func() healthpb.HealthCheckResponse_ServingStatus {
		t.Helper()
		answer := must.Get(healthpb.NewHealthClient(on.connection).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "ratelimit"}))(t)
		return answer.Status
	}
	must.Equal(t, health(), healthpb.HealthCheckResponse_NOT_SERVING, "at first it is")
	on.server.Healthy(true)
	must.Equal(t, health(), healthpb.HealthCheckResponse_SERVING, "then it is")
	info := must.Get(reflectionpb.NewServerReflectionClient(on.connection).ServerReflectionInfo(t.Context()))(t)
	list := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
	must.OK(t, info.Send(list))
	if listed, err := info.Recv(); err != nil || !strings.Contains(listed.String(), "envoy.service.ratelimit.v3.RateLimitService") {
		t.Errorf("reflection tells %v, %v", listed, err)
	}
	must.OK(t, info.CloseSend())
	_, err = info.Recv()
	must.Is(t, err, io.EOF, "reflection ends with")
	on.end()
}

func TestHandler(t *testing.T) {
	t.Parallel()
	healthy := true
	handler := Handler(start(t, newClock(), messaging, ServiceOptions{}), HandlerOptions{Healthy: func() bool { return healthy }})
	for _, step := range []struct {
		path, body string
		code       int
		want       string
	}{
		{"/json", `{"domain": "messaging", "descriptors": [{"entries": [{"key": "to_number", "value": "1"}], "hitsAddend": "3"}]}`, http.StatusOK, `"overallCode":"OK"`},
		{"/json", `{"domain": "messaging", "descriptors": [{"entries": [{"key": "to_number", "value": "1"}]}]}`, http.StatusTooManyRequests, `"overallCode":"OVER_LIMIT"`},
		{"/json", `{"domain": "messaging"}`, http.StatusBadRequest, "list must not be empty"},
		{"/json", `{"domian": "messaging"}`, http.StatusBadRequest, "want a RateLimitRequest as JSON: (line 1:2): unknown field \"domian\""},
		{"/json", "{\"domain\": \"messaging\",\n  \"descriptors\": [{\"entries\": {}}]}", http.StatusBadRequest, "(line 2:31)"},
		{"/json", `{"domain": "messaging"`, http.StatusBadRequest, "unexpected EOF"},
		{"/json", ``, http.StatusBadRequest, "got an empty body"},
		{"/json", `{"domain": "` + strings.Repeat("x", 1<<20) + `"}`, http.StatusRequestEntityTooLarge, "want at most 1048576 bytes"},
		{"/healthcheck", "", http.StatusOK, "OK"},
		{"/other", "", http.StatusNotFound, ""},
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, step.path, strings.NewReader(step.body)))
		if got := strings.ReplaceAll(strings.ReplaceAll(w.Body.String(), "\u00a0", ""), " ", ""); w.Code != step.code || !strings.Contains(got, strings.ReplaceAll(step.want, " ", "")) {
			t.Errorf("%s %.100s: %d %s", step.path, step.body, w.Code, got)
		} else if strings.Contains(got, "rpcerror") || strings.Contains(got, "proto:") {
			t.Errorf("%s %.100s: it tells of the protocol: %s", step.path, step.body, got)
		}
	}
	healthy = false
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthcheck", nil))
	must.Equal(t, w.Code, http.StatusInternalServerError, "of an instance that is not healthy")
}

// /json refuses the pages of other sites, which reach everything that their browser does, and takes
// programs, and pages of its own address. It gives hits back as its own options say.
func TestJSONOfPages(t *testing.T) {
	t.Parallel()
	const body = `{"domain": "messaging", "descriptors": [{"entries": [{"key": "to_number", "value": "1"}], "hitsAddend": "0"}]}`
	s := start(t, newClock(), messaging, ServiceOptions{GiveBack: true})
	for name, test := range map[string]struct {
		host, target, body string
		headers            []string
		want               int
	}{
		"a program":                 {"", "weir:8080", body, nil, http.StatusOK},
		"a page's fetch":            {"", "weir:8080", body, []string{"Origin", "https://other.example", "Content-Type", "text/plain"}, http.StatusForbidden},
		"a page's form":             {"", "weir:8080", body, []string{"Origin", "null"}, http.StatusForbidden},
		"a page without an origin":  {"", "weir:8080", body, []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		"a sister site's":           {"", "weir:8080", body, []string{"Sec-Fetch-Site", "same-site"}, http.StatusForbidden},
		"another port's":            {"", "weir:8080", body, []string{"Origin", "http://weir:9090"}, http.StatusForbidden},
		"its own":                   {"", "weir:8080", body, []string{"Origin", "http://weir:8080"}, http.StatusOK},
		"a name for a local one":    {"127.0.0.1:8080", "evil.example:8080", body, []string{"Origin", "http://evil.example:8080"}, http.StatusMisdirectedRequest},
		"the local one":             {"127.0.0.1:8080", "localhost:8080", body, nil, http.StatusOK},
		"a program gives back":      {"", "weir:8080", strings.Replace(body, `"0"`, `"1", "isNegativeHits": true`, 1), nil, http.StatusForbidden},
		"a page's fetch gives back": {"", "weir:8080", strings.Replace(body, `"0"`, `"1", "isNegativeHits": true`, 1), []string{"Origin", "https://other.example"}, http.StatusForbidden},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "http://"+test.target+"/json", strings.NewReader(test.body))
		for i := 0; i < len(test.headers); i += 2 {
			r.Header.Set(test.headers[i], test.headers[i+1])
		}
		Handler(s, HandlerOptions{Host: test.host, Healthy: func() bool { return true }}).ServeHTTP(w, r)
		must.Equal(t, w.Code, test.want, "%s: %s", name, w.Body)
	}
}

// An internal error is none of the client's.
func TestJSONOfAnInternalError(t *testing.T) {
	clock, broken := newClock(), false
	s := serviceOn(t, CounterOptions{Now: func() time.Time {
		if broken {
			panic("a fault")
		}
		return clock.now()
	}}, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]", ServiceOptions{})
	for _, want := range []int{http.StatusOK, http.StatusInternalServerError} {
		w := httptest.NewRecorder()
		body := `{"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}`
		Handler(s, HandlerOptions{}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(body)))
		must.Equal(t, w.Code, want, "%s", w.Body)
		broken = true
	}
}

// TestInstances has several instances keep to one limit while their configuration is read again and
// again. Another instance finds the hits that they have not used when they end: the sum is exact. So are
// the hits of each value that the backend is told of as used.
func TestInstances(t *testing.T) {
	t.Parallel()
	for _, charge := range charges {
		t.Run(charge, func(t *testing.T) {
			t.Parallel()
			const limit, instances, askers = 500, 3, 8
			text := "domain: d\ncharge: " + charge + "\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 500}}]"
			counted := memory.New(memory.Options{})
			answers := backend.New(counted)
			instance := func() (*Service, *Counters) {
				s := serviceOn(t, CounterOptions{Backend: Local{Backend: answers}, Timeout: 5 * time.Second, Reveal: ratelimit.RevealPlain}, text, ServiceOptions{})
				return s, s.options.Counters
			}
			var passed [2]atomic.Uint64
			ask := func(s *Service, keys ...string) (ok bool) {
				r := request("d", keys...)
				answer, err := s.ShouldRateLimit(t.Context(), r)
				if err != nil {
					t.Error(err)
					return false
				}
				for i, d := range r.Descriptors {
					// Where all are charged, each passes by itself.
					if answer.OverallCode == pb.RateLimitResponse_OK || charge == "all" && answer.Statuses[i].Code == pb.RateLimitResponse_OK {
						passed[d.Entries[0].Value[0]-'0'].Add(1)
					}
				}
				return answer.OverallCode == pb.RateLimitResponse_OK
			}
			var running sync.WaitGroup
			for range instances {
				running.Go(func() {
					s, counters := instance()
					var asking sync.WaitGroup
					for a := range askers {
						asking.Go(func() {
							random := rand.New(rand.NewPCG(uint64(a), 1))
							for i := range 2 * limit / instances / askers {
								keys := []string{"k=0", "k=1"}
								if i%3 != 0 {
									keys = keys[random.IntN(2):][:1]
								}
								if ask(s, keys...); i%10 == 0 {
									use(t, s, text)
								}
							}
						})
					}
					asking.Wait()
					must.Report(t, counters.Close(context.Background()))
				})
			}
			running.Wait()
			s, counters := instance()
			for i, key := range []string{"k=0", "k=1"} {
				// A node that finds nothing left does not ask again at once.
				for begun := time.Now(); passed[i].Load() < limit && time.Since(begun) < time.Minute; {
					ask(s, key)
				}
				for ask(s, key) {
				}
				must.Equal(t, passed[i].Load(), limit, "passed of %d", limit)
			}
			must.Report(t, counters.Close(context.Background()))
			used := map[string]int64{}
			err := counted.Used(t.Context(), DefaultNamespace, 0, math.MaxUint32, func(row wire.UsedRow) error {
				label, _ := wire.DecodeUsedLabel(row.Label)
				used[label.Rule+string(label.Name)] += row.Hits
				return nil
			})
			if want := map[string]int64{"year\x02d\x02k\x020": limit, "year\x02d\x02k\x021": limit}; err != nil || !maps.Equal(used, want) {
				t.Errorf("%v are used, want %v (%v)", used, want, err)
			}
		})
	}
}
