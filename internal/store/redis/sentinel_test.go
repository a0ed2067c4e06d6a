package redis_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
	"weir/window"
)

// A master dies while senders push, and another takes over; then one that runs becomes a replica. Senders repeat what nobody
// has answered. All hits are counted once.
func TestSentinel(t *testing.T) {
	t.Parallel()
	w := redistest.StartWatched(t)
	tr := startTraffic(t, w, "?wait_replicas=1", 3)
	tr.wait(30)
	w.KillMaster()
	tr.wait(30)
	afterKill := tr.failed.Load()
	w.Failover()
	tr.wait(30)
	tr.end()
	s := open(t, w.URL(), atEpoch)
	must.Equal(t, sum(t, s), tr.hits.Load(), "hits counted")
	if failed := tr.failed.Load(); afterKill == 0 || failed == afterKill {
		t.Errorf("%d pushes failed, %d of them after the first master: a master was not missed", failed, afterKill)
	}
	must.Report(t, s.Ping(t.Context()))
}

// Servers and Sentinels that want TLS and passwords of their own are used like others, by a master after another. What is
// wrong with one of these is said, without the passwords.
func TestSentinelTLS(t *testing.T) {
	t.Parallel()
	w, roots := redistest.StartWatchedTLS(t)
	url := w.URL() + "&wait_replicas=2" // Sentinels may choose a replica that lacks the newest writes
	trusting := redis.Options{Now: atEpoch, RootCAs: roots}
	c := counter(window.FixedWindow, 1, time.Minute)
	s := must.Get(redis.Open(url, trusting))(t)
	defer func() { must.Report(t, s.Close()) }()
	for i := range 2 {
		if i > 0 {
			w.Failover()
		}
		var out store.Outcome
		err := errors.New("no push")
		for range 1500 {
			if out, err = pushOne(t.Context(), s, uint64(i)+1, epoch, c); err == nil {
				break
			}
			w.Pause(t.Context())
		}
		if err != nil || out.Answer.Totals[0].Hits[0] != uint64(i)+1 {
			t.Fatalf("after %d failovers: %+v, error %v", i, out.Answer, err)
		}
	}
	for url, test := range map[string]struct {
		options redis.Options
		want    string
	}{
		url: {redis.Options{Now: atEpoch}, "certificate signed by unknown authority"},
		strings.Replace(url, "rediss", "redis", 1):    {trusting, "the Sentinel at 127.0.0.1"},
		strings.Replace(url, "hidden", "s3cret", 1):   {trusting, "WRONGPASS"},
		strings.Replace(url, "s3cret@", "hidden@", 1): {trusting, "WRONGPASS"},
		strings.Replace(url, ":s3cret@", "", 1):       {trusting, "unauthenticated"},
	} {
		s := must.Get(redis.Open(url, test.options))(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := pushOne(ctx, s, 9, epoch, c)
		cancel()
		if must.Report(t, s.Close()); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: error %v, want %q", url, err, test.want)
		}
	}
}

func TestNoSentinel(t *testing.T) {
	t.Parallel()
	w := redistest.StartWatched(t)
	for _, test := range []struct{ url, want string }{
		{strings.Replace(w.URL(), "/mymaster", "/other", 1), `knows no master "other"`},
		{"redis+sentinel://127.0.0.1:1,127.0.0.1:2/mymaster", "the Sentinel at 127.0.0.1:2: "},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := pushOne(ctx, open(t, test.url, atEpoch), 1, epoch, counter(window.FixedWindow, 1, time.Minute))
		cancel()
		must.Contains(t, fmt.Sprint(err), test.want, "%s", test.url)
	}
}

// A Sentinel that answers no address, or nothing, is told of. One that does answer is heard though.
func TestStrangeSentinels(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	host, port, _ := net.SplitHostPort(server.Addr)
	right := strange(t, fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port))
	c := counter(window.FixedWindow, 1, time.Minute)
	for reply, want := range map[string]string{
		"*1\r\n$9\r\n127.0.0.1\r\n": "want a host and a port, got 1 values",
		"*0\r\n":                    "want a host and a port, got 0 values",
		"*2\r\n$9\r\n127.0.0.1\r\n$4\r\nport\r\n":    `want a host and a port, got "127.0.0.1" and "port"`,
		"*2\r\n$0\r\n\r\n$4\r\n6379\r\n":             `want a host and a port, got "" and "6379"`,
		"*2\r\n$9\r\n127.0.0.1\r\n$5\r\n99999\r\n":   `want a host and a port, got "127.0.0.1" and "99999"`,
		"*2\r\n$9\r\n127.0.0.1\r\n*1\r\n$1\r\na\r\n": "the Sentinel at 127.0.0.1",
		":1\r\n":  "the Sentinel at 127.0.0.1",
		"+OK\r\n": "the Sentinel at 127.0.0.1",
		"-IDONTKNOW No such master with that name\r\n": "IDONTKNOW",
		"*-1\r\n":                   "knows no master",
		"*99999999999999999999\r\n": "the Sentinel at 127.0.0.1",
		"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n": "the Sentinel at 127.0.0.1",
		"":        "the Sentinel at 127.0.0.1",
		"silence": "the Sentinel at 127.0.0.1",
	} {
		addr, patience := strange(t, reply), "10s"
		if reply == "silence" {
			patience = "100ms"
		}
		s := open(t, "redis+sentinel://"+addr+"/mymaster?max_retries=-1&read_timeout="+patience, atEpoch)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := pushOne(ctx, s, 1, epoch, c); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "%!") || ctx.Err() != nil {
			t.Errorf("%q: error %v, want %q", reply, err, want)
		}
		cancel()
		s = open(t, "redis+sentinel://"+addr+","+right+"/mymaster?max_retries=-1", atEpoch)
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		_, err := pushOne(ctx, s, 1, epoch, c)
		must.Reportf(t, err, "%q and a Sentinel that knows", reply)
		cancel()
	}
}

// strange returns the address of a server that gives each question the same reply. Without one it ends
// connections, and with silence it says nothing.
func strange(t *testing.T, reply string) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for in := bufio.NewReader(conn); reply != ""; {
					switch command, _, err := readCommand(in); {
					case err != nil:
						return
					case command[0] != "sentinel":
						_, _ = io.WriteString(conn, "-ERR unknown command\r\n")
					case reply != "silence":
						_, _ = io.WriteString(conn, reply)
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}
