package listen

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

const (
	// maxStreams bounds the requests of a connection at a time. Envoy opens another connection beyond.
	maxStreams = 1000
	// maxLong bounds the streams of all connections that last as long as their clients want, such as
	// those that watch the health. An address has at most half of them.
	maxLong = 1024
	// A request that has come whole takes wholeBytes and wholeTimes its bytes until its client has taken
	// the answer: what is decoded, decided and answered is larger than what came. A connection may have
	// wholeStep of it without being noticed.
	wholeBytes = 512
	wholeTimes = 6
	wholeStep  = 32 << 10
	// readBuffer is the memory for what one read takes from a connection.
	readBuffer = 4 << 10
)

// GRPC returns the options of a server of gRPC for listeners of [Connections.Bound]. They include
// its credentials and its keepalive.
func GRPC(secure credentials.TransportCredentials, alive keepalive.ServerParameters) []grpc.ServerOption {
	alive.MaxConnectionIdle = idleTimeout
	return []grpc.ServerOption{
		grpc.Creds(counting{secure}), grpc.KeepaliveParams(alive), grpc.ConnectionTimeout(readTimeout),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeader),
		// A connection that waits for a request keeps 4 kB of buffers, in place of 64.
		grpc.ReadBufferSize(readBuffer),
		grpc.ChainUnaryInterceptor(noteRequest), grpc.ChainStreamInterceptor(noteStream),
	}
}

// counting are credentials that count the requests of a connection that have not come whole.
type counting struct {
	credentials.TransportCredentials
}

// counted tells requests their connection.
type counted struct {
	credentials.AuthInfo
	of *connection
}

func (c counting) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	of, bounded := raw.(*connection)
	if err != nil || !bounded {
		return conn, info, err
	}
	s := &streams{Conn: conn, of: of, open: map[uint32]*stream{}, in: frames{skip: prefaceBytes}, answers: pending{of: of}}
	return s, counted{info, of}, nil
}

func connectionIn(ctx context.Context) *connection {
	from, known := peer.FromContext(ctx)
	if !known {
		return nil
	}
	of, _ := from.AuthInfo.(counted)
	return of.of
}

// noteRequest keeps a connection while it has a request that has come whole.
func noteRequest(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if of := connectionIn(ctx); of != nil {
		of.by.noteRequests(of, 1)
		defer of.by.noteRequests(of, -1)
	}
	return next(ctx, request)
}

// noteRequests records that a connection has by more requests.
func (c *Connections) noteRequests(of *connection, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of.requests += by
	switch {
	case of.requests == 0:
		c.rest(of)
	case of.waits != nil:
		c.settle(of)
	}
}

// noteStream bounds the streams. They keep no connection.
func noteStream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if of := connectionIn(stream.Context()); of != nil {
		if !of.by.long.Enter(of.from) {
			return status.Error(codes.ResourceExhausted, "too many streams are open")
		}
		defer of.by.long.Leave(of.from)
	}
	return next(server, stream)
}

// streams is a connection of HTTP/2 that counts the requests on it that have not come whole, or whose
// answers the client has not taken, by the frames in both directions (RFC 9113). Package grpc does not
// tell how much it holds.
type streams struct {
	net.Conn
	of *connection

	mu      sync.Mutex
	open    map[uint32]*stream
	touched []*stream // by the last read
	in, out frames
	last    uint32 // the newest stream
	// weight is what all whole requests without an answer take, and answers holds so much of it as
	// told, in steps.
	weight, told int
	answers      pending
}

// stream is a request without an answer, of which so many bytes came. It is held until it is whole, and
// weighs something from then on.
type stream struct {
	pending
	came, weighs       int
	held, whole, ended bool
}

// prefaceBytes is the length of what a client sends before its first frame.
const prefaceBytes = 24

func (s *streams) Read(into []byte) (int, error) {
	n, err := s.Conn.Read(into)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in.each(into[:n], s.received)
	// Most requests begin and end in one read, and take no lock of others.
	for i, t := range s.touched {
		if !t.ended && !t.whole {
			t.held = true
			t.hold(pendingBytes + t.came)
		}
		s.touched[i] = nil
	}
	s.touched = s.touched[:0]
	s.weigh()
	return n, err
}

func (s *streams) Write(from []byte) (int, error) {
	s.mu.Lock()
	s.out.each(from, s.sent)
	s.weigh()
	s.mu.Unlock()
	return s.Conn.Write(from)
}

func (s *streams) Close() error {
	s.mu.Lock()
	for id := range s.open {
		s.end(id)
	}
	s.open = nil
	s.weigh()
	s.mu.Unlock()
	return s.Conn.Close()
}

const (
	dataFrame    = 0
	headersFrame = 1
	resetFrame   = 3
	endStream    = 1 // flag
)

func (s *streams) received(f frame) {
	of := s.open[f.stream]
	switch f.kind {
	case resetFrame:
		s.end(f.stream)
		return
	case headersFrame:
		if of == nil && (s.open == nil || f.stream <= s.last) {
			return
		}
		if of == nil {
			s.last, of = f.stream, &stream{pending: pending{of: s.of}}
			s.open[f.stream] = of
		}
	case dataFrame:
		if of == nil {
			return // it has been answered, and nobody keeps what still comes
		}
	default:
		return
	}
	of.came += f.length
	if f.flags&endStream == 0 {
		s.touched = append(s.touched, of)
	} else if !of.whole {
		of.whole, of.weighs = true, wholeBytes+wholeTimes*min(of.came, maxCounted)
		s.weight += of.weighs
		of.let()
	}
}

// weigh holds the weight of all whole requests, in steps, so that few requests take a lock of others.
func (s *streams) weigh() {
	if by := s.weight - s.weight%wholeStep; by > s.told || by < s.told-wholeStep || by == 0 && s.told > 0 {
		s.told = by
		s.answers.hold(by)
	}
}

func (s *streams) sent(f frame) {
	if f.kind == resetFrame || f.kind == headersFrame && f.flags&endStream != 0 {
		s.end(f.stream)
	}
}

func (s *streams) end(id uint32) {
	of := s.open[id]
	if of == nil {
		return
	}
	delete(s.open, id)
	s.weight -= of.weighs
	of.ended = true
	of.let()
}

// let ends the counting of a request that has not come whole.
func (t *stream) let() {
	if t.held {
		t.held = false
		t.hold(0)
	}
}

// frames finds frames in a connection's bytes, however they are cut.
type frames struct {
	header [9]byte
	has    int // bytes of the header
	skip   int // bytes before the next header
}

type frame struct {
	length int
	kind   byte
	flags  byte
	stream uint32
}

func (f *frames) each(b []byte, visit func(frame)) {
	for {
		skipped := min(f.skip, len(b))
		f.skip -= skipped
		b = b[skipped:]
		n := copy(f.header[f.has:], b)
		f.has += n
		if b = b[n:]; f.has < len(f.header) {
			return
		}
		h := &f.header
		f.has, f.skip = 0, int(h[0])<<16|int(h[1])<<8|int(h[2])
		visit(frame{f.skip, h[3], h[4], (uint32(h[5])<<24 | uint32(h[6])<<16 | uint32(h[7])<<8 | uint32(h[8])) & (1<<31 - 1)})
	}
}
