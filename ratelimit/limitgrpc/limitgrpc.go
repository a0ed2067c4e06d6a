// Package limitgrpc limits the calls to a gRPC server by package ratelimit. Clients get the same
// fields and the same refusals as from Weir's plugin.
//
// The fields are in the header metadata of a call that is answered. A call that fails without an
// answer, as refused calls do, has them in its trailer: a header would keep clients from retrying
// it by their retryPolicy.
//
// [UnaryServerInterceptor] and [StreamServerInterceptor] pass the allowed calls to a handler. A
// function of the program says which rules apply to a call, its keys, and its costs.
package limitgrpc

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"weir/internal/clientip"
	"weir/internal/fields"
	"weir/ratelimit"
	"weir/ratelimit/internal/answer"
)

// Headers is a set of response headers.
type Headers uint8

const (
	// RateLimit stands for ratelimit-policy and ratelimit, which list every limit.
	RateLimit Headers = Headers(fields.RateLimit)
	// XRateLimit stands for x-ratelimit-limit, -remaining and -reset, which describe the tightest
	// limit.
	XRateLimit Headers = Headers(fields.XRateLimit)
	// RetryAfter stands for retry-after, which only refusals have.
	RetryAfter Headers = Headers(fields.RetryAfter)
)

// ResetUnit is the unit of x-ratelimit-reset.
type ResetUnit uint8

const (
	// Seconds counts seconds from now.
	Seconds ResetUnit = ResetUnit(fields.Seconds)
	// Epoch is Unix time in seconds.
	Epoch ResetUnit = ResetUnit(fields.Epoch)
	// Milliseconds counts milliseconds from now.
	Milliseconds ResetUnit = ResetUnit(fields.Milliseconds)
)

// Demands returns what a call of a method, such as /shop.Orders/Place, takes from which rules. A
// call without demands passes as if there were no interceptor.
type Demands func(ctx context.Context, method string) []ratelimit.Demand

// Options configure an interceptor. The zero value has the plugin's defaults.
type Options struct {
	// Omit are headers not to send. Refusals have x-envoy-ratelimited all the same.
	Omit Headers
	// Reset is the unit of x-ratelimit-reset.
	Reset ResetUnit
}

// UnaryServerInterceptor returns an interceptor that passes only allowed calls to the handler.
//
// A refused call fails with RESOURCE_EXHAUSTED, and with a google.rpc.RetryInfo if waiting helps. A
// call that could not be decided fails with the status of its context, or with UNAVAILABLE.
func UnaryServerInterceptor(demands Demands, o Options) grpc.UnaryServerInterceptor {
	i := newInterceptor(demands, o)
	return func(ctx context.Context, request any, call *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		release, md, err := i.decide(ctx, call.FullMethod)
		defer release()
		var reply any
		if err == nil {
			reply, err = next(ctx, request)
		}
		if md != nil && (err != nil || grpc.SetHeader(ctx, md) != nil) { // fails if the handler has sent the header
			_ = grpc.SetTrailer(ctx, md) // fails only outside a server
		}
		return reply, err
	}
}

// StreamServerInterceptor is [UnaryServerInterceptor] for streams. It decides a stream once, when
// the stream begins.
func StreamServerInterceptor(demands Demands, o Options) grpc.StreamServerInterceptor {
	i := newInterceptor(demands, o)
	return func(server any, stream grpc.ServerStream, call *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		release, md, err := i.decide(stream.Context(), call.FullMethod)
		defer release()
		s := &limitedStream{ServerStream: stream, md: md}
		if err == nil {
			err = next(server, s)
		}
		if err == nil {
			s.header()
		}
		s.trailer()
		return err
	}
}

// limitedStream adds metadata to a stream's header when that is sent.
type limitedStream struct {
	grpc.ServerStream
	md   metadata.MD // nil for none
	once sync.Once
	told bool // whether the header has it
}

func (s *limitedStream) header() {
	s.once.Do(func() { s.told = s.md == nil || s.SetHeader(s.md) == nil }) // fails if the header was sent by the context
}

// trailer is called at the end, for a header that was never sent or was sent without the metadata.
func (s *limitedStream) trailer() {
	s.once.Do(func() {})
	if !s.told && s.md != nil {
		s.SetTrailer(s.md)
	}
}

func (s *limitedStream) SendHeader(md metadata.MD) error {
	s.header()
	return s.ServerStream.SendHeader(md)
}

func (s *limitedStream) SendMsg(message any) error {
	s.header()
	return s.ServerStream.SendMsg(message)
}

type interceptor struct {
	demands Demands
	writer  *answer.Writer
}

func newInterceptor(demands Demands, o Options) *interceptor {
	return &interceptor{demands, answer.NewWriter(fields.Set(o.Omit), fields.ResetUnit(o.Reset))}
}

// decide returns the metadata of the answer to a call, and an error if the call is not to be
// served. An allowed call holds its places until release is called.
func (i *interceptor) decide(ctx context.Context, method string) (release func(), md metadata.MD, err error) {
	demands := i.demands(ctx, method)
	if len(demands) == 0 {
		return func() {}, nil, nil
	}
	release, d, err := ratelimit.Acquire(ctx, demands...)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return release, nil, status.FromContextError(err).Err()
	case err != nil:
		return release, nil, status.Error(codes.Unavailable, err.Error())
	}
	md = metadata.MD{}
	i.writer.Write(&d, func(name string, value []byte) { md[name] = []string{string(value)} })
	if !d.Allowed {
		err = refusal(&d)
	}
	return release, md, err
}

// refusal returns the status of a refused call.
func refusal(d *ratelimit.Decision) error {
	s := status.New(codes.ResourceExhausted, fields.Exceeded)
	if d.RetryAfter == ratelimit.Never {
		return s.Err()
	}
	detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)})
	if err != nil {
		return s.Err()
	}
	return detailed.Err()
}

// ClientIP returns a part of a key: the network of the peer's address, as the plugin's selector
// client_ip gives it. The prefixes say how many bits of an IPv4 and of an IPv6 address to keep; 32
// and 64 are usual. The part has the raw bytes of the address, not text.
func ClientIP(ctx context.Context, ipv4Prefix, ipv6Prefix int) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	var memory [16]byte
	return string(clientip.Network([]byte(p.Addr.String()), ipv4Prefix, ipv6Prefix, &memory))
}
