package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"weir/internal/commandtest"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	byname "weir/internal/store/open"
	"weir/internal/store/postgres/postgrestest"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
)

// clock is a fake one.
type clock struct{ nanos atomic.Int64 }

func (c *clock) now() time.Time          { return epoch.Add(time.Duration(c.nanos.Load())) }
func (c *clock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

// pings counts them.
type pings struct {
	store.Store
	n atomic.Int64
}

func (p *pings) Ping(ctx context.Context) error {
	p.n.Add(1)
	return p.Store.Ping(ctx)
}

// However many ask, the store is tried once in a second.
func TestReadinessIsShared(t *testing.T) {
	counters, clock := &pings{Store: open()}, &clock{}
	s := start(t, counters, server.Options{Now: clock.now})
	for second := range int64(3) {
		var askers sync.WaitGroup
		for i := range 50 {
			path := [...]string{"/readyz", "/healthz"}[i%2]
			askers.Go(func() {
				if answer, body := do(t, s.Client(), request(t, "GET", s.URL+path, nil)); answer.StatusCode != 200 || body != "ok\n" {
					t.Errorf("%s: status %d: %s", path, answer.StatusCode, body)
				}
			})
		}
		askers.Wait()
		must.Equal(t, counters.n.Load(), second+1, "pings, of which want one in each second")
		clock.advance(time.Second)
	}
}

// hanging is a store that answers pings only.
type hanging struct {
	store.Store
	entered chan struct{}
}

func (h *hanging) Push(ctx context.Context, _ *wire.Push, _ uint64) (store.Outcome, error) {
	h.entered <- struct{}{}
	<-ctx.Done()
	return store.Outcome{}, ctx.Err()
}

// Clients that give up while the store works are counted, and told of once in a minute.
func TestGivenUp(t *testing.T) {
	counters, clock, log := &hanging{open(), make(chan struct{})}, &clock{}, &commandtest.Output{}
	handler := server.Handler(counters, server.Options{Now: clock.now, Logger: slog.New(slog.NewTextHandler(log, nil))})
	body := wire.AppendPush(nil, examplePush())
	giveUp := func() {
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan struct{})
		go func() {
			handler.ServeHTTP(httptest.NewRecorder(), request(t, "POST", wire.PushPath, body).WithContext(ctx))
			close(served)
		}()
		<-counters.entered
		cancel()
		<-served
	}
	for range 3 {
		giveUp()
	}
	clock.advance(time.Minute)
	giveUp()
	got := log.String()
	if strings.Count(got, "\n") != 2 || !strings.Contains(got, "give up before the store answers\" calls=1\n") || !strings.Contains(got, "calls=3\n") {
		t.Errorf("log, want one line of the first client and one, a minute later, of the other three:\n%s", got)
	}
	wantMetrics(t, handler, "weir_store_given_up_total 4", "weir_store_errors_total 0")
}

// lacking is a store of which a part is away.
type lacking struct {
	store.Store
	whole atomic.Bool
}

func (l *lacking) Push(ctx context.Context, p *wire.Push, nodes uint64) (out store.Outcome, err error) {
	if out, err = l.Store.Push(ctx, p, nodes); err == nil && !l.whole.Load() {
		out.Answer.Missing = make([]wire.Missing, len(p.Items)+len(p.Takes))
		out.Answer.Missing[0], out.Lacking = wire.InDoubt, errors.New("a master at 10.0.0.1 is away")
	}
	return out, err
}

func (l *lacking) Ping(context.Context) error {
	if l.whole.Load() {
		return nil
	}
	return store.ErrPartly
}

