package ratelimitservice

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"weir/internal/fields"
	"weir/internal/panics"
	"weir/internal/trust"
	"weir/ratelimit"
	"weir/window"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// maxDescriptors bounds the descriptors of a request, because each takes memory.
const maxDescriptors = 1000

// maxLarge bounds the large requests at a time, because each may take a megabyte. Others wait.
const maxLarge = 32

// mostHits bounds the hits of a descriptor. It is above any limit.
const mostHits = window.MaxHits

// The errors of requests. All but the last two have the texts of the rate limit service.
var (
	errNoDomain        = errors.New("rate limit domain must not be empty")
	errNoDescriptors   = errors.New("rate limit descriptor list must not be empty")
	errNoConfiguration = errors.New("no rate limit configuration loaded")
	errManyDescriptors = status.Errorf(codes.InvalidArgument, "want at most %d descriptors", maxDescriptors)
	errGiveBack        = status.Error(codes.PermissionDenied, "is_negative_hits: want give_back: true in the domain's file, or a listener that wants client certificates")
	errCertificate     = status.Error(codes.PermissionDenied, "the client's certificate may not push to the namespace of the rate limit service")
)

// ServiceOptions configure a [Service].
type ServiceOptions struct {
	Counters *Counters
	// Headers names the response headers that describe the tightest limit; nil sends none.
	Headers *Headers
	// Fields selects among the headers RateLimit, RateLimit-Policy and Retry-After.
	Fields fields.Set
	// Shadow makes the service refuse no request, and Quota treats all limits as if they had
	// quota_mode.
	Shadow, Quota bool
	// Metadata adds to answers the request, and the metadata of limits that have room.
	Metadata bool
	// GiveBack lets clients of gRPC give hits back in all domains: others can't reach the listener.
	// Otherwise they may only in domains with give_back.
	GiveBack bool
	// Tokens say what clients of gRPC may do by the names of their certificates, if it names any.
	Tokens *trust.Tokens
	// Stats counts hits; nil counts none.
	Stats *Stats
}

// Service answers requests. Make it with [NewService]. Its methods are safe for concurrent use.
type Service struct {
	pb.UnimplementedRateLimitServiceServer
	options       ServiceOptions
	configuration atomic.Pointer[Configuration]
	refusals      *refusals
	// large has a place for each request with more than maxTogether descriptors that is under way, and
	// bodies for each of JSON with more than smallBody bytes.
	large, bodies chan struct{}
}

// NewService returns a service without a configuration.
func NewService(o ServiceOptions) *Service {
	if o.Stats != nil {
		o.Stats.counters.Store(o.Counters)
	}
	return &Service{options: o, refusals: newRefusals(), large: make(chan struct{}, maxLarge), bodies: make(chan struct{}, maxLarge)}
}

// Use makes the service answer by a configuration from now on. After an error the previous
// configuration stays.
func (s *Service) Use(c *Configuration) error {
	if err := s.options.Counters.Bind(c); err != nil {
		return err
	}
	if of := s.options.Stats; of != nil {
		for name, d := range c.domains {
			d.count(of, name)
		}
		of.loads.Add(1)
	}
	s.configuration.Store(c)
	return nil
}

// count gives the limits of a level their series.
func (l *level) count(by *Stats, domain string) {
	for _, n := range l.byKey {
		if n.limit != nil {
			n.limit.series = by.of(domain, n.limit.path...)
		}
		n.count(by, domain)
	}
}

// count counts the decisions on a request.
func (s *Service) count(d *domain, r *pb.RateLimitRequest, all []asked, answer *pb.RateLimitResponse) {
	for i := range all {
		a := &all[i]
		if !a.limited() {
			continue
		}
		series, entries := a.limit.series, r.GetDescriptors()[i].GetEntries()
		switch {
		case series == nil: // the limit comes from the request
			path := make([]string, len(entries))
			for j, e := range entries {
				if path[j] = e.GetKey(); e.GetValue() != "" {
					path[j] = compose(e.GetKey(), e.GetValue())
				}
			}
			series = s.options.Stats.ofClient(s.options.Stats.other, r.GetDomain(), path)
		case a.limit.detailed || a.limit.named:
			series = s.options.Stats.ofClient(series, r.GetDomain(), d.labels(a.limit, entries))
		}
		series.count(a, answer.GetStatuses()[i].GetCode(), s.options.Stats.Near)
	}
}

