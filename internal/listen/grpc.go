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

// ServerHandshake implements credentials.TransportCredentials.
func (c counting) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	of, bounded := raw.(*connection)
	if err != nil || !bounded {
		return conn, info, err
	}
	return newStreams(conn, of), counted{info, of}, nil
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

// streams is a connection of HTTP/2 that counts the requests on it that have not come whole, by the
// frames in both directions (RFC 9113). Package grpc does not tell how much it holds.
type streams struct {
	net.Conn
	of *connection

	mu      sync.Mutex
	open    map[uint32]*stream
	touched []*stream // by the last read
	in, out frames
}

// stream is a request that has not come whole. further are bytes that are not held yet.
type stream struct {
	pending
	further     int
	held, ended bool
}

// prefaceBytes is the length of what a client sends before its first frame.
const prefaceBytes = 24

func newStreams(conn net.Conn, of *connection) *streams {
	return &streams{Conn: conn, of: of, open: map[uint32]*stream{}, in: frames{skip: prefaceBytes}}
}

// Read implements net.Conn.
func (s *streams) Read(into []byte) (int, error) {
	n, err := s.Conn.Read(into)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in.each(into[:n], s.received)
	// Most requests begin and end in one read, and take no lock of others.
	for i, t := range s.touched {
		if !t.ended && (t.further > 0 || !t.held) {
			t.held = true
			t.hold(t.further)
		}
		t.further, s.touched[i] = 0, nil
	}
	s.touched = s.touched[:0]
	return n, err
}

// Write implements net.Conn.
func (s *streams) Write(from []byte) (int, error) {
	s.mu.Lock()
	s.out.each(from, s.sent)
	s.mu.Unlock()
	return s.Conn.Write(from)
}

// Close implements net.Conn.
func (s *streams) Close() error {
	s.mu.Lock()
	for id := range s.open {
		s.end(id)
	}
	s.open = nil
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
	if f.kind == resetFrame || (f.kind == dataFrame || f.kind == headersFrame) && f.flags&endStream != 0 {
		s.end(f.stream)
		return
	}
	of := s.open[f.stream]
	switch f.kind {
	case headersFrame:
		if of != nil || s.open == nil {
			return
		}
		of = &stream{pending: pending{of: s.of}}
		s.open[f.stream] = of
	case dataFrame:
		if of == nil {
			return // it has been answered, and nobody keeps what still comes
		}
		of.further += f.length
	default:
		return
	}
	s.touched = append(s.touched, of)
}

func (s *streams) sent(f frame) {
	if f.kind == resetFrame || f.kind == headersFrame && f.flags&endStream != 0 {
		s.end(f.stream)
	}
}

// end ends the counting of a stream.
func (s *streams) end(id uint32) {
	of := s.open[id]
	if of == nil {
		return
	}
	delete(s.open, id)
	if of.ended = true; of.held {
		of.release()
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