// While a part of the store is away, pushes have answers that say so, and so do readiness, the log and
// the metrics. The backend stays ready for the rest.
func TestPartly(t *testing.T) {
	counters, clock, log := &lacking{Store: open()}, &clock{}, &commandtest.Output{}
	handler := server.Handler(counters, server.Options{Now: clock.now, Logger: slog.New(slog.NewTextHandler(log, nil))})
	ask := func(method, path string, body []byte) string {
		t.Helper()
		code, answer := served(t, handler, method, path, body)
		must.Equal(t, code, 200, "%s: status: %s", path, answer)
		return answer
	}
	body := wire.AppendPush(nil, examplePush())
	for range 3 {
		a, err := wire.DecodeAnswer([]byte(ask("POST", wire.PushPath, body)))
		if err != nil || len(a.Missing) == 0 || a.Missing[0] != wire.InDoubt || a.Missing[1] != wire.Answered {
			t.Fatalf("answer %+v, error %v; want the first item missing", a, err)
		}
	}
	must.Equal(t, ask("GET", "/readyz", nil), "ok, but only a part of the counters can be reached\n", "/readyz")
	wantMetrics(t, handler, "weir_push_missing_total 3", "weir_store_partly 1")
	counters.whole.Store(true)
	clock.advance(time.Second)
	must.Equal(t, ask("GET", "/readyz", nil), "ok\n", "/readyz: once all is back")
	wantMetrics(t, handler, "weir_store_partly 0")
	if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "10.0.0.1") || !strings.Contains(got, "accepts all hits again") {
		t.Errorf("log, want a line of the loss and one of its end:\n%s", got)
	}
}

// A sender that says how long it waits has an answer before, but leaves the store some time.
func TestAnsweredInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counters := &hanging{open(), make(chan struct{}, 1)}
		handler := server.Handler(counters, server.Options{Logger: slog.New(slog.DiscardHandler)})
		for millis, most := range map[string]time.Duration{"2000": 2 * time.Second, "0": 20 * time.Millisecond} {
			began := time.Now()
			r := request(t, "POST", wire.PushPath, wire.AppendPush(nil, examplePush()))
			r.Header.Set("X-Envoy-Expected-Rq-Timeout-Ms", millis)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if took := time.Since(began); w.Code != 503 || took < most/2 || took >= most {
				t.Errorf("%s ms: status %d after %v; want 503 before %v", millis, w.Code, took, most)
			}
			<-counters.entered
		}
		wantMetrics(t, handler, "weir_store_given_up_total 2")
	})
}

// A store that ends calls by itself is to blame for that. One that fails every other call is told of once.
func TestFailuresInTurns(t *testing.T) {
	counters, clock, log := &brokenStore{Store: open()}, &clock{}, &commandtest.Output{}
	handler := server.Handler(counters, server.Options{Now: clock.now, Logger: slog.New(slog.NewTextHandler(log, nil))})
	body := wire.AppendPush(nil, examplePush())
	for _, err := range []error{context.Canceled, nil, context.DeadlineExceeded, nil, errors.New("away"), nil} {
		counters.err = err
		code, _ := served(t, handler, "POST", wire.PushPath, body)
		must.Equal(t, code, map[bool]int{true: 200, false: 503}[err == nil], "%v: status", err)
		clock.advance(400 * time.Millisecond)
	}
	wantMetrics(t, handler, "weir_store_given_up_total 0", "weir_store_errors_total 3")
	must.Equal(t, strings.Count(log.String(), "\n"), 1, "lines in the log:\n%s", log.String())
}

// sick is a store in trouble: make it so, and well again.
type sick struct {
	url          string
	sicken, heal func()
}