// Configured reports whether the service has a configuration.
func (s *Service) Configured() bool { return s.configuration.Load() != nil }

// Domains returns the number of domains in the configuration.
func (s *Service) Domains() int {
	c := s.configuration.Load()
	if c == nil {
		return 0
	}
	return len(c.domains)
}

// asked is a descriptor of a request, with its limit and decision.
type asked struct {
	limit   *limit // nil if no limit applies
	limiter *ratelimit.Limiter
	key     ratelimit.Key
	hits    uint64
	back    uint64 // hits to give back, instead of hits to take
	looks   bool   // the descriptor asks for no hits
	rest    uint64 // what is left of a limit that has refused the hits, until it is taken
	next    *asked // the next descriptor with the same counter
	// refusals are the service's.
	refusals *refusals

	decision *ratelimit.Decision // nil until it is decided
}

// limited reports whether the descriptor has a counter.
func (a *asked) limited() bool { return a.limiter != nil }

// unlimited reports whether the configuration lets the descriptor pass without a limit.
func (a *asked) unlimited() bool { return a.limit != nil && a.limit.unlimited }

// ShouldRateLimit implements the rate limit service.
func (s *Service) ShouldRateLimit(ctx context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	if err := s.permit(ctx, r); err != nil {
		return nil, err
	}
	return s.respond(ctx, r, s.options.GiveBack)
}

// permit returns an error if the certificate of a client of gRPC is not for the request.
func (s *Service) permit(ctx context.Context, r *pb.RateLimitRequest) error {
	if !s.options.Tokens.Certificates() {
		return nil
	}
	var client trust.Client
	if p, ok := peer.FromContext(ctx); ok {
		if secure, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			client, _ = s.options.Tokens.Client("", trust.CertificateOf(&secure.State))
		}
	}
	call := trust.RateLimit
	if slices.ContainsFunc(r.GetDescriptors(), (*common.RateLimitDescriptor).GetIsNegativeHits) {
		call = trust.RateLimitGiveBack
	}
	if client.May(call, s.options.Counters.options.Namespace) != trust.Allowed {
		return errCertificate
	}
	return nil
}

// respond answers a request. giveBack is that of its listener.
func (s *Service) respond(ctx context.Context, r *pb.RateLimitRequest, giveBack bool) (*pb.RateLimitResponse, error) {
	answer, err := s.shouldRateLimit(ctx, r, giveBack)
	if err != nil && s.options.Stats != nil {
		s.options.Stats.serviceErrors.Add(1)
	}
	return answer, err
}

func (s *Service) shouldRateLimit(ctx context.Context, r *pb.RateLimitRequest, mayGiveBack bool) (answer *pb.RateLimitResponse, err error) {
	defer panics.Catch("a rate limit request", func(caught error) { answer, err = nil, statusOf(caught) })
	configuration := s.configuration.Load()
	switch {
	case r.GetDomain() == "":
		return nil, errNoDomain
	case len(r.GetDescriptors()) == 0:
		return nil, errNoDescriptors
	case len(r.GetDescriptors()) > maxDescriptors:
		return nil, errManyDescriptors
	case configuration == nil:
		return nil, errNoConfiguration
	}
	if len(r.GetDescriptors()) > maxTogether {
		select {
		case s.large <- struct{}{}:
			defer func() { <-s.large }()
		case <-ctx.Done():
			return nil, statusOf(ctx.Err())
		}
	}
	d := configuration.domains[r.GetDomain()]
	if !mayGiveBack && d != nil && !d.giveBack && slices.ContainsFunc(r.GetDescriptors(), (*common.RateLimitDescriptor).GetIsNegativeHits) {
		return nil, errGiveBack
	}
	all, err := s.find(d, r)
	if err != nil {
		return nil, err
	}
	if err := giveBack(ctx, all); err != nil {
		return nil, statusOf(err)
	}
	limited := make([]*asked, 0, len(all))
	for i := range all {
		if all[i].limited() {
			limited = append(limited, &all[i])
		}
	}
	if d != nil && d.charge != ChargeAll {
		err = decideTogether(ctx, limited, d.charge, s.options.Quota)
	} else {
		err = decide(ctx, limited)
	}
	if err != nil {
		return nil, statusOf(err)
	}
	answer = s.answer(r, all)
	if s.options.Stats != nil {
		s.count(d, r, all, answer)
	}
	return answer, nil
}

