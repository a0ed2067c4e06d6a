package listen

import (
	"cmp"
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
	// DefaultConnections is the most connections of an address by default. A node has one per
	// callout under way, and many nodes may share an address.
	DefaultConnections = 4096
	// closedEvery is how often the log mentions connections that were closed to make room.
	closedEvery = time.Minute
	// unknownFiles is the assumed number of files of a process if the system does not tell.
	unknownFiles = 1 << 14
)

// Connections bounds the connections of each address, and of all addresses together, so that files
// are left for the store and for new connections. If an address has too many, Connections closes
// that connection which has been without a request for longest, including those that have sent no
// request yet. If all others have requests, it closes the new connection. If all addresses together
// have too many, it does so for the address with most connections, or for that of the new
// connection if all others have requests.
//
// It also bounds the memory of requests whose bodies have not come whole, or whose answers nobody takes:
// see [pending].
// [NewConnections] makes one for all listeners of a process. It is safe for concurrent use.
type Connections struct {
	ofAddress, ofAll int
	log              *slog.Logger

	mu sync.Mutex
	// shares are each address's connections without a request, in the order in which they became
	// idle.
	shares share.Shares[netip.Prefix, list.List]
	count  int
	// closed counts connections that the log has not mentioned; told is when it last mentioned any.
	closed int
	told   time.Time

	// pending has each address's requests that have not come whole, in the order in which they
	// began, and held is the memory of all.
	pending share.Shares[netip.Prefix, list.List]
	held    int
	// long has the streams that last as long as their clients want.
	long share.Room[netip.Prefix]
}

// NewConnections bounds the connections of an address to ofAddress, or DefaultConnections if that
// is 0, and all connections to half of the files that the process may open.
func NewConnections(ofAddress int, log *slog.Logger) *Connections {
	ofAddress = cmp.Or(ofAddress, DefaultConnections)
	files := MostFiles()
	// If the process may open few files, a quarter of them is left for stores and logs.
	all := max(files/2, files-max(64, min(files/4, 1024)))
	return &Connections{ofAddress: max(1, min(ofAddress, all/2)), ofAll: all, log: log, long: share.Room[netip.Prefix]{Most: maxLong}}
}

// Bound returns a listener whose connections count. It is for [Connections.Serve] and servers with
// [Connections.GRPC], with or without TLS around it.
func (c *Connections) Bound(l net.Listener) net.Listener { return bounded{l, c} }

// Idle returns how many connections have no request.
func (c *Connections) Idle() (idle int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, own := range c.shares.All() {
		idle += own.Of.Len()
	}
	return idle
}

type bounded struct {
	net.Listener
	by *Connections
}

func (b bounded) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	of := &connection{Conn: conn, by: b.by, from: network(conn.RemoteAddr())}
	if surplus := b.by.note(of, http.StateNew); surplus != nil {
		surplus.hangUp()
	}
	return of, nil
}

// connection belongs to an address. The lock of its Connections guards all other fields.
type connection struct {
	net.Conn
	by   *Connections
	from netip.Prefix

	counted  bool
	waits    *list.Element // nil while it has a request
	requests int           // of gRPC, that have come whole and are not answered yet
}

func (c *connection) Close() error {
	c.by.note(c, http.StateClosed)
	return c.Conn.Close()
}

// hangUp closes a connection for others. It is below TLS, which would wait for its farewell. The
// connection's own goroutine notices.
func (c *connection) hangUp() { _ = c.Close() }

// network groups addresses whose connections count together: an IPv4 address, or the IPv6 addresses
// that a machine can choose from.
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
	// A prefix has no zone.
	prefix, err := address.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}

// connectionOf returns the counted connection; nil if it does not count.
func connectionOf(of net.Conn) *connection {
	if outer, ok := of.(*tls.Conn); ok {
		of = outer.NetConn()
	}
	c, _ := of.(*connection)
	return c
}

// NoteState is for http.Server's ConnState. It learns which connections have requests.
func NoteState(of net.Conn, state http.ConnState) {
	if c := connectionOf(of); c != nil && (state == http.StateActive || state == http.StateIdle) {
		c.by.note(c, state)
	}
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

// noteConnection is http.Server's ConnContext.
func noteConnection(ctx context.Context, of net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, connectionOf(of))
}

// Yields lets a request's connection be closed to make room, as if it had no request, until its
// state changes or stays is called. A connection of HTTP/2 may have other requests, so it is not
// affected.
func Yields(r *http.Request) (stays func()) {
	c, _ := r.Context().Value(connectionKey{}).(*connection)
	if c == nil || r.ProtoMajor != 1 {
		return func() {}
	}
	c.by.note(c, http.StateIdle)
	return func() { c.by.note(c, http.StateActive) }
}

// note records a connection's state, and returns the connection to close for it, if any.
func (c *Connections) note(of *connection, state http.ConnState) (surplus *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		surplus = c.add(of)
	case http.StateActive:
		c.settle(of)
	case http.StateIdle:
		c.rest(of)
	case http.StateClosed:
		c.remove(of)
	}
	return surplus
}

// rest makes a connection the last of the idle connections of its address.
func (c *Connections) rest(of *connection) {
	if c.settle(of); of.counted {
		of.waits = c.shares.Of(of.from).Of.PushBack(of)
	}
}

// settle removes a connection from the idle connections.
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

// add counts a new connection, and returns the connection to close for it, if any.
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
	c.tell(from.Owner, "connections", from.Size()-1)
	if from.Of.Len() == 0 {
		from = own // which has at least the new connection
	}
	surplus = from.Of.Front().Value.(*connection)
	c.remove(surplus)
	return surplus
}

// tell logs that an address with that number of connections, or of something else, had to make room.
func (c *Connections) tell(address netip.Prefix, what string, has int) {
	c.closed++
	if now := time.Now(); c.told.IsZero() || now.Sub(c.told) >= closedEvery {
		c.log.Warn("connections are closed for others: an address has too many "+what, "address", address, what, has, "closed", c.closed)
		c.closed, c.told = 0, now
	}
}
