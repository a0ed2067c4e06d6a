package warn_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/store/open"
	"weir/internal/store/postgres/postgrestest"
	"weir/internal/store/redis/redistest"
	"weir/internal/warn"
	"weir/internal/wire"
)

// lines is a log whose lines a test receives.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// run runs a warner, and returns it with its metrics.
func run(t *testing.T, o warn.Options, log io.Writer) (*warn.Warner, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	o.Registry = registry
	o.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	w := warn.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { w.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	return w, registry
}

func expect(t *testing.T, registry *prometheus.Registry, metric string, want int) {
	t.Helper()
	must.EqualOrEnd(t, must.Get(testutil.GatherAndCount(registry, metric))(t), 1, "%s", metric)
	for _, f := range must.Get(registry.Gather())(t) {
		if f.GetName() == metric {
			must.Equal(t, int(f.GetMetric()[0].GetCounter().GetValue()), want, "%s", metric)
		}
	}
}

var (
	now     = time.Date(2026, 1, 5, 10, 30, 0, 0, time.UTC)
	example = wire.Warning{
		Rule: "tokens", ID: wire.ID{0xab}, Limit: 1, WidthMillis: 3600_000, EndMillis: uint64(now.Add(30 * time.Minute).UnixMilli()), Used: 81, Quota: 100,
		Name: wire.AppendValue(wire.AppendValue(nil, []byte("ann"), false), []byte("\xff"), true),
	}
)

// Three backends on a store together report a key once a window.
func TestOneBackendTells(t *testing.T) {
	for name, url := range map[string]string{"memory": "", "file": "file:" + filepath.Join(t.TempDir(), "weir.db"), "redis": redistest.Start(t).URL(), "postgres": postgrestest.Start(t).URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var counters store.Store = memory.New(memory.Options{})
			if url != "" {
				opened, closer, err := open.Store(url, open.Options{})
				must.OK(t, err)
				t.Cleanup(func() { _ = closer.Close() })
				counters = opened
			}
			log := make(lines)
			var warners []*warn.Warner
			for range 3 {
				w, _ := run(t, warn.Options{Store: counters, Now: func() time.Time { return now }}, log)
				warners = append(warners, w)
			}
			later, rolling, last := example, example, example
			later.EndMillis += 3600_000
			rolling.EndMillis, last.ID = 0, wire.ID{9}
			for _, w := range warners {
				w.Hear("shop", []wire.Warning{example, example, later, rolling})
				w.Hear("other", []wire.Warning{example})
			}
			got := map[string]int{}
			for range 4 {
				got[<-log]++
			}
			// Each warner has handled all warnings when it has reported its last.
			for i, w := range warners {
				last.Limit = uint8(i)
				w.Hear("shop", []wire.Warning{last})
				got[<-log]++
			}
			const key = ` key=ab000000000000000000000000000000 values="ann,\uFFFD…" used=81 of=100`
			for _, line := range []string{
				`namespace=shop limit=tokens.2` + key + ` until=2026-01-05T11:00:00.000Z`, `namespace=shop limit=tokens.2` + key + ` until=2026-01-05T12:00:00.000Z`,
				`namespace=shop limit=tokens.2` + key, `namespace=other limit=tokens.2` + key + ` until=2026-01-05T11:00:00.000Z`,
			} {
				line = `level=WARN msg="a key nears its limit" ` + strings.ReplaceAll(line, `\uFFFD`, "\uFFFD") + "\n"
				must.Equal(t, got[line], 1, "times %s", line)
			}
			must.Equal(t, len(got), 7, "lines:\n%v", got)
		})
	}
}

// failing is a store that is away.
type failing struct{ store.Store }

func (failing) Push(context.Context, *wire.Push, uint64) (store.Outcome, error) {
	return store.Outcome{}, io.ErrUnexpectedEOF
}

// Without the store, a backend reports each warning once.
func TestStoreAway(t *testing.T) {
	log := make(lines)
	w, registry := run(t, warn.Options{Store: failing{}, Now: func() time.Time { return now }}, log)
	other := example
	other.Limit = 0
	w.Hear("shop", []wire.Warning{example, example, other})
	must.Contains(t, <-log, "limit=tokens.2", "first line")
	must.Contains(t, <-log, "limit=tokens ", "second line")
	expect(t, registry, "weir_warned_keys_total", 2)
}