// statusOf turns the error of a decision into that for clients.
func statusOf(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return status.FromContextError(err).Err()
	case errors.Is(err, panics.Err):
		return status.Error(codes.Internal, err.Error())
	case errors.Is(err, ratelimit.ErrClosed):
		return status.Error(codes.Unavailable, "the service is shutting down")
	}
	return err
}

// find finds the limits of a request's descriptors. An unknown domain limits nothing.
func (s *Service) find(d *domain, r *pb.RateLimitRequest) ([]asked, error) {
	all := make([]asked, len(r.GetDescriptors()))
	if d == nil {
		return all, nil
	}
	name := s.options.Counters.options.KeyPrefix + r.GetDomain()
	replaced := map[string]bool(nil)
	for i, descriptor := range r.GetDescriptors() {
		a := &all[i]
		if a.hits = uint64(max(1, r.GetHitsAddend())); descriptor.GetHitsAddend() != nil {
			a.hits = descriptor.GetHitsAddend().GetValue()
		}
		a.hits = min(a.hits, mostHits) // so that several can be added up
		a.refusals = s.refusals
		if descriptor.GetIsNegativeHits() {
			a.hits, a.back = 0, a.hits
		}
		a.looks = a.hits == 0
		if said := descriptor.GetLimit(); said != nil {
			if err := s.override(a, d, name, descriptor); err != nil {
				return nil, err
			}
			continue
		}
		if a.limit, a.key = d.match(name, descriptor.GetEntries()); a.limit == nil {
			continue
		}
		a.limiter = a.limit.limiter
		for _, name := range a.limit.replaces {
			if replaced == nil {
				replaced = map[string]bool{}
			}
			replaced[name] = true
		}
	}
	for i := range all {
		if a := &all[i]; a.limited() && a.limit.name != "" && replaced[a.limit.name] {
			a.limit, a.limiter = nil, nil
		}
	}
	return all, nil
}

// override limits a descriptor by the limit that it has itself.
func (s *Service) override(a *asked, d *domain, name string, descriptor *common.RateLimitDescriptor) (err error) {
	said := descriptor.GetLimit()
	unit := pb.RateLimitResponse_RateLimit_Unit(said.GetUnit())
	shape, ok := shapeOf(unit, d.pace)
	if !ok {
		return status.Errorf(codes.InvalidArgument, "a descriptor's limit has the unknown unit %v", said.GetUnit())
	}
	if by := said.GetUnitMultiplier(); by != nil && by.GetValue() != 1 {
		return status.Errorf(codes.InvalidArgument, "a descriptor's limit has a unit_multiplier of %d: want 1", by.GetValue())
	}
	a.limit = &limit{shape: shape, told: &pb.RateLimitResponse_RateLimit{RequestsPerUnit: said.GetRequestsPerUnit(), Unit: unit}}
	a.key = keyOf(name, descriptor.GetEntries())
	a.limiter, err = s.options.Counters.said(shape, said.GetRequestsPerUnit())
	return err
}

// remaining returns how many more hits the limit would allow.
func (a *asked) remaining() uint32 {
	if !a.decision.Allowed {
		return 0
	}
	return uint32(min(a.decision.Remaining, math.MaxUint32))
}

// reset returns the time until the limit's window ends, or until all its hits have come back,
// rounded up to whole seconds.
func (a *asked) reset() time.Duration {
	if shape := &a.limit.shape; shape.onClock() && shape.window%time.Second == 0 {
		now := time.Duration(a.decision.At.Unix()) * time.Second
		return shape.window - now%shape.window
	}
	return (a.decision.ResetAfter + time.Second - 1).Truncate(time.Second)
}
