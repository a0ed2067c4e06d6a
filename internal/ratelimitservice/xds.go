package ratelimitservice

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	grpcmeta "google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	xdsType = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"
	// pingEvery finds a server that has vanished. Servers of package grpc close connections with more than a ping in five minutes,
	// unless they are told otherwise, as Envoy Gateway's is not.
	pingEvery = 6 * time.Minute
)

// XDS gets a service's configuration from a server by Envoy's discovery protocol, in its
// state-of-the-world variant, over the aggregated stream.
type XDS struct {
	// Address is an address in the form of package grpc, such as HOST:PORT.
	Address string
	// TLS is nil for a connection without TLS.
	TLS *tls.Config
	// Node and Metadata identify the service to the server, and Headers go with each stream.
	Node              string
	Metadata, Headers map[string]string
	// MaxMessage bounds an answer in bytes; 0 is the default of package grpc.
	MaxMessage int
	// FirstPause is the pause after a stream has ended, and before an unusable answer is refused again.
	// Pauses double up to LastPause, until the server sends a usable answer.
	FirstPause, LastPause time.Duration
	Options               Options
	Log                   *slog.Logger

	said  string
	pause time.Duration // the next
	// after is [time.After], except in tests.
	after func(time.Duration) <-chan time.Time
}

// Load leaves the service without a configuration, which [XDS.Watch] gets.
func (*XDS) Load(*Service) error { return nil }

// Watch makes a service use the server's configurations until ctx ends, and calls changed after
// each new configuration. The last configuration stays in force if the next can't be used, or if
// the server is away.
func (x *XDS) Watch(ctx context.Context, of *Service, changed func()) {
	connection, err := x.dial()
	if err != nil {
		x.say("the xDS server can't be asked", err)
		return
	}
	defer func() { _ = connection.Close() }() // no call is under way
	for x.pause = x.FirstPause; ; {
		err := x.follow(ctx, connection, of, changed)
		if ctx.Err() != nil {
			return
		}
		x.say("the xDS server does not answer; its last usable descriptors stay in force", err)
		if x.wait(ctx) != nil {
			return
		}
	}
}

// wait waits for the next pause, or until ctx ends: then it returns its error.
func (x *XDS) wait(ctx context.Context) error {
	after := x.after
	if after == nil {
		after = time.After
	}
	pause := x.pause/2 + rand.N(x.pause/2+1)
	x.pause = min(2*x.pause, x.LastPause)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-after(pause):
		return nil
	}
}

func (x *XDS) dial(more ...grpc.DialOption) (*grpc.ClientConn, error) {
	secure := insecure.NewCredentials()
	if x.TLS != nil {
		secure = credentials.NewTLS(x.TLS)
	}
	options := append(more, grpc.WithTransportCredentials(secure), grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery}))
	if x.MaxMessage > 0 {
		options = append(options, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(x.MaxMessage)))
	}
	return grpc.NewClient(x.Address, options...)
}

// follow runs one stream until it ends. A server may answer a refusal with the same again, at once. So only the
// first refusal goes out without a pause before it.
func (x *XDS) follow(ctx context.Context, c *grpc.ClientConn, of *Service, changed func()) error {
	ctx, cancel := context.WithCancel(grpcmeta.NewOutgoingContext(ctx, grpcmeta.New(x.Headers)))
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(c).StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	refused := false
	ask := discovery.DiscoveryRequest{TypeUrl: xdsType, Node: x.node()}
	for {
		if err := stream.Send(&ask); err != nil {
			_, err = stream.Recv() // which has the reason
			return err
		}
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		ask.Node = nil
		ask.ResponseNonce, ask.ErrorDetail = answer.GetNonce(), nil
		files, err := filesOf(answer.GetResources())
		if err == nil {
			err = adopt(files, x.Options, of, x.Address, x.Log)
		}
		if err != nil {
			ask.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
			x.say("the xDS server's descriptors can't be used; the last usable descriptors stay in force", err)
			if refused {
				if err := x.wait(ctx); err != nil {
					return err
				}
			}
			refused = true
			continue
		}
		x.said, ask.VersionInfo = "", answer.GetVersionInfo()
		x.pause, refused = x.FirstPause, false
		changed()
	}
}

func (x *XDS) node() *core.Node {
	fields := map[string]*structpb.Value{}
	for name, value := range x.Metadata {
		fields[name] = structpb.NewStringValue(value)
	}
	return &core.Node{Id: x.Node, UserAgentName: "weir", Metadata: &structpb.Struct{Fields: fields}}
}

// filesOf turns resources into files. Their JSON is also YAML, with the fields of files.
func filesOf(resources []*anypb.Any) ([]File, error) {
	files := make([]File, len(resources))
	for i, resource := range resources {
		var of rlsconf.RateLimitConfig
		err := resource.UnmarshalTo(&of)
		if err == nil {
			files[i].Name, of.Name = of.GetName(), ""
			files[i].Text, err = protojson.MarshalOptions{UseProtoNames: true}.Marshal(&of)
		}
		if err != nil {
			return nil, fmt.Errorf("resource %d: %w", i, err)
		}
	}
	return files, nil
}

// say logs an error, unless it was the last that was logged.
func (x *XDS) say(what string, err error) {
	if text := what + err.Error(); text != x.said {
		x.said = text
		x.Log.Error(what, "address", x.Address, "error", err)
	}
}
