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
	// pingEvery has a server that is gone without a word noticed.
	pingEvery = 30 * time.Second
)

// XDS is a server that a service has its configuration from, by Envoy's discovery protocol: the state
// of the world, over the aggregated stream.
type XDS struct {
	// Address is as package grpc has it, HOST:PORT for one.
	Address string
	// TLS is nil for none.
	TLS *tls.Config
	// Node and Metadata tell the server who asks, and Headers go with each stream.
	Node              string
	Metadata, Headers map[string]string
	// MaxMessage bounds an answer in bytes; 0 for the default of package grpc.
	MaxMessage int
	// FirstPause is how long to wait after a stream has ended, and before an answer that can't be used is
	// refused. Pauses double up to LastPause, until the server says something that can be used.
	FirstPause, LastPause time.Duration
	Options               Options
	Log                   *slog.Logger

	said  string
	pause time.Duration // the next
	// after is [time.After], except in tests.
	after func(time.Duration) <-chan time.Time
}

// Load leaves the service without a configuration: [XDS.Watch] gets it.
func (*XDS) Load(*Service) error { return nil }

// Watch has a service use what the server says until ctx ends, and calls changed whenever that is new. A
// configuration that can't be used, or a server that is away, leaves the one before in force.
func (x *XDS) Watch(ctx context.Context, of *Service, changed func()) {
	connection, err := x.dial()
	if err != nil {
		x.say("the xDS server can't be asked", err)
		return
	}
	defer func() { _ = connection.Close() }() // nothing is under way
	for x.pause = x.FirstPause; ; {
		err := x.follow(ctx, connection, of, changed)
		if ctx.Err() != nil {
			return
		}
		x.say("the xDS server does not answer; what it said before holds", err)
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

func (x *XDS) dial() (*grpc.ClientConn, error) {
	secure := insecure.NewCredentials()
	if x.TLS != nil {
		secure = credentials.NewTLS(x.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secure), grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery}),
	}
	if x.MaxMessage > 0 {
		options = append(options, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(x.MaxMessage)))
	}
	return grpc.NewClient(x.Address, options...)
}

// follow is one stream, until it ends. A server may answer a refusal with the same again, at once. So only the
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
			_, err = stream.Recv() // which tells why
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
			x.say("the xDS server's descriptors can't be used; what it said before holds", err)
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

// filesOf makes files of resources. Their JSON is YAML, too, in the fields of files.
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

// say says what is wrong, unless it has just been said.
func (x *XDS) say(what string, err error) {
	if text := what + err.Error(); text != x.said {
		x.said = text
		x.Log.Error(what, "address", x.Address, "error", err)
	}
}
