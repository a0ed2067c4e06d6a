// Package limitgrpc limits the calls of a gRPC server by package ratelimit. Clients read the fields
// that Weir's plugin sends from the calls' header metadata, and the same refusals.
//
// [UnaryServerInterceptor] and [StreamServerInterceptor] let a handler serve what limits
// allow. A function of the program says which rules a call is for, by which key, and what it costs.
package limitgrpc

import (
	"context"
	"errors"

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
	// XRateLimit stands for x-ratelimit-limit, -remaining and -reset, of the tightest limit.
	XRateLimit Headers = Headers(fields.XRateLimit)
	// RetryAfter stands for retry-after, on refusals.
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

// Demands says what a call of a method, such as /shop.Orders/Place, asks of which rules. A call
// that asks nothing of any is served as if there was no interceptor.
type Demands func(ctx context.Context, method string) []ratelimit.Demand

// Options change how an interceptor works. The zero value does as the plugin does by default.
type Options struct {
	// Omit are headers not to send. A refusal has x-envoy-ratelimited all the same.
	Omit Headers
	// Reset is the unit of x-ratelimit-reset.
	Reset ResetUnit
}

// UnaryServerInterceptor returns an interceptor that has calls served that limits allow.
//
// A call that is refused fails with RESOURCE_EXHAUSTED, and with a google.rpc.RetryInfo if waiting
// helps. A call that could not be decided fails as its context does, or with UNAVAILABLE.
func UnaryServerInterceptor(demands Demands, o Options) grpc.UnaryServerInterceptor {
	i := newInterceptor(demands, o)
	return func(ctx context.Context, request any, call *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		release, md, err := i.decide(ctx, call.FullMethod)
		defer release()
		if md != nil {
			_ = grpc.SetHeader(ctx, md) // fails if they are sent already, which is not the call's fault
		}
		if err != nil {
			return nil, err
		}
		return next(ctx, request)
	}
}

// StreamServerInterceptor is [UnaryServerInterceptor] for streams. A stream is decided once, when
// it begins.
func StreamServerInterceptor(demands Demands, o Options) grpc.StreamServerInterceptor {
	i := newInterceptor(demands, o)
	return func(server any, stream grpc.ServerStream, call *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		release, md, err := i.decide(stream.Context(), call.FullMethod)
		defer release()
		if md != nil {
			_ = stream.SetHeader(md) // fails if they are sent already, which is not the call's fault
		}
		if err != nil {
			return err
		}
		return next(server, stream)
	}
}

type interceptor struct {
	demands Demands
	writer  *answer.Writer
}

func newInterceptor(demands Demands, o Options) *interceptor {
	return &interceptor{demands, answer.NewWriter(fields.Set(o.Omit), fields.ResetUnit(o.Reset))}
}

// decide returns the metadata of the answer to a call, and an error unless it is to be served. It
// holds its places until release is called.
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

// refusal is the status of a call that was refused.
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

// ClientIP returns a part of a key: the network of the peer's address, as the selector client_ip of
// the plugin's configuration gives it, with so many bits of an IPv4 or of an IPv6 address. 32 and
// 64 are usual. The part is the bytes of an address, and no text.
func ClientIP(ctx context.Context, ipv4Prefix, ipv6Prefix int) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	var memory [16]byte
	return string(clientip.Network([]byte(p.Addr.String()), ipv4Prefix, ipv6Prefix, &memory))
}
