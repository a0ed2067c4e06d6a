package postgres

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"weir/internal/must"
)

// A server that says nothing, or nothing more once it has let somebody in, keeps a place in the pool for some seconds
// only, even if nobody waits for it. The next connection may find the server to which its name leads by then.
func TestSilentServer(t *testing.T) {
	for _, test := range []struct {
		name, parameters string
		admits           bool
		keeps            time.Duration
	}{
		{"no word", "pool_max_conns=1", false, connectTimeout},
		{"no word, and a URL with a time", "pool_max_conns=1&connect_timeout=7", false, 7 * time.Second},
		{"no word after the first", "pool_max_conns=2", true, longestLock},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := must.Get(Open("postgres://u@127.0.0.1/d?sslmode=disable&"+test.parameters, Options{}))(t)
				config := s.pool.Config()
				config.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
					client, server := net.Pipe()
					context.AfterFunc(t.Context(), func() { must.Report(t, server.Close()) })
					go silent(server, test.admits)
					return client, nil
				}
				s.pool.Close()
				s.pool = must.Get(pgxpool.NewWithConfig(t.Context(), config))(t)
				t.Cleanup(s.pool.Close) // behind the release of all
				acquire := func(patience time.Duration) error {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					c, err := s.pool.Acquire(ctx)
					if err == nil {
						t.Cleanup(c.Release)
					}
					return err
				}
				if test.admits {
					must.OK(t, acquire(time.Second)) // the only one of which the server is not asked anything
				}
				start := time.Now()
				must.Fails(t, acquire(time.Second), "the last place")
				must.Fails(t, acquire(time.Minute), "the same place")
				must.Equal(t, time.Since(start), 2*test.keeps, "two connections were waited for")
			})
		})
	}
}

// silent is a server that says nothing, or no more than that it lets somebody in.
func silent(c net.Conn, admits bool) {
	if b := pgproto3.NewBackend(c, c); admits {
		_, _ = b.ReceiveStartupMessage()
		b.Send(&pgproto3.AuthenticationOk{})
		b.Send(&pgproto3.ReadyForQuery{TxStatus: idle})
		_ = b.Flush()
	}
	_, _ = io.Copy(io.Discard, c)
}
