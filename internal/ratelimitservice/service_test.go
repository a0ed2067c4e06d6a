package ratelimitservice

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/fields"
	"weir/internal/must"
	"weir/internal/trust"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// clock is a time that stands still until it is moved.
type clock struct{ nanos atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(0, c.nanos.Load()) }
func (c *clock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

func newClock() *clock {
	c := &clock{}
	c.nanos.Store(time.Date(2026, 11, 23, 12, 0, 15, 5e8, time.UTC).UnixNano())
	return c
}

// start makes a service that counts in this process.
func start(t *testing.T, c *clock, text string, o ServiceOptions) *Service {
	t.Helper()
	return serviceOn(t, CounterOptions{Now: c.now}, text, o)
}

// serviceOn makes a service with counters of its own.
func serviceOn(t testing.TB, counters CounterOptions, text string, o ServiceOptions) *Service {
	t.Helper()
	o.Counters = NewCounters(counters)
	s := NewService(o)
	use(t, s, text)
	return s
}

func use(t testing.TB, s *Service, text string) {
	t.Helper()
	read, err := Read([]File{{"test.yaml", []byte(text)}}, Options{})
	if err == nil {
		err = s.Use(read)
	}
	must.OK(t, err)
}

// descriptor makes one of "key=value,key=value".
func descriptorOf(text string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for entry := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(entry, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

func request(domain string, descriptors ...string) *pb.RateLimitRequest {
	r := &pb.RateLimitRequest{Domain: domain}
	for _, d := range descriptors {
		r.Descriptors = append(r.Descriptors, descriptorOf(d))
	}
	return r
}

// costing is a request of the domain d each of whose descriptors costs so many hits.
func costing(hits uint64, descriptors ...string) *pb.RateLimitRequest {
	r := request("d", descriptors...)
	for _, d := range r.Descriptors {
		d.HitsAddend = wrapperspb.UInt64(hits)
	}
	return r
}

// told is an answer in brief: the code, and of each descriptor its code, what remains of which limit
// and the seconds until it is reset.
func told(t *testing.T, s *Service, r *pb.RateLimitRequest) string {
	t.Helper()
	answer, err := s.ShouldRateLimit(t.Context(), r)
	if err != nil {
		return "error: " + err.Error()
	}
	text := answer.OverallCode.String()
	for _, s := range answer.Statuses {
		text += " | " + s.Code.String()
		if l := s.CurrentLimit; l != nil {
			text += fmt.Sprintf(" %d/%d %v %ds", s.LimitRemaining, l.RequestsPerUnit, l.Unit, s.DurationUntilReset.GetSeconds())
			if l.Name != "" {
				text += " " + l.Name
			}
		} else if s.LimitRemaining != 0 {
			text += fmt.Sprintf(" %d", s.LimitRemaining)
		}
	}
	return text
}

// step is a request, and its answer in brief, which may be cut behind a blank.
type step struct {
	request *pb.RateLimitRequest
	want    string
}

func wantSteps(t *testing.T, s *Service, steps ...step) {
	t.Helper()
	for i, step := range steps {
		if got := told(t, s, step.request); got != step.want && (!strings.HasSuffix(step.want, " ") || !strings.HasPrefix(got, step.want)) {
			t.Errorf("step %d, %v: got %s, want %s", i, step.request, got, step.want)
		}
	}
}

const messaging = `
domain: messaging
descriptors:
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: {unit: day, requests_per_unit: 2}
  - key: to_number
    rate_limit: {unit: Minute, requests_per_unit: 3, name: number}
  - key: vip
    rate_limit: {unit: hour, requests_per_unit: 5, replaces: [{name: number}]}
  - key: internal
    rate_limit: {unlimited: true}
  - {key: open}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: second, requests_per_unit: 1}
  - key: none
    rate_limit: {unit: month, requests_per_unit: 0}
  - key: path
    value: /api/*/action
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: path
    value: /files/*
    share_threshold: true
    rate_limit: {unit: week, requests_per_unit: 2}
  - key: path
    rate_limit: {unit: minute, requests_per_unit: 9}
  - key: path
    value: /files/one
    rate_limit: {unit: minute, requests_per_unit: 8}
`

func TestAnswers(t *testing.T) {
	t.Parallel()
	s := start(t, newClock(), messaging, ServiceOptions{})
	wantSteps(t, s, []step{
		// A descriptor matches limits of its depth.
		{request("messaging", "message_type=marketing,to_number=1", "to_number=1"), "OK | OK 1/2 DAY 43185s | OK 2/3 MINUTE 45s number"},
		{request("messaging", "message_type=marketing,to_number=1", "to_number=1"), "OK | OK 0/2 DAY 43185s | OK 1/3 MINUTE 45s number"},
		{request("messaging", "message_type=marketing,to_number=1", "to_number=1"), "OVER_LIMIT | OVER_LIMIT 0/2 DAY 43185s | OK 0/3 MINUTE 45s number"},
		{request("messaging", "message_type=marketing,to_number=1", "to_number=1"), "OVER_LIMIT | OVER_LIMIT 0/2 DAY 43185s | OVER_LIMIT 0/3 MINUTE 45s number"},
		{request("messaging", "to_number=2"), "OK | OK 2/3 MINUTE 45s number"},
		{request("messaging", "message_type=marketing", "message_type=other,to_number=1", "to_number=1,more=x"), "OK | OK | OK | OK"},
		// A limit that another one replaces is not counted.
		{request("messaging", "to_number=2", "vip=2"), "OK | OK | OK 4/5 HOUR 3585s"},
		{request("messaging", "to_number=2"), "OK | OK 1/3 MINUTE 45s number"},
		{request("messaging", "internal=", "open=", "unknown="), "OK | OK 4294967295 | OK | OK"},
		{request("nobody", "to_number=2"), "OK | OK"},
		{request("messaging", "shadow=1"), "OK | OK 0/1 SECOND 1s"},
		{request("messaging", "shadow=1"), "OK | OK 0/1 SECOND 1s"},
		{request("messaging", "none=1"), "OVER_LIMIT | OVER_LIMIT 0/0 MONTH 820785s"},
		// The value, then wildcards, then the key.
		{request("messaging", "path=/api/1/action"), "OK | OK 0/1 YEAR "},
		{request("messaging", "path=/api/1/action"), "OVER_LIMIT | OVER_LIMIT 0/1 YEAR "},
		{request("messaging", "path=/api/2/action"), "OK | OK 0/1 YEAR "},
		{request("messaging", "path=/api/2/other"), "OK | OK 8/9 MINUTE 45s"},
		{request("messaging", "path=/files/two"), "OK | OK 1/2 WEEK "},
		{request("messaging", "path=/files/three"), "OK | OK 0/2 WEEK "},
		{request("messaging", "path=/files/one"), "OK | OK 7/8 MINUTE 45s"},
		{&pb.RateLimitRequest{Domain: "messaging"}, "error: rate limit descriptor list must not be empty"},
		{request("", "path=/"), "error: rate limit domain must not be empty"},
	}...)
}

func TestHits(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := start(t, c, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 10}}]", ServiceOptions{})
	ask := func(request, descriptor int) *pb.RateLimitRequest {
		r := &pb.RateLimitRequest{Domain: "d", HitsAddend: uint32(request), Descriptors: []*common.RateLimitDescriptor{descriptorOf("k=v")}}
		if descriptor >= 0 {
			r.Descriptors[0].HitsAddend = wrapperspb.UInt64(uint64(descriptor))
		}
		return r
	}
	wantSteps(t, s, []step{
		{ask(0, -1), "OK | OK 9/10 MINUTE 45s"},
		{ask(3, -1), "OK | OK 6/10 MINUTE 45s"},
		{ask(3, 0), "OK | OK 6/10 MINUTE 45s"},
		{ask(3, 2), "OK | OK 4/10 MINUTE 45s"},
		// A cost without room uses up what is left, as there.
		{ask(5, -1), "OVER_LIMIT | OVER_LIMIT 0/10 MINUTE 45s"},
		{ask(1, -1), "OVER_LIMIT | OVER_LIMIT 0/10 MINUTE 45s"},
		{ask(1, 0), "OVER_LIMIT | OVER_LIMIT 0/10 MINUTE 45s"},
		{ask(500, -1), "OVER_LIMIT | OVER_LIMIT 0/10 MINUTE 45s"},
	}...)
	c.advance(45 * time.Second)
	wantSteps(t, s, []step{
		{ask(1, -1), "OK | OK 9/10 MINUTE 60s"},
		// Hits that never pass are charged, too: those that Envoy tells when a stream has ended.
		{ask(500, -1), "OVER_LIMIT | OVER_LIMIT 0/10 MINUTE 60s"},
		{ask(0, 0), "OVER_LIMIT | OVER_LIMIT 0/10 MINUTE 60s"},
	}...)
}

// Hits that were given back are there for the next request, of each algorithm and also after a refusal, and
// a limit that was refused before has refused nothing since.
func TestNegativeHitsAfterRefusal(t *testing.T) {
	t.Parallel()
	for algorithm, charge := range map[string]string{
		"algorithm: fixed_window": "all", "algorithm: fixed_window, unit: minute": "refusing", "unit: minute": "all_or_none",
		"algorithm: sliding_log": "all", "algorithm: sliding_window": "all", "algorithm: token_bucket": "all", "algorithm: sliding_window, precision: 1s": "all",
		"algorithm: fixed_window, start: first_hit": "all",
	} {
		unit := "unit: minute, "
		if strings.Contains(algorithm, "unit") {
			unit = ""
		}
		s := start(t, newClock(), "domain: d\ngive_back: true\ncharge: "+charge+"\ndescriptors: [{key: k, rate_limit: {"+unit+"requests_per_unit: 30, "+algorithm+"}}]", ServiceOptions{})
		for i, step := range []struct {
			hits uint64
			back bool
			want string
		}{
			{30, false, "OK | OK 0/30"},
			{0, false, "OK | OK 0/30"},
			{1, false, "OVER_LIMIT | OVER_LIMIT 0/30"},
			{0, false, "OVER_LIMIT | OVER_LIMIT 0/30"},
			{20, true, "OK | OK 20/30"},
			{0, false, "OK | OK 20/30"},
			{1, false, "OK | OK 19/30"},
			{19, false, "OK | OK 0/30"},
			{0, false, "OK | OK 0/30"},
			{0, true, "OK | OK 0/30"},
			{1, false, "OVER_LIMIT | OVER_LIMIT 0/30"},
			{100, true, "OK | OK 30/30"},
		} {
			r := costing(step.hits, "k=v")
			r.Descriptors[0].IsNegativeHits = step.back
			if got := told(t, s, r); !strings.HasPrefix(got, step.want) {
				t.Errorf("%s, charge %s, step %d: got %s, want %s", algorithm, charge, i, got, step.want)
			}
		}
	}
}

// Where the token file names certificates, clients of gRPC need one that may push to the service's
// namespace, to ask and to give back.
func TestCertificatesMayPush(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	for _, test := range []struct {
		lines, name string
		allowed     bool
	}{
		{"ratelimit certificate=envoy verbs=push", "envoy", true},
		{"* certificate=envoy", "envoy", true},
		{"ratelimit certificate=envoy verbs=read,change", "envoy", false},
		{"ratelimit2 certificate=envoy verbs=push", "envoy", false},
		{"ratelimit certificate=envoy verbs=push", "other", false},
		{"ratelimit certificate=envoy verbs=push", "", false},
		{"ratelimit token verbs=read", "", true}, // the listener's own rules hold
	} {
		must.OK(t, os.WriteFile(file, []byte(test.lines), 0o600))
		tokens := must.Get(trust.ReadTokens(file, time.Now, slog.New(slog.DiscardHandler)))(t)
		s := start(t, newClock(), "domain: d\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 10}}]", ServiceOptions{Tokens: tokens, GiveBack: true})
		ctx := t.Context()
		if test.name != "" {
			leaf := &x509.Certificate{Subject: pkix.Name{CommonName: test.name}}
			state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
			ctx = peer.NewContext(ctx, &peer.Peer{AuthInfo: credentials.TLSInfo{State: state}})
		}
		take, back := request("d", "k=v"), costing(1, "k=v")
		back.Descriptors[0].IsNegativeHits = true
		for _, r := range []*pb.RateLimitRequest{take, back} {
			if _, err := s.ShouldRateLimit(ctx, r); (err == nil) != test.allowed || err != nil && status.Code(err) != codes.PermissionDenied {
				t.Errorf("%q with the certificate %q: %v", test.lines, test.name, err)
			}
		}
	}
}

// Hits are given back only where the domain says so, or to those whom the listener trusts. Elsewhere
// the request gets an error, and nothing changes.
func TestWhoGivesBack(t *testing.T) {
	t.Parallel()
	limit := "descriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 10}}]"
	for name, test := range map[string]struct {
		domain  string
		trusted bool
		allowed bool
	}{
		"by default":          {"domain: d\n" + limit, false, false},
		"give_back: false":    {"domain: d\ngive_back: false\n" + limit, false, false},
		"give_back: true":     {"domain: d\ngive_back: true\n" + limit, false, true},
		"another domain's":    {"domain: d\n" + limit + "\n---\ndomain: e\ngive_back: true\n" + limit, false, false},
		"a trusted listener":  {"domain: d\n" + limit, true, true},
		"a second descriptor": {"domain: d\n" + limit, false, false},
	} {
		s := start(t, newClock(), test.domain, ServiceOptions{GiveBack: test.trusted})
		told(t, s, costing(10, "k=v"))
		back := request("d", "k=v")
		if name == "a second descriptor" {
			back = request("d", "other=v", "k=v")
		}
		last := len(back.Descriptors) - 1
		back.Descriptors[last].HitsAddend, back.Descriptors[last].IsNegativeHits = wrapperspb.UInt64(4), true
		_, err := s.ShouldRateLimit(t.Context(), back)
		must.Equal(t, status.Code(err) != codes.PermissionDenied, test.allowed, "%s: allowed, got %v", name, err)
		want := "OK | OK 0/10 MINUTE 45s"
		if test.allowed {
			want = "OK | OK 4/10 MINUTE 45s"
		}
		must.Equal(t, told(t, s, costing(0, "k=v")), want, "%s: then", name)
		// The gRPC listener allows it, and that of /json does not.
		if name == "a trusted listener" {
			_, err := s.respond(t.Context(), back, false)
			must.Equal(t, status.Code(err), codes.PermissionDenied, "another listener: %v", err)
		}
	}
}

func headersOf(answer *pb.RateLimitResponse) string {
	var all []string
	for _, h := range answer.ResponseHeadersToAdd {
		all = append(all, h.Key+": "+h.Value)
	}
	return strings.Join(all, ", ")
}

// TestFields has answers describe all limits.
func TestFields(t *testing.T) {
	t.Parallel()
	s := start(t, newClock(), `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: plan, descriptors: [{key: 'of "x"', rate_limit: {unit: hour, requests_per_unit: 5, name: plan, algorithm: token_bucket}}]}
  - {key: quiet, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
`, ServiceOptions{Fields: fields.RateLimit | fields.RetryAfter})
	for i, want := range []string{
		`ratelimit-policy: "user";q=1;w=60, "plan";q=5;w=3600, ratelimit: "user";r=0;t=45, "plan";r=4;t=720`,
		`ratelimit-policy: "user";q=1;w=60, "plan";q=5;w=3600, ratelimit: "user";r=0;t=45, "plan";r=3;t=720, retry-after: 45`,
	} {
		answer := must.Get(s.ShouldRateLimit(t.Context(), request("d", "user=1", `plan=1,of "x"=2`, "quiet=1")))(t)
		must.Equal(t, headersOf(answer), want, "answer %d", i)
	}
	answer := must.Get(s.ShouldRateLimit(t.Context(), request("d", "nobody=1")))(t)
	must.Equal(t, len(answer.ResponseHeadersToAdd), 0, "headers without a limit")
}

// Retry-After is not before the t of a limit without room, though that limit has refused nothing: it has given its last hit
// to this request, or is only asked.
func TestRetryAfterLimitsWithoutRoom(t *testing.T) {
	t.Parallel()
	const text = `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: plan, rate_limit: {unit: hour, requests_per_unit: 2}}
`
	for name, test := range map[string]struct {
		look  string // a descriptor of the last request that takes nothing
		first []string
		want  string
	}{
		"it gives its last hit":     {"", nil, `ratelimit: "user";r=0;t=45, "plan";r=0;t=3585, retry-after: 3585`},
		"it is asked, and full":     {"plan", []string{"plan=1"}, `ratelimit: "user";r=0;t=45, "plan";r=0;t=3585, retry-after: 3585`},
		"it is asked, and has room": {"plan", nil, `ratelimit: "user";r=0;t=45, "plan";r=1;t=3585, retry-after: 45`},
	} {
		s := start(t, newClock(), text, ServiceOptions{Fields: fields.RateLimit | fields.RetryAfter})
		for _, also := range test.first {
			must.Get(s.ShouldRateLimit(t.Context(), request("d", also)))(t)
		}
		must.Get(s.ShouldRateLimit(t.Context(), request("d", "user=1", "plan=1")))(t)
		last := request("d", "user=1", "plan=1")
		for _, d := range last.Descriptors {
			if d.Entries[0].Key == test.look {
				d.HitsAddend = wrapperspb.UInt64(0)
			}
		}
		answer := must.Get(s.ShouldRateLimit(t.Context(), last))(t)
		must.Equal(t, headersOf(answer), `ratelimit-policy: "user";q=1;w=60, "plan";q=2;w=3600, `+test.want, "%s", name)
	}
}

// A quota refuses nothing while another has room. So Retry-After is when the first of them has room again.
func TestRetryAfterOfQuotas(t *testing.T) {
	t.Parallel()
	s := start(t, newClock(), `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: first, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: second, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: none, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: shadow, shadow_mode: true, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
`, ServiceOptions{Fields: fields.RetryAfter})
	for _, test := range []struct {
		descriptors []string
		times       int
		want        string
	}{
		{[]string{"first=1", "second=1"}, 4, "retry-after: 3585"},
		{[]string{"user=1", "first=2", "second=1"}, 2, "retry-after: 45"},
		{[]string{"none=1", "first=1"}, 1, "retry-after: 3585"},
		{[]string{"none=1"}, 1, ""},
		{[]string{"user=1", "first=2", "shadow=1"}, 1, "retry-after: 45"},
	} {
		got := ""
		for range test.times {
			answer := must.Get(s.ShouldRateLimit(t.Context(), request("d", test.descriptors...)))(t)
			got = headersOf(answer)
		}
		must.Equal(t, got, test.want, "%v, asked %d times", test.descriptors, test.times)
	}
}

// A limit that a request has itself holds beside the configuration's limit on the same counter, however they are charged.
func TestLimitOfADescriptor(t *testing.T) {
	t.Parallel()
	ask := func(limit uint32, unit typev3.RateLimitUnit) *pb.RateLimitRequest {
		r := request("messaging", "to_number=1")
		r.Descriptors[0].Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: limit, Unit: unit}
		return r
	}
	elsewhere := ask(5, typev3.RateLimitUnit_MINUTE)
	elsewhere.Domain = "nobody"
	multiplied := func(by uint32) *pb.RateLimitRequest {
		r := ask(10, typev3.RateLimitUnit_HOUR)
		r.Descriptors[0].Limit.UnitMultiplier = wrapperspb.UInt32(by)
		return r
	}
	both := request("messaging", "to_number=2", "to_number=2")
	both.Descriptors[1].Limit = ask(2, typev3.RateLimitUnit_MINUTE).Descriptors[0].Limit
	same := request("messaging", "to_number=3", "to_number=3") // with one limit, of the file and of the request
	same.Descriptors[1].Limit = ask(3, typev3.RateLimitUnit_MINUTE).Descriptors[0].Limit
	together := [3]string{"OK | OK 1/3 MINUTE 45s number | OK 0/2 MINUTE 45s", "OVER_LIMIT | OK 1/3 MINUTE 45s number | OVER_LIMIT 0/2 MINUTE 45s",
		"OVER_LIMIT | OVER_LIMIT 0/3 MINUTE 45s number | OVER_LIMIT 0/3 MINUTE 45s"}
	for charge, want := range map[string][3]string{
		"all": {"OK | OK 2/3 MINUTE 45s number | OK 0/2 MINUTE 45s", "OVER_LIMIT | OK 0/3 MINUTE 45s number | OVER_LIMIT 0/2 MINUTE 45s",
			"OVER_LIMIT | OK 0/3 MINUTE 45s number | OVER_LIMIT 0/3 MINUTE 45s"},
		"refusing":    together,
		"all_or_none": together,
	} {
		t.Run(charge, func(t *testing.T) {
			wantSteps(t, start(t, newClock(), "charge: "+charge+messaging, ServiceOptions{}), []step{
				{request("messaging", "to_number=1"), "OK | OK 2/3 MINUTE 45s number"},
				{ask(5, typev3.RateLimitUnit_MINUTE), "OK | OK 3/5 MINUTE 45s"},
				{ask(5, typev3.RateLimitUnit_HOUR), "OK | OK 4/5 HOUR 3585s"},
				{request("messaging", "to_number=1"), "OK | OK 0/3 MINUTE 45s number"},
				{ask(1, typev3.RateLimitUnit_UNKNOWN), "error: rpc error: code = InvalidArgument desc = a descriptor's limit has the unknown unit UNKNOWN"},
				{multiplied(30), "error: rpc error: code = InvalidArgument desc = a descriptor's limit has a unit_multiplier of 30: want 1"},
				{multiplied(0), "error: rpc error: code = InvalidArgument desc = a descriptor's limit has a unit_multiplier of 0: want 1"},
				{multiplied(1), "OK | OK 8/10 HOUR 3585s"},
				{elsewhere, "OK | OK"},
				{both, want[0]},
				{both, want[1]},
				{request("messaging", "to_number=3"), "OK | OK 2/3 MINUTE 45s number"},
				{request("messaging", "to_number=3"), "OK | OK 1/3 MINUTE 45s number"},
				{same, want[2]},
			}...)
		})
	}
}

