package redis

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// dialTimeout is the default of go-redis.
const dialTimeout = 5 * time.Second

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// quietly returns a dialer like that of go-redis. If it can't dial, it returns a connection whose
// first use returns the dial's error. Otherwise go-redis would log each failed dial to a logger
// that all clients of the process share. The caller of the store gets the error anyway.
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

// failed is a connection that could not be dialed.
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