// sicknesses make stores refuse hits though they can be reached.
var sicknesses = map[string]func(t *testing.T) sick{
	"redis out of memory": func(t *testing.T) sick {
		redis := redistest.Start(t)
		set := func(value string) func() { return func() { command(t, redis, "CONFIG", "SET", "maxmemory", value) } }
		return sick{redis.URL(), set("1"), set("0")}
	},
	"redis is a replica": func(t *testing.T) sick {
		redis, master := redistest.Start(t), redistest.Start(t)
		host, port, _ := strings.Cut(master.Addr, ":")
		return sick{
			redis.URL(),
			func() { command(t, redis, "REPLICAOF", host, port) },
			func() { command(t, redis, "REPLICAOF", "NO", "ONE") },
		}
	},
	"redis hangs": func(t *testing.T) sick {
		redis := redistest.Start(t)
		return sick{redis.URL() + "?read_timeout=1s&max_retries=-1", redis.Pause, redis.Resume}
	},
	"redis is gone": func(t *testing.T) sick {
		redis := redistest.Start(t)
		return sick{redis.URL(), redis.Stop, redis.Restart}
	},
	"postgres is a standby": func(t *testing.T) sick {
		postgres := postgrestest.Start(t)
		return sick{postgres.URL(), func() { postgres.Standby(t) }, func() { postgres.Promote(t) }}
	},
	"postgres is gone": func(t *testing.T) sick {
		postgres := postgrestest.Start(t)
		return sick{postgres.URL(), func() { postgres.Stop(t) }, func() { postgres.Restart(t) }}
	},
}

func command(t *testing.T, redis *redistest.Server, words ...any) {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: redis.Addr})
	must.OK(t, errors.Join(c.Do(t.Context(), words...).Err(), c.Close()))
}

// A store that takes no hits is told of once, whether it can be reached or not, and not to be back
// before it takes them again. Readiness says so, and liveness has nothing to do with it.
func TestSickStores(t *testing.T) {
	t.Parallel()
	for name, start := range sicknesses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sick := start(t)
			counters, closer, err := byname.Store(sick.url, byname.Options{})
			must.OK(t, err)
			log, clock := &commandtest.Output{}, &clock{}
			s := httptest.NewServer(server.Handler(counters, server.Options{Now: clock.now, Logger: slog.New(slog.NewTextHandler(log, nil))}))
			t.Cleanup(func() {
				s.Close()
				must.Report(t, closer.Close())
			})
			sequence := uint64(0)
			round := func(status int) {
				t.Helper()
				clock.advance(time.Second)
				sequence++
				push := examplePush()
				push.Sequence = sequence
				for _, ask := range []struct {
					method, path string
					body         []byte
					status       int
				}{
					{"POST", wire.PushPath, wire.AppendPush(nil, push), status},
					{"GET", "/healthz", nil, status},
					{"GET", "/readyz", nil, status},
					{"GET", "/livez", nil, http.StatusOK},
				} {
					wantStatus(t, s, request(t, ask.method, s.URL+ask.path, ask.body), ask.status)
				}
			}
			round(http.StatusOK)
			sick.sicken()
			for range 3 {
				round(http.StatusServiceUnavailable)
			}
			must.Equal(t, strings.Count(log.String(), "\n"), 1, "lines of the log")
			must.Contains(t, log.String(), "the store fails", "log")
			sick.heal()
			for range 2 {
				round(http.StatusOK)
			}
			must.Equal(t, strings.Count(log.String(), "\n"), 2, "lines of the log")
			must.Contains(t, log.String(), "the store is back", "log")
		})
	}
}

// A client that gives up while PostgreSQL waits for a lock is counted as such.
func TestGivenUpOnPostgres(t *testing.T) {
	t.Parallel()
	postgres := postgrestest.Start(t)
	counters, closer, err := byname.Store(postgres.URL(), byname.Options{})
	must.OK(t, err)
	log := &commandtest.Output{}
	s := httptest.NewServer(server.Handler(counters, server.Options{Logger: slog.New(slog.NewTextHandler(log, nil))}))
	body := wire.AppendPush(nil, examplePush())
	post(t, s, body)
	c := must.Get(pgx.Connect(t.Context(), postgres.URL()))(t)
	must.Get(c.Exec(t.Context(), "BEGIN; LOCK TABLE weir.senders IN ACCESS EXCLUSIVE MODE"))(t)
	ctx, giveUp := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		answer, err := s.Client().Do(request(t, "POST", s.URL+wire.PushPath, body).WithContext(ctx))
		if err == nil {
			err = errors.Join(errors.New("answered"), answer.Body.Close())
		}
		gone <- err
	}()
	for waiting := 0; waiting == 0; {
		must.OK(t, c.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waiting))
	}
	giveUp()
	must.Is(t, <-gone, context.Canceled, "")
	s.Close() // waits for the push
	wantMetrics(t, s.Config.Handler, "weir_store_given_up_total 1", "weir_store_errors_total 0")
	must.Equal(t, strings.Count(log.String(), "\n"), 1, "lines of the log")
	must.Contains(t, log.String(), "give up", "log")
	must.Report(t, errors.Join(c.Close(t.Context()), closer.Close()))
}