func TestModes(t *testing.T) {
	t.Parallel()
	const text = `
domain: d
descriptors:
  - {key: a, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: b, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: c, rate_limit: {unit: minute, requests_per_unit: 1}}
`
	codes := func(charge string, o ServiceOptions, descriptors ...string) (codes string) {
		s := start(t, newClock(), "charge: "+charge+text, o)
		for range 3 {
			answer := must.Get(s.ShouldRateLimit(t.Context(), request("d", descriptors...)))(t)
			codes += fmt.Sprint(answer.OverallCode, " ")
		}
		return codes
	}
	for _, test := range []struct {
		options     ServiceOptions
		descriptors []string
		want        string
	}{
		{ServiceOptions{}, []string{"a=1", "b=1"}, "OK OK OVER_LIMIT "},
		{ServiceOptions{}, []string{"a=1", "c=1"}, "OK OVER_LIMIT OVER_LIMIT "},
		{ServiceOptions{Quota: true}, []string{"b=1", "c=1"}, "OK OK OVER_LIMIT "},
		{ServiceOptions{Quota: true}, []string{"b=1", "none=1"}, "OK OK OVER_LIMIT "}, // what has no limit is no quota with room
		{ServiceOptions{Shadow: true}, []string{"a=1", "c=1"}, "OK OK OK "},
	} {
		for _, charge := range charges {
			must.Equal(t, codes(charge, test.options, test.descriptors...), test.want, "%v of %+v, charge %s", test.descriptors, test.options, charge)
		}
	}
}