// The webhook gets the same warnings as the log. A failed post is repeated, but not for ever.
func TestWebhook(t *testing.T) {
	type post struct {
		body    warn.Warning
		kind    string
		answers chan int
	}
	posts := make(chan post)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := post{kind: r.Method + " " + r.URL.Path + " " + r.Header.Get("content-type"), answers: make(chan int)}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &p.body)
		}
		must.Report(t, err)
		mac := hmac.New(sha256.New, []byte("correct horse"))
		fmt.Fprintf(mac, "%d.%s", now.Unix(), body)
		must.Equal(t, r.Header.Get("weir-signature"), fmt.Sprintf("t=%d,sha256=%x", now.Unix(), mac.Sum(nil)), "signature")
		posts <- p
		if status := <-p.answers; status == 0 {
			panic(http.ErrAbortHandler)
		} else {
			w.Header().Set("location", "/elsewhere")
			w.WriteHeader(status)
		}
	}))
	t.Cleanup(hook.Close)
	var mu sync.Mutex
	var pauses []time.Duration
	log := make(lines, 10)
	w, registry := run(t, warn.Options{
		Store: memory.New(memory.Options{}), Webhook: hook.URL + "/hunter2", Secret: "correct horse", Now: func() time.Time { return now },
		Pause: func(_ context.Context, d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			pauses = append(pauses, d)
		},
	}, log)
	ends := time.UnixMilli(int64(example.EndMillis)).UTC()
	want := warn.Warning{
		Namespace: "shop", Rule: "tokens", Limit: "tokens.2", Hash: "ab000000000000000000000000000000", Values: []string{"ann", "\uFFFD…"}, Used: 81, Quota: 100, WindowEnds: &ends,
	}
	for i, test := range []struct {
		answers []int
		pauses  []time.Duration
		log     string
	}{
		{[]int{204}, nil, ""},
		{[]int{0, 503, 429, 200}, []time.Duration{time.Second, 5 * time.Second, 25 * time.Second}, ""},
		{[]int{500, 500, 500, 500}, []time.Duration{time.Second, 5 * time.Second, 25 * time.Second}, "got 500 Internal Server Error"},
		{[]int{404}, nil, "got 404 Not Found"},
		{[]int{302}, nil, "got 302 Found"},
		{[]int{0, 0, 0, 0}, []time.Duration{time.Second, 5 * time.Second, 25 * time.Second}, "EOF"},
	} {
		warning := example
		warning.EndMillis += uint64(i)
		w.Hear("shop", []wire.Warning{warning})
		<-log
		for _, status := range test.answers {
			p := <-posts
			p.body.WindowEnds = want.WindowEnds // the only difference
			must.Same(t, p.body, want, "body")
			must.Equal(t, p.kind, "POST /hunter2 application/json", "request")
			p.answers <- status
		}
		if test.log != "" {
			if line := <-log; !strings.Contains(line, test.log) || strings.Contains(line, "hunter2") {
				t.Errorf("log, want %q: %s", test.log, line)
			}
		}
		mu.Lock()
		must.Same(t, pauses, test.pauses, "%v: pauses", test.answers)
		pauses = nil
		mu.Unlock()
	}
	expect(t, registry, "weir_undelivered_warnings_total", 4)
	expect(t, registry, "weir_warned_keys_total", 6)
}

// A warner that gets too many warnings at once does not block.
func TestTooMany(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := warn.New(warn.Options{Store: memory.New(memory.Options{}), Logger: slog.New(slog.NewTextHandler(new(bytes.Buffer), nil)), Registry: registry})
	w.Hear("shop", make([]wire.Warning, 1030)) // the warner does not run
	expect(t, registry, "weir_undelivered_warnings_total", 6)
}

// A namespace with too many warnings leaves room for another's.
func TestWarningsOfANeighbour(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := warn.New(warn.Options{Store: memory.New(memory.Options{}), Logger: slog.New(slog.DiscardHandler), Registry: registry})
	w.Hear("evil", make([]wire.Warning, 5000))
	w.Hear("victim", make([]wire.Warning, 500))
	expect(t, registry, "weir_undelivered_warnings_total", 5000-1024)
}

// Each step of a rule is reported once in a window, with its number.
func TestSteps(t *testing.T) {
	log := make(lines)
	w, registry := run(t, warn.Options{Store: memory.New(memory.Options{}), Now: func() time.Time { return now }}, log)
	half, most := example, example
	half.At, half.Used, most.At = 500, 50, 800
	w.Hear("shop", []wire.Warning{half, half, most, half, most})
	for _, want := range []string{" at=0.5 used=50 of=100 ", " at=0.8 used=81 of=100 "} {
		must.Contains(t, <-log, want, "")
	}
	last := example
	last.ID = wire.ID{9}
	w.Hear("shop", []wire.Warning{last})
	must.Lacks(t, <-log, "at=0", "log")
	expect(t, registry, "weir_warned_keys_total", 3)
}
