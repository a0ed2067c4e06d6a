package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"weir/bench/page"
	"weir/bench/site"
	"weir/internal/envoytest"
)

// variant is a configuration of Envoy with the requests that it gets.
type variant struct {
	site.Envoy
	// path is that of requests, if it is not that of others, and body is theirs; without one they have none. Of all requests
	// of others one in fewer is sent, if that is not 0.
	path, body string
	fewer      int
	// status is that of all answers but the first, and decorated says that they have headers with the rest of the limit.
	status    int
	decorated bool
	// counted is a counter of every request, except one at most; empty if there is none.
	counted string
}

// What variants are compared with.
const (
	none   = "none"
	direct = "direct"
	posts  = "posts"
	events = "events"
)

// pace is how many requests a second are sent where latencies are measured.
const pace = 5000

// requests are what a request costs in Envoy: without a filter, with the plugin, with filters that do less, and with Envoy's
// own. It also measures Envoy's start.
func requests() group {
	like := map[string]variant{
		posts: {path: "/v1/chat/completions", body: `{"model":"gpt-5","stream":true,"max_tokens":100,"messages":[{"role":"user","content":"` + strings.Repeat("Tell me more. ", 70) + `"}]}`},
		// A megabyte each.
		events: {path: site.EventsPath, fewer: 100},
		direct: {status: http.StatusTooManyRequests},
	}
	envoy := func(name, title, than string, e site.Envoy, counted string, decorated bool) contender {
		v := like[than]
		if than == "" {
			v = like[name]
		}
		v.Envoy, v.status, v.counted, v.decorated = e, max(v.status, http.StatusOK), counted, decorated
		return contender{name: name, title: title, than: than, bare: true, start: func(ctx context.Context, b *bench, _ int) (*subject, error) { return b.variant(ctx, v) }}
	}
	weir := func(name, title, than, outcome string, more object, services ...string) contender {
		e := site.Envoy{Module: site.Plugin, Text: configured(site.Never, more), Services: services, Waits: than == posts || than == events}
		counted := "wasmcustom.weir.weir_namespace=.=" + site.Namespace + ";.;weir_rule=.=per-user;.;weir_outcome=.=" + outcome + ";.;requests_total"
		if strings.HasPrefix(name, "native") {
			e.Module = site.Native
			counted = "dynamicmodulescustom.weir.requests_total.weir_namespace." + site.Namespace + ".weir_rule.per-user.weir_outcome." + outcome
		}
		if outcome == "" {
			counted = ""
		}
		return envoy(name, "Weir"+title, than, e, counted, outcome != "" && more["headers"] == nil)
	}
	rule := func(limit int, window string, more object) object {
		return object{"rules": []object{site.Merged(object{"name": "per-user", "key": userKey, "limits": []object{{"limit": limit, "window": window}}}, more)}}
	}
	central := object{"sync_rate": 0, "backend": object{"cluster": site.BackendCluster, "timeout": "5s"}, "on_backend_failure": "deny"}
	own := func(most int, fill string) object {
		return limited(object{"token_bucket": tokens(most, fill)})
	}
	global := func(service string) site.Envoy {
		return site.Envoy{
			Services: []string{service, site.RedisServer}, Route: byUser,
			// A request that the service does not answer fails, so that it does not count as a decision.
			Filter: envoytest.Typed("envoy.extensions.filters.http.ratelimit.v3.RateLimit", object{
				"domain": site.Namespace, "timeout": "5s", "failure_mode_deny": true,
				"rate_limit_service": object{"transport_api_version": "V3", "grpc_service": object{"envoy_grpc": object{"cluster_name": site.RateLimitCluster}}},
			}),
		}
	}
	const globalOK, local = "cluster.app.ratelimit.ok", "local.http_local_rate_limit."
	return group{
		name: "envoy", title: "a request through Envoy", reference: "of that without", outside: true, open: openProxies,
		versions: func(o *options) []string {
			return []string{digest(o.Plugin), digest(o.Native), digest(o.Weir), built("ratelimit", o.RateLimit), envoyVersion()}
		},
		metrics: []metric{
			{"CPU", "µs", 1, "vmr"}, {"CPU of its service, mean", "µs", 1, "a"}, {"CPU of Redis, mean", "µs", 1, "a"}, {"Envoy busy", "%", 0, "v"},
			{"CPU", "µs", 1, "vmr"}, {"half of the answers within", "µs", 0, "v"}, {"99 of 100", "µs", 0, "v"}, {"999 of 1,000", "µs", 0, "v"},
			{"CPU", "s", 2, "v"}, {"until ready", "s", 2, "v"}, {"resident memory", "MiB", 1, "v"}, {"of its own", "MiB", 1, "v"}, {"of its own after the requests", "MiB", 1, "v"}, {"module", "B", 0, "v"},
		},
		tables: map[int]string{4: fmt.Sprintf("at %s requests a second", page.Thousands(pace)), 8: "Envoy's start"},
		contenders: []contender{
			envoy(none, "no filter", "", site.Envoy{}, "", false),
			envoy("nothing", "a Wasm filter that does nothing", none, site.Envoy{Module: site.Nothing}, "", false),
			envoy("native-nothing", "a dynamic module that does nothing", none, site.Envoy{Module: site.ModuleSO}, "", false),
			envoy("floor", "the floor: Weir's host calls alone", none, site.Envoy{Module: site.Floor}, "", true),
			envoy("floor-bare", "the floor, no response headers", none, site.Envoy{Module: site.Floor, Text: "bare"}, "", false),
			envoy("native-floor", "the native floor: a dynamic module's host calls alone", none, site.Envoy{Module: site.ModuleSO, Text: "floor"}, "", true),
			envoy("native-floor-bare", "the native floor, no response headers", none, site.Envoy{Module: site.ModuleSO, Text: "bare"}, "", false),
			weir("weir", "", none, "allowed", nil),
			weir("weir-bare", ", `headers: []`", none, "allowed", mute),
			weir("weir-sync", ", `sync_rate: 1`", none, "allowed", synced, site.WeirServe),
			weir("weir-central", ", `sync_rate: 0`, on Redis", none, "allowed", central, site.WeirServeOnRedis, site.RedisServer),
			weir("weir-no-match", ", no rule matches", none, "", rule(site.Never, "1m", object{"match": object{"path": object{"prefix": "/admin/"}}})),
			weir("native", ", native", none, "allowed", nil),
			weir("native-bare", ", native, `headers: []`", none, "allowed", mute),
			weir("native-central", ", native, `sync_rate: 0`, on Redis", none, "allowed", central, site.WeirServeOnRedis, site.RedisServer),
			weir("native-sync", ", native, `sync_rate: 1`", none, "allowed", synced, site.WeirServe),
			envoy("local", "Envoy's local rate limit", none, site.Envoy{Filter: own(site.Never, "60s")}, local+"ok", false),
			envoy("global", "Envoy's global rate limit, on Redis", none, global(site.RateLimitService), globalOK, false),
			envoy("global-weir", "Envoy's global rate limit, by `weir ratelimit` on Redis", none, global(site.WeirRateLimit), globalOK, false),
			envoy(posts, "no filter, a request with a body of 1 KiB", "", site.Envoy{}, "", false),
			weir("weir-asks", " adds `stream_options` to the body", posts, "allowed", rule(site.Never, "1m", object{"cost_on_response": "openai", "ask_for_usage": true})),
			envoy(events, "no filter, an answer with a megabyte of events", "", site.Envoy{}, "", false),
			weir("weir-events", " reads a megabyte of events", events, "allowed", rule(site.Never, "1m", object{"cost_on_response": "openai"})),
			envoy(direct, "a route that answers 429 itself", "", site.Envoy{Route: object{"direct_response": object{
				"status": http.StatusTooManyRequests, "body": object{"inline_string": `{"title":"Rate limit exceeded","status":429}` + "\n"},
			}}}, "", false),
			weir("weir-refuses", " refuses", direct, "rejected", rule(1, "1d", nil)),
			weir("native-refuses", ", native, refuses", direct, "rejected", rule(1, "1d", nil)),
			envoy("local-refuses", "Envoy's local rate limit refuses", direct, site.Envoy{Filter: own(1, "86400s")}, local+"rate_limited", false),
		},
	}
}

