package monitoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/must"
)

// token is the token in envoy/envoy.yaml.
const token = "change-me"

// process is a server, and its address.
type process struct {
	*commandtest.Process
	address string
}

func start(t *testing.T, cmd *exec.Cmd, listening string) *process {
	t.Helper()
	p := commandtest.Start(t, cmd)
	return &process{p, p.Wait(t, listening)}
}

// backend is weir serve behind an address that stays the same when weir serve restarts at another.
// Otherwise another program might take its port meanwhile.
type backend struct {
	address string
	own     atomic.Pointer[process]
}

func serve(t *testing.T) *backend {
	t.Helper()
	b := &backend{}
	b.start(t)
	before := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: b.own.Load().address}) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(before.Close)
	b.address = before.Listener.Addr().String()
	return b
}

func (b *backend) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command("../dist/weir", "serve", "--listen", "127.0.0.1:0", "--store", "memory")
	cmd.Env = append(os.Environ(), "WEIR_TOKEN="+token)
	b.own.Store(start(t, cmd, `address=(\S+)`))
}

// prometheus scrapes often, so that rates soon have samples.
type prometheus struct{ *process }

func scrape(t *testing.T, jobs map[string]string) prometheus {
	t.Helper()
	rules := must.Get(filepath.Abs(rulesFile))(t)
	config := fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 500ms}\nrule_files: [%q]\nscrape_configs:\n", rules)
	for job, at := range jobs {
		address, path, _ := strings.Cut(at, "/")
		config += fmt.Sprintf("  - {job_name: %s, metrics_path: /%s, static_configs: [{targets: [%q]}], authorization: {credentials: %s}}\n", job, path, address, token)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	must.OK(t, os.WriteFile(file, []byte(config), 0o600))
	return prometheus{start(t, exec.Command("prometheus", "--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", "127.0.0.1:0"), `msg="Listening on" address=(\S+)`)}
}

// get sends a request to Prometheus' API.
func (p prometheus) get(path string, query url.Values, data any) error {
	response, err := envoytest.Client.Get("http://" + p.address + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusServiceUnavailable {
		return nil // Prometheus has just started
	}
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", answer.Status, answer.Error)
	}
	return nil
}

// query returns how many series of an expression have a number.
func (p prometheus) query(expr string) (series int, err error) {
	var data struct {
		Result []struct{ Value [2]any }
	}
	if err := p.get("/api/v1/query", url.Values{"query": {expr}}, &data); err != nil {
		return 0, fmt.Errorf("%s: %w", expr, err)
	}
	for _, r := range data.Result {
		if r.Value[1] != "NaN" {
			series++
		}
	}
	return series, nil
}

// traffic is clients of an Envoy and of a backend.
type traffic struct {
	t         *testing.T
	listeners map[string]string
	backend   string
	user      int
}

// flow sends requests that rules allow and refuse, with invalid costs, and a push with a wrong
// token.
func (f *traffic) flow() {
	f.t.Helper()
	f.user++
	for range 20 {
		f.send("GET", f.listeners["users"], map[string]string{"x-user": fmt.Sprint("ann", f.user), "x-cost": "many"})
	}
	f.send("GET", f.listeners["addresses"], nil)
	f.send("POST", f.backend+"/v1/push", map[string]string{"content-type": "application/x-weir", "authorization": "Bearer wrong"})
}

func (f *traffic) send(method, address string, headers map[string]string) {
	f.t.Helper()
	request, err := http.NewRequest(method, "http://"+address, nil)
	must.OK(f.t, err)
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := envoytest.Client.Do(request)
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		err = errors.Join(err, response.Body.Close())
	}
	must.OK(f.t, err)
}

// poll is the pause between two queries.
const poll = 100 * time.Millisecond

