package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/bench/page"
	"weir/bench/site"
	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/must"
)

type object = site.Object

// connections is how many requests a proxy has at a time.
const connections = 16

// Parts of configurations, of the plugin's and of Envoy's.
var (
	userKey = []object{{"header": "x-user"}}
	synced  = object{"sync_rate": 1, "backend": object{"cluster": site.BackendCluster}}
	mute    = object{"headers": []string{}}
	byUser  = object{"rate_limits": []object{{"actions": []object{{"request_headers": object{"header_name": "x-user", "descriptor_key": "user"}}}}}}
)

// proxies add a limit for each x-user. All have one worker and a processor of their own.
func proxies() group {
	beside := func(title string) metric { return metric{title + ": `weir serve`", "µs", 1, "v"} }
	cpu := func(title string) metric { return metric{title + ": CPU of a request", "µs", 1, "vmr"} }
	many := page.Thousands(manyKeys) + " users"
	weir := func(name, title, module string, more object, services ...string) contender {
		return contender{name: name, title: title, than: "envoy", start: func(ctx context.Context, b *bench, limit int) (*subject, error) {
			text := configured(limit, site.Merged(object{"capacity": 4 * manyKeys}, more))
			return b.envoy(ctx, site.Envoy{Module: module, Text: text, Services: services})
		}}
	}
	return group{
		name: "proxies", title: "a proxy's limiter", reference: "of that without", outside: true, open: openProxies,
		versions: func(o *options) []string {
			return []string{digest(o.Plugin), digest(o.Native), digest(o.Weir), versionOf("nginx", "-v"), versionOf("haproxy", "-v"), envoyVersion()}
		},
		metrics: []metric{cpu("one user"), beside("one user"), cpu(many), beside(many), {"memory of a user", "B", 0, "m"}, {many + ": p99 of an answer", "µs", 0, "vr"}},
		quotes: []quotes{
			{"native-bare", 0, 'm', []string{"limit_req", "stick-table", "local"}}, {"native-bare", 2, 'm', []string{"limit_req", "stick-table", "local"}},
			{"native-sync", 0, 'm', []string{"local"}}, {"native-sync", 2, 'm', []string{"local"}}, {"wasm-bare", 0, 'm', []string{"local"}}, {"wasm-bare", 2, 'm', []string{"local"}},
			{"native", 4, 'm', []string{"limit_req", "stick-table", "local"}},
		},
		contenders: []contender{
			{name: "nginx", title: "nginx without a limit", bare: true, start: nginx("")},
			{name: "limit_req", title: "nginx, `limit_req`", than: "nginx", start: nginx("limit_req zone=users burst=LIMIT nodelay;")},
			{name: "haproxy", title: "HAProxy without a limit", bare: true, start: haproxy("")},
			{name: "stick-table", title: "HAProxy, a stick table", than: "haproxy", start: haproxy("http-request track-sc0 req.hdr(x-user) table users\n  http-request deny deny_status 429 if { sc_http_req_rate(0) gt LIMIT }")},
			{name: "envoy", title: "Envoy without a limit", bare: true, start: func(ctx context.Context, b *bench, _ int) (*subject, error) { return b.envoy(ctx, site.Envoy{}) }},
			{name: "local", title: "Envoy's local rate limit, a bucket of each user", than: "envoy", start: local},
			weir("native-bare", "Weir, native, `headers: []`", site.Native, mute),
			weir("native", "Weir, native", site.Native, nil),
			weir("native-sync", "Weir, native, `sync_rate: 1`", site.Native, synced, site.WeirServe),
			weir("wasm-bare", "Weir, wasm, `headers: []`", site.Plugin, mute),
			weir("wasm", "Weir, wasm", site.Plugin, nil),
			weir("wasm-sync", "Weir, wasm, `sync_rate: 1`", site.Plugin, synced, site.WeirServe),
		},
	}
}

// manyKeys is how many users there are where there are many.
const manyKeys = 100_000

func openProxies(ctx context.Context, b *bench) (err error) {
	if b.processor == "" {
		if b.processor, err = site.Pin(ctx); err != nil {
			return err
		}
	}
	b.site, err = site.Open(ctx, b, b.Options)
	return err
}