func TestHeadersAndMetadata(t *testing.T) {
	t.Parallel()
	const text = `
domain: d
descriptors:
  - {key: a, metadata: {plan: {name: gold, of: [1, x]}, a: 1}, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: b, metadata: {plan: {name: free, since: 2020}}, rate_limit: {unit: hour, requests_per_unit: 3}}
`
	s := start(t, newClock(), text, ServiceOptions{Headers: &Headers{"Limit", "Remaining", "Reset"}, Metadata: true})
	for i, want := range []string{
		`headers Limit 1 Remaining 0 Reset 45 {"descriptors":[{"entries":["a=1"]}, {"entries":["b=1"]}], "domain":"d", "metadata":{"a":1, "plan":{"name":"gold", "of":[1, "x"], "since":2020}}}`,
		`headers Limit 1 Remaining 0 Reset 45 {"descriptors":[{"entries":["a=1"]}, {"entries":["b=1"]}], "domain":"d", "metadata":{"plan":{"name":"free", "since":2020}}}`,
	} {
		answer := must.Get(s.ShouldRateLimit(t.Context(), request("d", "a=1", "b=1")))(t)
		got := "headers"
		for _, h := range answer.ResponseHeadersToAdd {
			got += " " + h.Key + " " + h.Value
		}
		metadata := must.Get(protojson.MarshalOptions{}.Marshal(answer.DynamicMetadata))(t)
		got += " " + string(metadata)
		// protojson has its spaces at random.
		must.Equal(t, strings.ReplaceAll(got, " ", ""), strings.ReplaceAll(want, " ", ""), "answer %d", i)
	}
}