// until sends requests until each expression has a series.
func (f *traffic) until(p prometheus, what string, exprs ...string) {
	f.t.Helper()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-ticker.C {
		f.flow()
		var missing []string
		for _, expr := range exprs {
			switch n, err := p.query(expr); {
			case err != nil:
				f.t.Fatal(err)
			case n == 0:
				missing = append(missing, expr)
			}
		}
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%s: these have no series:\n%s", what, strings.Join(missing, "\n"))
		}
	}
}

// TestEveryQueryHasSeries runs envoy/envoy.yaml, a backend that is killed and comes back, and a
// Prometheus that scrapes both. It runs all queries of the dashboard and the rules.
func TestEveryQueryHasSeries(t *testing.T) {
	if testing.Short() {
		return // make test-fast
	}
	t.Parallel()
	backend := serve(t)
	envoy, admin := runEnvoy(t, backend.address)
	listeners := must.Get(envoy.Listeners())(t)
	p := scrape(t, map[string]string{"envoy": admin + "/stats/prometheus", "weir": backend.address + "/metrics"})
	f := &traffic{t: t, listeners: listeners, backend: backend.address}

	f.until(p, "an ordinary day",
		`sum(rate(weir_requests_total{weir_rule="per-user",weir_outcome="allowed"}[1m])) > 0`,
		`sum(rate(weir_requests_total{weir_rule="per-user",weir_outcome="rejected"}[1m])) > 0`,
		`sum(rate(weir_requests_total{weir_rule="trial",weir_outcome="shadow_allowed"}[1m])) > 0`,
		`sum(rate(weir_requests_total{weir_rule="trial",weir_outcome="shadow_rejected"}[1m])) > 0`,
		`sum(rate(weir_waited_requests_total[1m])) > 0`,
		`sum(rate(weir_bad_costs_total[1m])) > 0`,
		`sum(rate(weir_warnings_total[1m])) > 0`,
		`sum(rate(weir_warned_keys_total[1m])) > 0`,
		`sum(rate(weir_used_hits_total{weir_rule="trial"}[1m])) > 0`,
		`sum(rate(weir_hits_applied_total[1m])) > 0`,
		`max(weir_overshoot_bound) == 0`,
		`ALERTS{alertname="WeirPushesRefused",code="401"}`,
	)
	backend.own.Load().Kill(t)
	f.until(p, "the backend is away",
		`up{job="weir"} == 0`,
		`sum(rate(weir_decided_alone_total[1m])) > 0`,
		`sum(rate(weir_late_requests_total[1m])) > 0`,
		`sum(rate(weir_failed_pushes_total[1m])) > 0`,
		`ALERTS{alertname="WeirDecidesAlone"}`,
		`ALERTS{alertname="WeirPushesFail"}`,
	)
	backend.start(t)
	f.until(p, "the backend is back", `up{job="weir"} == 1`, `sum(rate(weir_pushed_hits_total[1m])) > 0`)

	var exprs []string
	d := readDashboard(t)
	for _, panel := range d.Panels {
		for _, q := range panel.Targets {
			if !strings.Contains(q.Expr, "weir_region_") { // no backend here has a parent
				exprs = append(exprs, substitute(t, q.Expr))
			}
		}
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		var query struct{ Query string }
		must.OK(t, json.Unmarshal(v.Query, &query))
		match := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(query.Query)
		if match == nil {
			t.Fatalf("variable %s: %s", v.Name, query.Query)
		}
		exprs = append(exprs, substitute(t, fmt.Sprintf(`count by (%[2]s) (%[1]s) unless count by (%[2]s) ({__name__=~"weir_.+",%[2]s=""})`, match[1], match[2])))
	}
	for _, r := range readRules(t) {
		exprs = append(exprs, r.measured(t))
		if r.Record != "" {
			exprs = append(exprs, r.Record)
		}
	}
	must.AtLeast(t, len(exprs), 80, "expressions read")
	f.until(p, "everything", exprs...)
	rulesAreWell(t, p)
	metricsAreKnown(t, p, d)
}