// The log tells who shows a wrong token: once a minute of each source, and of few sources however many
// there are.
func TestRefusedAreLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	now := time.Unix(1_800_000_000, 0)
	handler := server.Handler(open(), server.Options{
		Tokens: oneToken("s3cret"), Logger: slog.New(slog.NewTextHandler(&log, nil)), Now: func() time.Time { return now },
	})
	ask := func(source, token string) {
		t.Helper()
		r := request(t, "POST", "http://weir"+wire.PushPath, wire.AppendPush(nil, examplePush()))
		r.RemoteAddr = source
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if want := map[string]int{"s3cret": 200}[token]; want == 0 && w.Code != 401 || want != 0 && w.Code != want {
			t.Fatalf("status %d", w.Code)
		}
	}
	told := func() (lines []string) {
		defer log.Reset()
		return strings.FieldsFunc(log.String(), func(r rune) bool { return r == '\n' })
	}
	for range 5 {
		ask("10.0.0.1:1234", "hunter2")
		ask("10.0.0.1:4321", "hunter2")
		ask("[2001:db8::1]:1", "")
		ask("10.0.0.2:1", "s3cret")
	}
	lines := told()
	if len(lines) != 2 || !strings.Contains(lines[0], `msg="requests are refused" source=10.0.0.1 status=401 reason="authorization: want the bearer token" requests=1 path=/v1/push`) ||
		!strings.Contains(lines[1], "source=2001:db8::1 status=401") || strings.Contains(strings.Join(lines, ""), "hunter2") {
		t.Errorf("got %q", lines)
	}
	now = now.Add(time.Minute)
	ask("10.0.0.1:1", "")
	ask("10.0.0.1:1", "")
	if lines := told(); len(lines) != 1 || !strings.Contains(lines[0], "requests=10 ") {
		t.Errorf("a minute later: got %q", lines)
	}
	// A flood of sources neither fills the log nor the memory, and ends.
	for i := range 2000 {
		ask(fmt.Sprintf("10.1.%d.%d:1", i/256, i%256), "")
	}
	lines = told()
	if n := len(lines); n > 300 || n < 200 || !strings.Contains(lines[n-1], "source=others") {
		t.Errorf("%d lines, the last one %q", n, lines[n-1])
	}
	now = now.Add(time.Hour)
	ask("10.2.0.1:1", "")
	if lines := told(); len(lines) != 1 || !strings.Contains(lines[0], "source=10.2.0.1 ") {
		t.Errorf("after the flood: %q", lines)
	}
}

// A backend that is about to end takes pushes still, and says that it is not ready.
func TestLeaving(t *testing.T) {
	t.Parallel()
	leaving := make(chan struct{})
	s := start(t, open(), server.Options{Leaving: leaving})
	wantStatus(t, s, request(t, "GET", s.URL+"/readyz", nil), 200)
	close(leaving)
	wantStatus(t, s, request(t, "GET", s.URL+"/readyz", nil), 503)
	pushed(t, s, examplePush())
	wantStatus(t, s, request(t, "GET", s.URL+"/livez", nil), 200)
}
