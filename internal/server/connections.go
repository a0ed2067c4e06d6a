package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"weir/internal/share"
)

const (
	// DefaultConnections is how many connections an address may have unless it is told otherwise. A
	// node has one for each callout that is under way, and many nodes may be behind one address.
	DefaultConnections = 4096
	// closedEvery is how often the log tells of connections that were closed for others.
	closedEvery = time.Minute
	// unknownFiles is how many files a process is taken to have where the system does not tell.
	unknownFiles = 1 << 14
)

// Connections bounds the connections of an address, and those of all: there are files left for the
// store, and for the next to come. If an address has too many, its connection is closed that has
// been without a request for longest, whether it has had a request or has yet to send its first
// header. If all its others have requests, the new connection is closed. If there are too many of
// all, the address that has most makes room, or the new connection's address if all connections of
// the other have requests. Make it with [NewConnections]. It may be used by any number of
// goroutines.
type Connections struct {
	ofAddress, ofAll int
	log              *slog.Logger

	mu sync.Mutex
	// shares have the connections of each address that wait for a request, those first that have for
	// longest.
	shares share.Shares[netip.Prefix, list.List]
	count  int
	// closed are those that the log was not told of; told is when it was last.
	closed int
	told   time.Time
}

// NewConnections bounds those of an address to so many, or to DefaultConnections if that is 0, and to
// half of those that the process has files for.
func NewConnections(ofAddress int, log *slog.Logger) *Connections {
	if ofAddress == 0 {
		ofAddress = DefaultConnections
	}
	files := mostFiles()
	// A quarter of a small number, but no more than stores and logs need.
	all := max(files/2, files-max(64, min(files/4, 1024)))
	return &Connections{ofAddress: max(1, min(ofAddress, all/2)), ofAll: all, log: log}
}

// Bound is a listener whose connections are among them. It is for [Serve], with TLS around it or not.
func (c *Connections) Bound(l net.Listener) net.Listener { return bounded{l, c} }

type bounded struct {
	net.Listener
	by *Connections
}

// Accept implements net.Listener.
func (b bounded) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &connection{Conn: conn, by: b.by, from: network(conn.RemoteAddr())}, nil
}

// connection is one of an address. All else is guarded by the lock of its Connections.
type connection struct {
	net.Conn
	by   *Connections
	from netip.Prefix

	counted bool
	waits   *list.Element // nil while it has a request
}

// network is whose connections are counted together: an IPv4 address, or the IPv6 addresses that a
// machine can choose from.
func network(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	address := tcp.AddrPort().Addr().Unmap()
	bits := 64
	if address.Is4() {
		bits = 32
	}
	// The zone is no part of a prefix.
	prefix, err := address.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}

// connectionOf returns the connection that is among those of an address, nil if it is not.
func connectionOf(of net.Conn) *connection {
	if outer, ok := of.(*tls.Conn); ok {
		of = outer.NetConn()
	}
	c, _ := of.(*connection)
	return c
}

// noteState is http.Server's ConnState.
func noteState(of net.Conn, state http.ConnState) {
	c := connectionOf(of)
	if c == nil {
		return
	}
	if surplus := c.by.note(c, state); surplus != nil {
		// Below TLS, which would wait to say so. Whoever serves it finds out by itself.
		_ = surplus.Close()
	}
}

// connectionKey is where the context of a request has its connection.
type connectionKey struct{}

// noteConnection is http.Server's ConnContext.
func noteConnection(ctx context.Context, of net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, connectionOf(of))
}

// yields has a request's connection make room for others like one without a request, until its state
// changes or stays is called. Other requests may share a connection of HTTP/2, which makes no room.
func yields(r *http.Request) (stays func()) {
	c, _ := r.Context().Value(connectionKey{}).(*connection)
	if c == nil || r.ProtoMajor != 1 {
		return func() {}
	}
	c.by.note(c, http.StateIdle)
	return func() { c.by.note(c, http.StateActive) }
}

// note notes what a connection does, and returns the connection that is to be closed for it, if
// any.
func (c *Connections) note(of *connection, state http.ConnState) (surplus *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		surplus = c.add(of)
	case http.StateActive:
		c.settle(of)
	case http.StateIdle:
		if c.settle(of); of.counted {
			of.waits = c.shares.Of(of.from).Of.PushBack(of)
		}
	case http.StateClosed, http.StateHijacked:
		c.remove(of)
	}
	return surplus
}

// settle has a connection wait no more.
func (c *Connections) settle(of *connection) {
	if of.waits != nil {
		c.shares.Of(of.from).Of.Remove(of.waits)
		of.waits = nil
	}
}

func (c *Connections) remove(of *connection) {
	if c.settle(of); of.counted {
		of.counted = false
		c.count--
		c.shares.Grow(of.from, -1)
	}
}

// add counts a new connection, and returns the connection that makes room for it.
func (c *Connections) add(of *connection) (surplus *connection) {
	own := c.shares.Grow(of.from, 1)
	c.count++
	of.counted, of.waits = true, own.Of.PushBack(of)
	from := own
	if own.Size() <= c.ofAddress {
		if c.count <= c.ofAll {
			return nil
		}
		from = c.shares.MakesRoom(of.from)
	}
	c.tell(from.Owner, from.Size()-1)
	if from.Of.Len() == 0 {
		from = own // which has the new one at least
	}
	surplus = from.Of.Front().Value.(*connection)
	c.remove(surplus)
	return surplus
}

// tell tells the log that an address with so many connections had to make room.
func (c *Connections) tell(address netip.Prefix, has int) {
	c.closed++
	if now := time.Now(); c.told.IsZero() || now.Sub(c.told) >= closedEvery {
		c.log.Warn("connections are closed for others: an address has too many", "address", address, "connections", has, "closed", c.closed)
		c.closed, c.told = 0, now
	}
}