// runEnvoy runs envoy/envoy.yaml with an additional shadow rule.
func runEnvoy(t *testing.T, backend string) (envoy *envoytest.Envoy, admin string) {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	plugin := must.Get(filepath.Abs("../dist/weir.wasm"))(t)
	socket := func(address string) string { return "address: " + strings.Replace(address, ":", ", port_value: ", 1) }
	bootstrap := must.Text(t, "../envoy/envoy.yaml")
	for before, after := range map[string]string{
		"address: 127.0.0.1, port_value: 9901": "address: 127.0.0.1, port_value: 0",
		"address: 0.0.0.0, port_value: 10001":  "address: 127.0.0.1, port_value: 0",
		"address: 0.0.0.0, port_value: 10002":  "address: 127.0.0.1, port_value: 0",
		"/etc/envoy/weir.wasm":                 plugin,
		"address: weir, port_value: 9180":      socket(backend),
		"address: app, port_value: 8080":       socket(upstream.Listener.Addr().String()),
		`"timeout": "200ms"`:                   `"timeout": "5s"`, // a busy machine is no outage: the bound stays 0
		`"rules": [`:                           `"rules": [{"name": "trial", "mode": "shadow", "key": [{"header": "x-user"}], "cost": {"header": "x-cost"}, "warn_at": 0.5, "reveal": "plain", "limits": [{"limit": 2, "window": "1m"}]}, {"name": "exports", "match": {"path": {"prefix": "/exports"}}, "limits": [{"limit": 2, "algorithm": "in_flight"}]}, {"name": "even", "key": [{"header": "x-user"}], "limits": [{"limit": 100000, "window": "1m", "algorithm": "fixed_window"}], "classes": {"by": {"header": "x-class"}, "of": {"batch": {"guaranteed": 0.1}}, "fair": true}},`,
	} {
		must.EqualOrEnd(t, strings.Count(bootstrap, before), 1, "times envoy.yaml has %q", before)
		bootstrap = strings.Replace(bootstrap, before, after, 1)
	}
	dir := t.TempDir()
	envoy = envoytest.Run(t, envoytest.Options{Dir: dir, Bootstrap: []byte(bootstrap), Args: []string{"--log-level", "warning"}})
	return envoy, must.Text(t, filepath.Join(dir, "admin"))
}

// substitute replaces a dashboard's variables like Grafana does when All is chosen.
func substitute(t *testing.T, expr string) string {
	t.Helper()
	expr = strings.NewReplacer("$__rate_interval", "1m", "$namespace", ".*", "$rule", ".*", "$backend", ".*").Replace(expr)
	if strings.Contains(expr, "$") {
		t.Fatalf("a variable that is not known: %s", expr)
	}
	return expr
}

// rulesAreWell wants Prometheus to have evaluated all rules without errors.
func rulesAreWell(t *testing.T, p prometheus) {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	must.OK(t, p.get("/api/v1/rules", nil, &data))
	rules := 0
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			rules++
			must.Equal(t, r.Health, "ok", "rule %s: %s", r.Name, r.LastError)
		}
	}
	must.Equal(t, rules, len(readRules(t)), "rules were evaluated")
}

// metricsAreKnown wants every scraped metric to be in the documents and in the dashboard, and these
// to name no others.
func metricsAreKnown(t *testing.T, p prometheus, d dashboard) {
	t.Helper()
	var names []string
	must.OK(t, p.get("/api/v1/label/__name__/values", nil, &names))
	scraped := metricsIn(strings.Join(names, "\n"))
	for place, got := range map[string][]string{"tables of the documents": documented(t), "the dashboard": d.shown()} {
		for _, name := range scraped {
			must.Equal(t, slices.Contains(got, name), true, "%s is not in %s", name, place)
		}
		for _, name := range got {
			// The backend here has a store in memory. internal/server tests the metrics of a store
			// in a file.
			if !slices.Contains(scraped, name) && !strings.HasPrefix(name, "weir_store_file_") && !strings.HasPrefix(name, "weir_region_") {
				t.Errorf("%s is in %s, and was not scraped", name, place)
			}
		}
	}
}
