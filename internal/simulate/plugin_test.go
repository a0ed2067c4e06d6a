package simulate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/host"
	"weir/internal/must"
	"weir/internal/nightly"
)

// demand is one request, as it is sent to the compiled plugin and as Envoy would log it.
type demand struct {
	at                                      time.Time
	method, path, user, cost, source, costs string
}

// known is a demand of some users over some minutes, the same in each run.
func known(requests int) []demand {
	random := rand.New(rand.NewPCG(5, 8))
	at := time.Date(2026, 3, 1, 11, 58, 0, 0, time.UTC)
	all := make([]demand, requests)
	for i := range all {
		at = at.Add(time.Duration(random.ExpFloat64()*80) * time.Millisecond)
		who := int(random.ExpFloat64() * 3)
		all[i] = demand{
			at: at, method: []string{"GET", "POST"}[random.IntN(2)], path: []string{"/", "/login?next=/", "/api/items"}[random.IntN(3)],
			user: fmt.Sprint("user-", who), source: fmt.Sprintf("10.0.%d.%d", who%3, who), costs: strconv.Itoa(random.IntN(4)),
		}
		if random.IntN(3) == 0 {
			all[i].cost = strconv.Itoa(random.IntN(5))
		}
	}
	return all
}

// log writes the demand as Envoy does: each line when its request is over.
func logOf(all []demand) *bytes.Buffer {
	random := rand.New(rand.NewPCG(1, 3))
	type line struct {
		ends time.Time
		text []byte
	}
	lines := make([]line, len(all))
	for i, d := range all {
		fields := map[string]any{
			"start_time": d.at.Format("2006-01-02T15:04:05.000Z"), "method": d.method, "path": d.path, "authority": "shop.example",
			"downstream_remote_address": d.source + ":4711", "x_user": d.user, "tokens": d.costs, "response_code": 200,
			"x_cost": nil,
		}
		if d.cost != "" {
			fields["x_cost"] = d.cost
		}
		text, err := json.Marshal(fields)
		if err != nil {
			panic(err)
		}
		lines[i] = line{d.at.Add(time.Duration(random.ExpFloat64() * float64(time.Second))), text}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.ends.UnixNano(), b.ends.UnixNano()) })
	var out bytes.Buffer
	for _, l := range lines {
		out.Write(l.text)
		out.WriteByte('\n')
	}
	return &out
}

// plugin is compiled once.
var plugin = sync.OnceValues(func() (*host.Module, error) {
	wasm, err := os.ReadFile("../../dist/weir.wasm")
	if err != nil {
		return nil, fmt.Errorf("make build first: %w", err)
	}
	return host.Compile(context.Background(), wasm, host.Options{CacheDir: "../../dist/cache"})
})

// decided is the compiled plugin's decision on a demand.
type decided struct {
	refused uint64
	// byRule are the refusals whose first rule it was; allowed and rejected are its metrics.
	byRule            map[string]uint64
	allowed, rejected map[string]uint64
}