// TestOtherConfigurations wants counters to stay as they are when another configuration comes, and
// changed limits to apply at once.
func TestOtherConfigurations(t *testing.T) {
	t.Parallel()
	s := start(t, newClock(), "domain: d\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 2}}]", ServiceOptions{})
	for _, c := range []struct{ limit, want string }{
		{"{unit: minute, requests_per_unit: 2}", "OK | OK 1/2 MINUTE 45s"},
		{"{unit: minute, requests_per_unit: 5}", "OK | OK 3/5 MINUTE 45s"},
		{"{unit: hour, requests_per_unit: 5}", "OK | OK 4/5 HOUR 3585s"},
		{"{unit: minute, requests_per_unit: 2}", "OVER_LIMIT | OVER_LIMIT 0/2 MINUTE 45s"},
	} {
		use(t, s, "domain: d\ndescriptors: [{key: k, rate_limit: "+c.limit+"}]")
		wantSteps(t, s, step{request("d", "k=v"), c.want})
	}
}

func TestAlgorithms(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := start(t, c, `
domain: d
descriptors:
  - {key: bucket, rate_limit: {unit: minute, requests_per_unit: 6, algorithm: token_bucket, burst: 2}}
  - {key: first, rate_limit: {window: 90s, requests_per_unit: 2, start: first_hit}}
  - {key: sliding, rate_limit: {unit: minute, requests_per_unit: 2, algorithm: sliding_window, precision: 10s}}
  - {key: log, rate_limit: {unit: minute, requests_per_unit: 2, algorithm: sliding_log}}
  - {key: month, rate_limit: {window: month, zone: Europe/Berlin, requests_per_unit: 2}}
`, ServiceOptions{})
	all := request("d", "bucket=1", "first=1", "sliding=1", "log=1", "month=1")
	wantSteps(t, s, step{all, "OK | OK 1/6 MINUTE 10s | OK 1/2 UNKNOWN 90s | OK 1/2 MINUTE 55s | OK 1/2 MINUTE 60s | OK 1/2 UNKNOWN 644385s"})
	c.advance(5 * time.Second)
	wantSteps(t, s, step{all, "OK | OK 0/6 MINUTE 15s | OK 0/2 UNKNOWN 85s | OK 0/2 MINUTE 60s | OK 0/2 MINUTE 60s | OK 0/2 UNKNOWN 644380s"})
}