// variant starts an Envoy, and measures its start.
func (b *bench) variant(ctx context.Context, v variant) (*subject, error) {
	p, err := b.run(ctx, v.Envoy)
	if err != nil {
		return nil, err
	}
	stat, err := procfs.NewProc(p.PID())
	if err != nil {
		return nil, err
	}
	began, err := stat.Stat() // with threads that have ended
	if err != nil {
		return nil, err
	}
	fresh, err := site.MemoryOf(p.PID())
	if err != nil {
		return nil, err
	}
	module := math.NaN()
	if v.Module != "" {
		info, err := os.Stat(p.site.Files[v.Module])
		if err != nil {
			return nil, err
		}
		module = float64(info.Size())
	}
	sent, all := 1, asking{address: p.address, path: v.path, body: v.body}
	send := func(ctx context.Context, n, rate int) ([]float64, error) {
		sent += n
		all.rate = rate
		return all.load(ctx, connections, n, one, func(answer *http.Response) error {
			if got := answer.Header.Get("X-Ratelimit-Limit") != ""; answer.StatusCode != v.status || got != v.decorated {
				return fmt.Errorf("want status %d, and headers of the limit: %t, got %s with %v\n%s", v.status, v.decorated, answer.Status, answer.Header, p.Log())
			}
			return nil
		})
	}
	// Where requests are refused, the first uses up the limit.
	if _, err := all.load(ctx, 1, 1, one, nil); err != nil {
		return nil, err
	}
	var paced []float64
	n := max(b.requests/max(v.fewer, 1), connections)
	return &subject{round: func(ctx context.Context) ([]float64, error) {
		// While others were asked, other data filled the processor's caches, and the plugin gave back its leased hits.
		during := func(rate int) (took, waits []float64, elapsed time.Duration, err error) {
			if _, err := send(ctx, max(connections, n/8), 0); err != nil {
				return nil, nil, 0, err
			}
			begin := time.Now()
			took, err = site.Micros(n, p.pids, func() (err error) {
				waits, err = send(ctx, n, rate)
				elapsed = time.Since(begin)
				return err
			})
			return append(took, math.NaN(), math.NaN()), waits, elapsed, err
		}
		took, _, elapsed, err := during(0)
		if err != nil {
			return nil, err
		}
		busy := 100 * took[0] * float64(n) / float64(elapsed.Microseconds())
		if paced == nil { // the first round
			took, waits, _, err := during(max(pace/max(v.fewer, 1), 1))
			if err != nil {
				return nil, err
			}
			paced = append(took[:1], page.Quantile(waits, 0.5), page.Quantile(waits, 0.99), page.Quantile(waits, 0.999))
		}
		loaded, err := site.MemoryOf(p.PID())
		if err != nil {
			return nil, err
		}
		start := []float64{began.CPUTime(), p.wall.Seconds(), fresh.Resident, fresh.Own, loaded.Own, module}
		if v.Module == "" && (v.Filter != nil || v.Route != nil || v.path != "") { // as with no filter
			start = slices.Repeat([]float64{math.NaN()}, len(start))
		}
		return slices.Concat(took[:3], []float64{busy}, paced, start), p.counted(ctx, map[string]int{v.counted: sent - 1, p.called(v.Services): 1})
	}}, nil
}

// called is a counter that must not be 0 at the end; empty if there is none.
func (*process) called(services []string) string {
	if slices.Contains(services, site.WeirServe) || slices.Contains(services, site.WeirServeOnRedis) {
		return "cluster." + site.BackendCluster + ".upstream_rq_200"
	}
	return ""
}

// counted returns an error unless counters reach their least values soon: plugins take a while to publish theirs.
func (p *process) counted(ctx context.Context, least map[string]int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	delete(least, "")
	for name, n := range least {
		var last int64
		if err := p.Wait(ctx, func() (_ bool, err error) {
			last, err = p.Stat(name)
			return last >= int64(n), err
		}); err != nil {
			return errors.Join(fmt.Errorf("%s: want %d at least, got %d", name, n, last), err)
		}
	}
	return nil
}

// configured returns a configuration of the plugin, with a limit a minute for each x-user.
func configured(limit int, more object) string {
	// Strings and numbers can always be encoded.
	text, _ := json.Marshal(site.Merged(object{
		"namespace": site.Namespace, "rules": []object{{"name": "per-user", "key": userKey, "limits": []object{{"limit": limit, "window": "1m"}}}},
	}, more))
	return string(text)
}