// nginx has a configuration for a location. It runs as one process, which ends when it is killed.
func nginx(location string) func(ctx context.Context, b *bench, limit int) (*subject, error) {
	return func(_ context.Context, b *bench, limit int) (*subject, error) {
		dir := b.TempDir()
		temporary := ""
		for _, of := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			temporary += fmt.Sprintf("%s_temp_path %s/%s; ", of, dir, of)
		}
		return b.start("nginx", fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr crit;
events { worker_connections 1024; }
http {
  access_log off; keepalive_requests 100000000; %[2]s
  limit_req_status 429;
  limit_req_zone $http_x_user zone=users:64m rate=%[3]dr/m;
  upstream app { server 127.0.0.1:%[4]d; keepalive 64; keepalive_requests 100000000; }
  server {
    listen ADDRESS;
    location / { %[5]s proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; }
  }
}
`, dir, temporary, limit, b.site.Upstream, fill(location, limit)), "-p", dir, "-c")
	}
}

// haproxy has rules of a frontend.
func haproxy(rules string) func(ctx context.Context, b *bench, limit int) (*subject, error) {
	return func(_ context.Context, b *bench, limit int) (*subject, error) {
		return b.start("haproxy", fmt.Sprintf(`global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 5m
  timeout server 5m
frontend all
  bind ADDRESS
  %s
  default_backend app
backend users
  stick-table type string len 32 size %d expire 1m store http_req_rate(1m)
backend app
  server app 127.0.0.1:%d
`, fill(rules, limit), 4*manyKeys, b.site.Upstream), "-db", "-f")
	}
}

func fill(text string, limit int) string { return strings.ReplaceAll(text, "LIMIT", fmt.Sprint(limit)) }

// start starts a proxy that is configured by a file, the last of its arguments.
func (b *bench) start(program, configuration string, args ...string) (*subject, error) {
	path, err := lookPath(program)
	if err != nil {
		return nil, err
	}
	address, file := commandtest.FreeAddress(b), filepath.Join(b.TempDir(), program)
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(configuration, "ADDRESS", address)), 0o600); err != nil {
		return nil, err
	}
	pid := page.Start(b, "http://"+address+"/", nil, append(append([]string{"taskset", "-c", b.processor, path}, args...), file)...)
	written := func() ([]float64, error) {
		of, err := site.MemoryOf(pid)
		return []float64{of.Own * mebibyte}, err
	}
	return b.proxied(address, written, pid), nil
}

// process is an Envoy that listens at an address, and was ready after wall. pids are its own and those of its services.
type process struct {
	*envoytest.Envoy
	site    *site.Site
	address string
	wall    time.Duration
	pids    []int
}

// run starts an Envoy, and its services for it alone.
func (b *bench) run(ctx context.Context, e site.Envoy) (*process, error) {
	s, err := site.Open(ctx, b, b.Options, &e)
	if err != nil {
		return nil, err
	}
	p, begin := &process{site: s}, time.Now()
	if p.Envoy, err = s.Start(ctx, &e, b.processor); err != nil {
		return nil, err
	}
	p.wall = time.Since(begin)
	b.Cleanup(func() { must.Report(b, p.Close()) })
	listeners, err := p.Listeners()
	p.address, p.pids = listeners["http"], []int{p.PID()}
	for _, name := range e.Services {
		p.pids = append(p.pids, s.Services[name].PID)
	}
	return p, err
}

func (b *bench) envoy(ctx context.Context, e site.Envoy) (*subject, error) {
	p, err := b.run(ctx, e)
	if err != nil {
		return nil, err
	}
	allocated := func() ([]float64, error) {
		of, err := site.MemoryOf(p.PID())
		if err != nil {
			return nil, err
		}
		text, err := p.Admin("GET", "/memory")
		if err != nil {
			return nil, err
		}
		var told struct {
			Allocated float64 `json:",string"`
		}
		err = json.Unmarshal(text, &told)
		return []float64{of.Own * mebibyte, told.Allocated}, err
	}
	return b.proxied(p.address, allocated, p.pids...), nil
}

// limited is Envoy's own limit.
func limited(more object) object {
	always := object{"default_value": object{"numerator": 100, "denominator": "HUNDRED"}}
	return envoytest.Typed("envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit", site.Merged(object{
		"stat_prefix": "local", "filter_enabled": always, "filter_enforced": always,
	}, more))
}

func tokens(most int, fill string) object {
	return object{"max_tokens": most, "tokens_per_fill": most, "fill_interval": fill}
}

// local is Envoy's own limit, with a token bucket of each x-user.
func local(ctx context.Context, b *bench, limit int) (*subject, error) {
	return b.envoy(ctx, site.Envoy{Route: byUser, Filter: limited(object{
		"token_bucket": tokens(site.Never, "60s"), "descriptors": []object{{"entries": []object{{"key": "user"}}, "token_bucket": tokens(limit, "60s")}},
		"max_dynamic_descriptors": 4 * manyKeys, "always_consume_default_token_bucket": false,
	})})
}

const mebibyte = 1 << 20

// proxied returns the subject of a proxy, with the processes that work for it. memory returns how much of its memory is in
// use, in bytes, in several ways that may each miss some.
func (b *bench) proxied(address string, memory func() ([]float64, error), pids ...int) *subject {
	every := func(int) string { return user(rand.IntN(b.keys)) }
	perKey := math.NaN()
	return &subject{
		allow: func(ctx context.Context, user string) (bool, error) {
			n, _, err := refused(ctx, address, 1, 1, func(int) string { return user })
			return n == 0, err
		},
		round: func(ctx context.Context) (values []float64, err error) {
			if math.IsNaN(perKey) { // the first round
				if _, err := send(ctx, address, b.requests/4, one); err != nil { // what is made once is not a user's memory
					return nil, err
				}
				before, err := memory()
				if err != nil {
					return nil, err
				}
				if _, err := send(ctx, address, b.keys, user); err != nil {
					return nil, err
				}
				after, err := memory()
				if err != nil {
					return nil, err
				}
				for i := range after {
					after[i] = (after[i] - before[i]) / float64(b.keys)
				}
				perKey = slices.Max(after)
			}
			var waits []float64
			for _, users := range []func(int) string{one, every} {
				// While others were asked, other data filled the processor's caches.
				if _, err := send(ctx, address, b.requests/8, users); err != nil {
					return nil, err
				}
				took, err := site.Micros(b.requests, pids, func() (err error) {
					waits, err = send(ctx, address, b.requests, users)
					return errors.Join(err, b.wait(ctx))
				})
				if err != nil {
					return nil, err
				}
				values = append(values, append(took, math.NaN())[:2]...)
			}
			return append(values, perKey, page.Quantile(waits, 0.99)), nil
		},
	}
}

func one(int) string { return user(0) }

func user(i int) string { return fmt.Sprintf("user-%06d", i) }

// send sends requests that have to pass, and returns how long each took, in µs.
func send(ctx context.Context, address string, n int, users func(i int) string) ([]float64, error) {
	of, waits, err := refused(ctx, address, connections, n, users)
	if err == nil && of > 0 {
		err = fmt.Errorf("%d of %d requests are refused", of, n)
	}
	return waits, err
}

// refused sends requests, and returns how many were refused, and how long each took.
func refused(ctx context.Context, address string, connections, n int, users func(i int) string) (int64, []float64, error) {
	var count atomic.Int64
	a := asking{address: address}
	waits, err := a.load(ctx, connections, n, users, func(answer *http.Response) error {
		switch answer.StatusCode {
		case http.StatusOK:
		case http.StatusTooManyRequests:
			count.Add(1)
		default:
			return fmt.Errorf("answer %s", answer.Status)
		}
		return nil
	})
	return count.Load(), waits, err
}

// asking says where requests go. They have a path of their own and a body unless these are empty. If rate is not 0, so many
// are sent a second.
type asking struct {
	address, path, body string
	rate                int
}

// load sends requests of users over connections, and returns how long each took, in µs. A connection sends its next request
// when its last was answered, or is due. An answer that is not judged right is an error. Unlike h2load it has another user in
// each request.
func (a *asking) load(ctx context.Context, connections, n int, users func(i int) string, judge func(*http.Response) error) (waits []float64, err error) {
	head := "GET "
	if a.body != "" {
		head = "POST "
	}
	head += cmp.Or(a.path, site.RequestPath) + " HTTP/1.1\r\nhost: " + a.address + "\r\n"
	for _, h := range site.RequestHeaders {
		head += h[0] + ": " + h[1] + "\r\n"
	}
	if a.body != "" {
		head += fmt.Sprintf("content-type: application/json\r\ncontent-length: %d\r\n", len(a.body))
	}
	waits = make([]float64, n)
	var sent atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for range connections {
		g.Go(func() (err error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.address)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, c.Close()) }()
			answers := bufio.NewReader(c)
			for {
				i := int(sent.Add(1)) - 1
				if i >= n || ctx.Err() != nil {
					return ctx.Err()
				}
				if a.rate > 0 {
					<-time.After(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(a.rate))))
				}
				begin := time.Now()
				if _, err := io.WriteString(c, head+"x-user: "+users(i)+"\r\n\r\n"+a.body); err != nil {
					return err
				}
				answer, err := http.ReadResponse(answers, nil)
				if err != nil {
					return err
				}
				if judge != nil {
					if err := judge(answer); err != nil {
						return err
					}
				}
				if _, err := io.Copy(io.Discard, answer.Body); err != nil {
					return err
				}
				waits[i] = float64(time.Since(begin).Microseconds())
			}
		})
	}
	return waits, g.Wait()
}