// TestRefusing charges a request that is refused to the limits that refuse it.
func TestRefusing(t *testing.T) {
	t.Parallel()
	s := start(t, newClock(), `
domain: d
charge: refusing
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 4}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: q, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 3}}
`, ServiceOptions{})
	wantSteps(t, s, []step{
		{costing(2, "a=1", "b=1"), "OK | OK 2/4 MINUTE 45s | OK 1/3 MINUTE 45s"},
		{costing(2, "a=1", "b=1"), "OVER_LIMIT | OK 2/4 MINUTE 45s | OVER_LIMIT 0/3 MINUTE 45s"},
		{costing(1, "b=1"), "OVER_LIMIT | OVER_LIMIT 0/3 MINUTE 45s"},
		{costing(2, "a=1"), "OK | OK 0/4 MINUTE 45s"},
		// Where hits have room alone, but not together, another limit with room keeps its hits.
		{costing(1, "a=2"), "OK | OK 3/4 MINUTE 45s"},
		{costing(1, "a=2", "a=2", "b=2"), "OK | OK 1/4 MINUTE 45s | OK 1/4 MINUTE 45s | OK 2/3 MINUTE 45s"},
		{costing(1, "a=2", "a=2", "b=2"), "OVER_LIMIT | OVER_LIMIT 0/4 MINUTE 45s | OVER_LIMIT 0/4 MINUTE 45s | OK 2/3 MINUTE 45s"},
		{costing(1, "b=2"), "OK | OK 1/3 MINUTE 45s"},
		// Quotas that refuse together are charged, too.
		{costing(2, "a=3", "q=1"), "OK | OK 2/4 MINUTE 45s | OK 1/3 MINUTE 45s"},
		{costing(2, "a=3", "q=1"), "OVER_LIMIT | OK 2/4 MINUTE 45s | OVER_LIMIT 0/3 MINUTE 45s"},
		{costing(1, "a=3", "q=1"), "OVER_LIMIT | OK 2/4 MINUTE 45s | OVER_LIMIT 0/3 MINUTE 45s"},
		{costing(2, "a=3", "q=1", "q=2"), "OK | OK 0/4 MINUTE 45s | OVER_LIMIT 0/3 MINUTE 45s | OK 1/3 MINUTE 45s"},
		{costing(2, "a=3", "q=2"), "OVER_LIMIT | OVER_LIMIT 0/4 MINUTE 45s | OVER_LIMIT 0/3 MINUTE 45s"},
		{costing(1, "q=2"), "OK | OK 0/3 MINUTE 45s"},
	}...)
}