// decide has the compiled plugin decide a demand, on one worker of a proxy that weir run has too.
func decide(t *testing.T, configuration string, all []demand) decided {
	t.Helper()
	module := must.Get(plugin())(t)
	now := all[0].at
	process := host.NewProcess(host.ProcessConfig{Clock: func() int64 { return now.UnixNano() }})
	vm := must.Get(process.NewVM(t.Context(), module, host.VMConfig{ID: "weir"}))(t)
	root := must.Get(vm.NewRoot(host.Plugin{Name: "weir", RootID: "weir", Configuration: []byte(configuration)}))(t)
	out := decided{byRule: map[string]uint64{}, allowed: map[string]uint64{}, rejected: map[string]uint64{}}
	for _, d := range all {
		now = d.at
		s := must.Get(root.NewStream(host.StreamInfo{Source: d.source + ":4711"}))(t)
		h := host.NewHeaders(":method", d.method, ":path", d.path, ":authority", "shop.example", "x-user", d.user)
		if d.cost != "" {
			h.Add("x-cost", d.cost)
		}
		must.Get(s.RequestHeaders(h, true))(t)
		if reply := s.LocalReply(); reply != nil {
			out.refused++
			out.byRule[strings.TrimPrefix(reply.Details, "weir_rate_limited:")]++
		} else if _, err := s.ResponseHeaders(host.NewHeaders(":status", "200", "x-tokens", d.costs), true); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	must.OK(t, vm.Tick(root))
	for name, value := range process.Metrics().Snapshot() {
		_, name, found := strings.Cut(name, ";.;weir_rule=.=")
		rule, outcome, _ := strings.Cut(name, ";.;weir_outcome=.=")
		switch {
		case !found:
		case outcome == "allowed;.;requests_total":
			out.allowed[rule] = uint64(value)
		case outcome == "rejected;.;requests_total", outcome == "rejected_by_other;.;requests_total":
			out.rejected[rule] += uint64(value)
		}
	}
	return out
}

func simulated(t *testing.T, configuration string, log io.Reader, mappings ...string) *Report {
	t.Helper()
	o := Options{Configuration: []byte(configuration), Logs: []Log{{"access.log", log}}, Worst: 5}
	for _, m := range mappings {
		must.OK(t, o.Read.Map(m))
	}
	return must.Get(Run(t.Context(), &o))(t)
}

const tokens = "tokens=response_header:x-tokens"

// A log of a known demand gives the numbers that the compiled plugin gives for the demand itself,
// request by request: with several rules, of which each may refuse what others would not, with
// costs of requests and of responses.
func TestAsThePluginDecides(t *testing.T) {
	const rules = `"rules": [
		{"name": "users", "key": [{"header": "x-user"}], "cost": {"header": "x-cost", "least": 0}, "limits": [
			{"limit": 40, "window": "10s", "algorithm": "sliding_log"}, {"limit": 150, "window": "1m"}]},
		{"name": "login", "match": {"path": {"exact": "/login"}, "methods": ["POST"]}, "count_rejected": true, "key": [{"client_ip": {"ipv4_prefix": 24}}],
			"limits": [{"limit": 6, "window": "10s", "algorithm": "fixed_window", "start": "first_hit"}]},
		{"name": "tokens", "key": ["method", {"header": "x-user"}], "cost": 0, "cost_on_response": {"response_header": "x-tokens"},
			"limits": [{"limit": 60, "window": "1m", "algorithm": "token_bucket", "burst": 30}]},
		{"name": "all", "limits": [{"limit": 200, "window": "1m", "precision": "10s"}]}
	]`
	all := known(1800)
	want := decide(t, "{"+rules+"}", all)
	got := simulated(t, `{"backend": {"cluster": "weir"}, "sync_rate": 0.5, "on_backend_failure": "deny", `+rules+"}", logOf(all), tokens)
	must.Equal(t, got.Requests, uint64(len(all)), "requests")
	must.Equal(t, got.Refused, want.refused, "refused")
	if log := got.Logs[0]; log.OutOfOrder == 0 || log.Late != 0 {
		t.Errorf("%+v: want lines out of order, none of them late", log)
	}
	for _, rule := range got.Rules {
		allowed, rejected := want.allowed[rule.Name], want.rejected[rule.Name]
		must.Equal(t, rule.Requests, allowed+rejected, "%s: requests", rule.Name)
		must.Equal(t, rule.Refused, rejected, "%s: refused", rule.Name)
		if rejected == 0 || allowed == 0 || want.byRule[rule.Name] == 0 || rule.RefusedByRule < want.byRule[rule.Name] {
			t.Errorf("%s: %d refused by it, of them %d as the first", rule.Name, rule.RefusedByRule, want.byRule[rule.Name])
		}
	}
	must.Equal(t, got.Rules[0].RefusedByRule, want.byRule["users"], "the first rule has refused")
}

// Curves and algorithms say of a limit what the compiled plugin does with it.
func TestOtherLimits(t *testing.T) {
	const rule = `{"rules": [{"name": "users", "key": [{"header": "x-user"}], "cost": {"header": "x-cost"}, %s "limits": [%s]}]}`
	all := known(nightly.Or(700, 300))
	for _, further := range []string{"", `"count_rejected": true,`, `"cost_on_response": {"response_header": "x-tokens"},`} {
		configured := `{"limit": 30, "window": "10s", "algorithm": "fixed_window"}`
		got := simulated(t, fmt.Sprintf(rule, further, configured), logOf(all), tokens)
		limit := got.Rules[0].Limits[0]
		must.AtLeast(t, len(limit.Curve), 20, "points of the curve")
		must.EqualOrEnd(t, len(limit.Algorithms), 4, "algorithms")
		outcomes := slices.Concat(limit.Algorithms, []Outcome{limit.Curve[0], limit.Curve[9]})
		for _, o := range outcomes {
			text := must.Get(json.Marshal(o.LimitSpec))(t)
			if want := decide(t, fmt.Sprintf(rule, further, text), all).refused; o.Refused != want || want == 0 {
				t.Errorf("%s %s: %d refused, want %d", further, text, o.Refused, want)
			}
			if o.Configured && (o.Refused != got.Refused || o.RefusedKeys != got.Rules[0].RefusedKeys) {
				t.Errorf("%s %s: %+v, and as configured %d", further, text, o, got.Refused)
			}
		}
		if further != "" {
			continue
		}
		for _, least := range limit.Least[:1] {
			if least.Limit == nil {
				t.Fatalf("%s: no limit refuses at most %v", further, least.Share)
			}
			with := func(limit uint64) float64 {
				text := fmt.Sprintf(`{"limit": %d, "window": "10s", "algorithm": "fixed_window"}`, limit)
				return float64(decide(t, fmt.Sprintf(rule, further, text), all).refused) / float64(len(all))
			}
			if at, below := with(*least.Limit), with(*least.Limit-1); at > least.Share || below <= least.Share {
				t.Errorf("%s: least limit %d refuses %v, one less %v, want %v between", further, *least.Limit, at, below, least.Share)
			}
		}
	}
}
