package redistest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/must"
	"weir/internal/trust/trusttest"
)

// Watched is a master of a test with two replicas, which three Sentinels watch by the name mymaster. It is not safe for
// concurrent use.
type Watched struct {
	// Servers are the master at the start, and its replicas.
	Servers []*Server

	t         testing.TB
	url       string // with %s for the Sentinels' addresses
	addrs     []string
	sentinels []*goredis.SentinelClient
	clients   []*goredis.Client
	clock     *goredis.Client
}

// StartWatched starts the servers, and returns when the Sentinels know all of them and each other. They are stopped at the
// test's end.
func StartWatched(t testing.TB) *Watched {
	t.Helper()
	plain := func(port string) []string { return []string{"--port", port} }
	return startWatched(t, &Watched{url: "redis+sentinel://%s/mymaster"}, plain, nil, "", &goredis.Options{})
}

// StartWatchedTLS starts servers and Sentinels that accept only TLS, and want a password. Clients can verify their
// certificates with the returned pool.
func StartWatchedTLS(t testing.TB) (*Watched, *x509.CertPool) {
	t.Helper()
	authority := trusttest.New(t)
	w := &Watched{url: "rediss+sentinel://:s3cret@%s/mymaster?sentinel_password=hidden"}
	return startWatched(t, w, listenTLS(t, authority), []string{"--requirepass", "s3cret", "--masterauth", "s3cret"},
		"requirepass hidden\nsentinel sentinel-pass hidden\nsentinel auth-pass mymaster s3cret\n",
		&goredis.Options{Password: "s3cret", TLSConfig: &tls.Config{RootCAs: authority.Pool}}), authority.Pool
}

// startWatched starts servers with options, and Sentinels with further lines of their file. Clients of the servers connect as
// of says, and those of the Sentinels with the URL's password.
func startWatched(t testing.TB, w *Watched, listen func(port string) []string, more []string, lines string, of *goredis.Options) *Watched {
	t.Helper()
	w.t, w.clock = t, goredis.NewClient(&goredis.Options{Addr: Start(t).Addr})
	t.Cleanup(func() { _ = w.clock.Close() })
	for i := range 3 {
		options := append([]string{"--repl-diskless-sync-delay", "0"}, more...)
		if i > 0 {
			host, port, _ := net.SplitHostPort(w.Servers[0].Addr)
			options = append(options, "--replicaof", host, port)
		}
		s := launch(t, listen, func() []string { return options })
		client := goredis.NewClient(&goredis.Options{Addr: s.Addr, MaxRetries: -1, Password: of.Password, TLSConfig: of.TLSConfig})
		t.Cleanup(func() { _ = client.Close() })
		w.Servers, w.clients = append(w.Servers, s), append(w.clients, client)
	}
	_, password, _ := strings.Cut(w.url, "sentinel_password=")
	for range 3 {
		file := filepath.Join(t.TempDir(), "sentinel.conf")
		s := launch(t, func(port string) []string { return append([]string{file, "--sentinel"}, listen(port)...) }, func() []string {
			text := "sentinel monitor mymaster " + strings.ReplaceAll(w.Servers[0].Addr, ":", " ") +
				" 2\nsentinel down-after-milliseconds mymaster " + patient + "\nsentinel failover-timeout mymaster 5000\n" + lines
			must.OK(t, os.WriteFile(file, []byte(text), 0o600))
			return nil
		})
		client := goredis.NewSentinelClient(&goredis.Options{Addr: s.Addr, Password: password, TLSConfig: of.TLSConfig})
		t.Cleanup(func() { _ = client.Close() })
		w.addrs, w.sentinels = append(w.addrs, s.Addr), append(w.sentinels, client)
	}
	until(t, "the Sentinels know all", w.Pause, func() bool {
		for _, s := range w.sentinels {
			of, err := s.Master(context.Background(), "mymaster").Result()
			if err != nil || of["num-slaves"] != "2" || of["num-other-sentinels"] != "2" {
				return false
			}
		}
		return w.replicas(w.clients[0]) == 2
	})
	return w
}

func (w *Watched) replicas(of *goredis.Client) int {
	text, err := of.Info(context.Background(), "replication").Result()
	if err != nil {
		return 0
	}
	return strings.Count(text, "state=online")
}

// URL returns the URL for a store. Its first Sentinel does not answer.
func (w *Watched) URL() string {
	return fmt.Sprintf(w.url, "127.0.0.1:1,"+strings.Join(w.addrs, ","))
}

// Master is the server that all Sentinels take for the master; nil while they do not agree.
func (w *Watched) Master() (master *Server) {
	for _, s := range w.sentinels {
		addr, err := s.GetMasterAddrByName(context.Background(), "mymaster").Result()
		if err != nil || len(addr) != 2 {
			return nil
		}
		for _, server := range w.Servers {
			if server.Addr == net.JoinHostPort(addr[0], addr[1]) {
				if master != nil && master != server {
					return nil
				}
				master = server
			}
		}
	}
	return master
}

// KillMaster kills the master, and returns when another has taken over and has a replica.
func (w *Watched) KillMaster() {
	w.t.Helper()
	old := w.Master()
	w.each("set", "mymaster", "down-after-milliseconds", hasty)
	old.Stop()
	w.taken(old)
	w.each("set", "mymaster", "down-after-milliseconds", patient)
}

// Failover has another server take over from a master that runs, and returns when the master is its replica.
func (w *Watched) Failover() {
	w.t.Helper()
	old := w.Master()
	// It is refused while another failover goes on.
	until(w.t, "a failover", w.Pause, func() bool { return w.sentinels[0].Failover(context.Background(), "mymaster").Err() == nil })
	w.taken(old)
}

func (w *Watched) taken(from *Server) {
	w.t.Helper()
	until(w.t, "another master with a replica", w.Pause, func() bool {
		master := w.Master()
		for i, server := range w.Servers {
			if server == master && server != from {
				return w.replicas(w.clients[i]) > 0
			}
		}
		return false
	})
}

func (w *Watched) each(command string, args ...any) {
	w.t.Helper()
	for _, s := range w.sentinels {
		must.OKf(w.t, s.Process(context.Background(), goredis.NewStatusCmd(context.Background(), append([]any{"sentinel", command}, args...)...)), "sentinel %s", command)
	}
}

// Pause returns a little later: no command tells when a role changes. It has a server that is always a master wait for more
// replicas than there are.
func (w *Watched) Pause(ctx context.Context) {
	_ = w.clock.Wait(ctx, 100, 20*time.Millisecond).Err()
}