func TestAllOrNone(t *testing.T) {
	t.Parallel()
	stats := NewStats()
	s := start(t, newClock(), `
domain: d
charge: all_or_none
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 4}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: s, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: q, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
`, ServiceOptions{Stats: stats})
	look := costing(0, "b=1")
	wantSteps(t, s, []step{
		{request("d", "a=1", "b=1", "s=1"), "OK | OK 3/4 MINUTE 45s | OK 0/1 MINUTE 45s | OK 0/1 MINUTE 45s"},
		{look, "OK | OK 0/1 MINUTE 45s"},
		{request("d", "a=1", "b=1", "s=2"), "OVER_LIMIT | OK 3/4 MINUTE 45s | OVER_LIMIT 0/1 MINUTE 45s | OK 1/1 MINUTE 45s"},
		{look, "OVER_LIMIT | OVER_LIMIT 0/1 MINUTE 45s"},
		{request("d", "a=1", "s=1"), "OK | OK 2/4 MINUTE 45s | OK 0/1 MINUTE 45s"},
		// Two keys of a rule, and twice the same one.
		{request("d", "a=1", "a=2", "a=1"), "OK | OK 0/4 MINUTE 45s | OK 3/4 MINUTE 45s | OK 0/4 MINUTE 45s"},
		{request("d", "a=1", "a=2"), "OVER_LIMIT | OVER_LIMIT 0/4 MINUTE 45s | OK 3/4 MINUTE 45s"},
		{request("d", "b=2", "b=2"), "OVER_LIMIT | OVER_LIMIT 0/1 MINUTE 45s | OVER_LIMIT 0/1 MINUTE 45s"},
		{request("d", "x=2"), "OK | OK"},
		// Quotas refuse if all are spent, and the others keep their hits then.
		{request("d", "a=3", "q=1"), "OK | OK 3/4 MINUTE 45s | OK 0/1 MINUTE 45s"},
		{request("d", "a=3", "q=1", "s=3"), "OVER_LIMIT | OK 3/4 MINUTE 45s | OVER_LIMIT 0/1 MINUTE 45s | OK 1/1 MINUTE 45s"},
		{request("d", "a=3", "q=1", "q=2"), "OK | OK 2/4 MINUTE 45s | OVER_LIMIT 0/1 MINUTE 45s | OK 0/1 MINUTE 45s"},
	}...)
	must.Equal(t, stats.of("d", "s").counters[totalHits].Load(), 4, "hits of s, also of requests that others refuse")
}
