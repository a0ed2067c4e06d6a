package listen

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/trust"
	"weir/internal/trust/trusttest"
)

// Whatever connections do, there are no more of an address, and of all, than there may be. None is
// closed that has a request, and none of an address that has less than the new connection's.
func TestConnectionsAreBounded(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		c := &Connections{ofAddress: 6, ofAll: 16, log: slog.New(slog.DiscardHandler)}
		addresses := make([]net.Addr, 5)
		for i := range addresses {
			addresses[i] = &net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(i))}
		}
		type open struct {
			*connection
			active bool
			since  int
		}
		var all []*open
		has := func(address net.Addr) (n int) {
			for _, o := range all {
				if o.from == network(address) {
					n++
				}
			}
			return n
		}
		for now := range 3000 {
			if at := random.IntN(len(all) + 1); at < len(all) && random.IntN(3) > 0 {
				o := all[at]
				switch random.IntN(4) {
				case 0:
					c.note(o.connection, http.StateClosed)
					all = append(all[:at], all[at+1:]...)
				case 1:
					c.note(o.connection, http.StateIdle)
					o.active, o.since = false, now
				default:
					c.note(o.connection, http.StateActive)
					o.active = true
				}
				continue
			}
			from := addresses[min(random.IntN(8), 4)]
			added := &open{connection: &connection{by: c, from: network(from)}, since: now}
			all = append(all, added)
			surplus := c.note(added.connection, http.StateNew)
			must.EqualOrEnd(t, has(from) > c.ofAddress || len(all) > c.ofAll, surplus != nil, "%d connections, %d of the address: surplus %v", len(all), has(from), surplus)
			if surplus == nil {
				continue
			}
			at := 0
			for ; all[at].connection != surplus; at++ {
			}
			for _, o := range all {
				if o.from == surplus.from && !o.active && o.since < all[at].since {
					t.Fatal("another one waits for longer")
				}
			}
			lost := 0
			for _, o := range all {
				if o.from == surplus.from {
					lost++
				}
			}
			if all[at].active || surplus.from != network(from) && lost <= has(from) {
				t.Fatalf("an address with %d connections makes room for one with %d; active: %v", lost, has(from), all[at].active)
			}
			all = append(all[:at], all[at+1:]...)
			c.note(surplus, http.StateIdle) // until it finds out
			c.note(surplus, http.StateClosed)
			must.EqualOrEnd(t, c.count, len(all), "connections are counted of %d", len(all))
		}
	}
}

func TestNetworks(t *testing.T) {
	for address, want := range map[string]string{
		"10.1.2.3:4": "10.1.2.3/32", "[::ffff:10.1.2.3]:4": "10.1.2.3/32",
		"[2001:db8:1:2:3::4]:5": "2001:db8:1:2::/64", "[fe80::1%lo]:5": "fe80::/64",
	} {
		must.Equal(t, network(must.Get(net.ResolveTCPAddr("tcp", address))(t)).String(), want, "%s", address)
	}
}

// A connection that waits makes room for another of its address, by TLS and HTTP/2 too, and a
// connection that has a request does not.
func TestConnectionsMakeRoom(t *testing.T) {
	authority := trusttest.New(t)
	certificate, key := authority.Issue(t, "weir")
	config := must.Get(trust.Certificates(trust.CertificateFiles{Certificate: certificate, Key: key}, time.Now, slog.New(slog.DiscardHandler)))(t)
	for _, name := range []string{"HTTP/1.1", "HTTP/2.0", "TLS"} {
		t.Run(name, func(t *testing.T) {
			l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
			address := l.Addr().String()
			bound := &Connections{ofAddress: 2, ofAll: 100, log: slog.New(slog.DiscardHandler)}
			l = bound.Bound(l)
			transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{RootCAs: authority.Pool}}
			url := "http://" + address
			switch name {
			case "HTTP/1.1":
				transport.Protocols.SetHTTP1(true)
			case "HTTP/2.0":
				transport.Protocols.SetUnencryptedHTTP2(true)
			case "TLS":
				transport.Protocols.SetHTTP2(true)
				l, url = tls.NewListener(l, config), "https://"+address
			}
			entered, finish, served := make(chan struct{}), make(chan struct{}), make(chan error)
			ctx, stop := context.WithCancel(t.Context())
			go func() {
				served <- Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/slow" {
						close(entered)
						<-finish
					}
				}))
			}()
			client := &http.Client{Transport: transport}
			slow := make(chan error, 1)
			go func() {
				answer, err := client.Get(url + "/slow")
				if err == nil {
					err = answer.Body.Close()
				}
				slow <- err
			}()
			<-entered
			half := func() net.Conn {
				t.Helper()
				c := must.Get(net.Dial("tcp", address))(t)
				t.Cleanup(func() { c.Close() })
				must.Get(io.WriteString(c, "P"))(t)
				return c
			}
			before := half()
			for range 4 {
				next := half()
				n, err := before.Read(make([]byte, 1))
				must.Fails(t, err, "%d bytes of a connection that should be closed", n)
				before = next
			}
			close(finish)
			must.Report(t, <-slow) // the request under way
			transport.CloseIdleConnections()
			before.Close()
			stop()
			<-served
		})
	}
}
