package redis

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// dialTimeout is go-redis's own default.
const dialTimeout = 5 * time.Second

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// quietly dials as go-redis does by itself. A dial that fails gives a connection that fails: its
// first use has the dial's error. go-redis writes a line for each dial that fails, to a logger that
// all of the process's clients share. A library has no right to that logger, and whoever calls the
// store is told of the error anyway.
func quietly(timeout time.Duration, config *tls.Config) dialer {
	dial := goredis.NewDialer(&goredis.Options{DialTimeout: timeout, TLSConfig: config})
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return failed{err}, nil
		}
		return conn, nil
	}
}

// failed is a connection that never was.
type failed struct{ err error }

var _ net.Conn = failed{}

func (f failed) Read([]byte) (int, error)         { return 0, f.err }
func (f failed) Write([]byte) (int, error)        { return 0, f.err }
func (f failed) Close() error                     { return nil }
func (f failed) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (f failed) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (f failed) SetDeadline(time.Time) error      { return nil }
func (f failed) SetReadDeadline(time.Time) error  { return nil }
func (f failed) SetWriteDeadline(time.Time) error { return nil }
