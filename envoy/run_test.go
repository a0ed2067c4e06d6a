package envoy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/nightly"
)

// These tests run the files of this folder, and the parts in the documentation, on real Envoys, and
// send requests through them.

// onEnvoy runs a test on the newest Envoy, and in a nightly run on all.
func onEnvoy(t *testing.T, test func(t *testing.T, on envoytest.Binary)) {
	t.Helper()
	onNewest(t, nightly.Or(math.MaxInt, 1), test)
}

// onEachEnvoy runs a test on every available Envoy.
func onEachEnvoy(t *testing.T, test func(t *testing.T, on envoytest.Binary)) {
	t.Helper()
	onNewest(t, math.MaxInt, test)
}

// onNewest runs a test on the newest Envoys, at most a number of them.
func onNewest(t *testing.T, most int, test func(t *testing.T, on envoytest.Binary)) {
	t.Helper()
	if testing.Short() {
		return // make test-fast
	}
	binaries := must.Get(envoytest.Binaries())(t)
	for _, binary := range binaries[:min(most, len(binaries))] {
		t.Run(binary.Version, func(t *testing.T) {
			t.Parallel()
			test(t, binary)
		})
	}
}

// pluginFile returns the file that make build creates.
func pluginFile(t *testing.T) string {
	t.Helper()
	return must.Get(filepath.Abs("../dist/weir.wasm"))(t)
}

// patience is how long the plugins wait for the backend. A machine that runs other tests is slow,
// and requests whose wait ends in vain are decided locally. Then the counters have more hits than
// have passed, until the backend's grant is given back.
const patience = "30s"

// substitute replaces the parts of a file that depend on the machine. Each must occur exactly once.
func substitute(t *testing.T, text string, replacements map[string]string) string {
	t.Helper()
	for _, before := range slices.Sorted(maps.Keys(replacements)) {
		must.EqualOrEnd(t, strings.Count(text, before), 1, "times %q is there", before)
		text = strings.Replace(text, before, replacements[before], 1)
	}
	return text
}

// surroundings are the servers around an Envoy.
type surroundings struct {
	backend  *backend
	upstream string // the address of a server that answers every request, and reports what it got
}

// proxy is an Envoy in its surroundings. Its plugins use the backend's clock, which is the
// machine's, so tests only expect results that don't depend on a request's duration.
type proxy struct {
	*envoytest.Envoy
	surroundings
	listeners map[string]string // addresses by names
	decided   map[decisions]int // by the headers of all answers
}

// decisions are the requests that a rule matched, all with the same outcome.
type decisions struct{ rule, outcome string }

func surround(t *testing.T) surroundings {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			t.Errorf("a callout came to the upstream: %s", r.URL)
		}
		w.Header().Set("upstream-saw", r.Method+" "+r.RequestURI)
	}))
	t.Cleanup(upstream.Close)
	return surroundings{backend: serve(t), upstream: upstream.Listener.Addr().String()}
}

func (s surroundings) run(t *testing.T, on envoytest.Binary, bootstrap []byte) *proxy {
	t.Helper()
	e := envoytest.Run(t, envoytest.Options{Binary: on, Bootstrap: bootstrap, Args: []string{"--file-flush-interval-msec", "10", "--log-level", "warning"}})
	listeners := must.Get(e.Listeners())(t)
	return &proxy{Envoy: e, surroundings: s, listeners: listeners, decided: make(map[decisions]int)}
}

func (p *proxy) until(t *testing.T, what string, happened func() (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must.Reportf(t, p.Wait(ctx, happened), "waiting for %s", what)
}

// backend is weir serve behind a proxy that records the plugins' requests.
type backend struct {
	own     string // address of weir serve
	address string // for Envoy

	mu    sync.Mutex
	hosts map[string]bool // hosts of callouts
}

// exampleToken is the token in the files, which users must change.
const exampleToken = "change-me"

func serve(t *testing.T) *backend {
	t.Helper()
	b := &backend{own: startServe(t), hosts: make(map[string]bool)}
	between := httptest.NewServer(&httputil.ReverseProxy{
		Transport: envoytest.Client.Transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.hosts[r.In.Host] = true
			r.Out.URL.Scheme, r.Out.URL.Host = "http", b.own // the Host stays
		},
	})
	t.Cleanup(between.Close)
	b.address = between.Listener.Addr().String()
	return b
}

// startServe runs weir serve with further arguments, and returns its address.
func startServe(t *testing.T, args ...string) (address string) {
	t.Helper()
	return startServeIn(t, []string{"WEIR_TOKEN=" + exampleToken}, args...)
}

// startServeIn is startServe with further environment variables. Without a token among them, it has
// none.
func startServeIn(t *testing.T, environment []string, args ...string) (address string) {
	t.Helper()
	cmd := exec.Command("../dist/weir", append([]string{"serve", "--listen", "127.0.0.1:0", "--store", "memory"}, args...)...)
	cmd.Env = append(os.Environ(), environment...)
	return commandtest.Start(t, cmd).Wait(t, `address=(\S+)`)
}

// asked returns the hosts of callouts.
func (b *backend) asked() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.hosts))
}

// counted returns the backend's sum of hits in counters of a kind and a width.
func (b *backend) counted(namespace, kind string, width time.Duration) (sum int64, err error) {
	query := url.Values{"namespace": {namespace}, "width_ms": {fmt.Sprint(width.Milliseconds())}}
	request, err := http.NewRequest(http.MethodGet, "http://"+b.own+"/v1/counters?"+query.Encode(), nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+exampleToken)
	response, err := envoytest.Client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("counters: got %s", response.Status)
	}
	for lines := json.NewDecoder(response.Body); ; {
		var line struct {
			Kind    string
			Windows []struct{ Hits int64 }
		}
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			return sum, nil
		} else if err != nil {
			return 0, err
		}
		if line.Kind != kind {
			continue
		}
		for _, w := range line.Windows {
			sum += w.Hits
		}
	}
}

// client sends requests to a listener from an address of this machine.
type client struct {
	proxy    *proxy
	from, to string
}

// at returns a client of a listener, at an address of this machine.
func (p *proxy) at(from, listener string) client { return client{p, from, p.listeners[listener]} }

// local is the address of clients if the address doesn't matter.
const local = "127.0.0.1"

type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request with exactly this target, which net/http's client would normalize. Headers
// are "name: value".
func (c client) send(t *testing.T, method, target string, headers ...string) answer {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.from)}, Timeout: 10 * time.Second}
	conn := must.Get(dialer.Dial("tcp", c.to))(t)
	defer conn.Close()
	must.OK(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	head := append([]string{method + " " + target + " HTTP/1.1", "host: shop.example", "content-length: 0"}, headers...)
	must.Get(io.WriteString(conn, strings.Join(head, "\r\n")+"\r\n\r\n"))(t)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must.OKf(t, err, "%s %s", method, target)
	body, err := io.ReadAll(response.Body)
	must.OKf(t, err, "%s %s", method, target)
	a := answer{response.StatusCode, response.Header, string(body)}
	c.proxy.count(a)
	return a
}

// bursts lets one client or user after the other send until it is refused, until a burst was
// allowed the limit of a second. A burst across the end of a second may get less, because hits were
// leased for that second.
func bursts(t *testing.T, want int, burst func(i int) (allowed int, refusal answer)) (refusal answer) {
	t.Helper()
	var got []int
	for i := range 8 {
		allowed, refusal := burst(i)
		if got = append(got, allowed); allowed >= want {
			return refusal
		}
	}
	t.Fatalf("%d requests were allowed at most, want %d in a second", got, want)
	return answer{}
}

var ruleInHeader = regexp.MustCompile(`"([A-Za-z0-9_-]+)";r=([0-9]+)`)

// count records the rules in an answer's headers.
func (p *proxy) count(a answer) {
	for _, match := range ruleInHeader.FindAllStringSubmatch(a.header.Get("RateLimit"), -1) {
		outcome := "allowed"
		switch refused := a.header.Get("X-Envoy-RateLimited") != ""; {
		case refused && match[2] == "0":
			outcome = "rejected"
		case refused:
			outcome = "rejected_by_other"
		}
		p.decided[decisions{match[1], outcome}]++
	}
}

// measures tests that Envoy's own metrics have the same counts of the rules, with labels.
func (p *proxy) measures(t *testing.T, namespace string) {
	t.Helper()
	series := regexp.MustCompile(`(?m)^weir_requests_total\{(.*)\} ([0-9]+)$`)
	label := regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	var got map[decisions]int
	p.until(t, "metrics", func() (bool, error) {
		text, err := p.Admin("GET", "/stats/prometheus")
		if err != nil {
			return false, err
		}
		got = make(map[decisions]int)
		for _, match := range series.FindAllStringSubmatch(string(text), -1) {
			labels := make(map[string]string)
			for _, l := range label.FindAllStringSubmatch(match[1], -1) {
				labels[l[1]] = l[2]
			}
			n, err := strconv.Atoi(match[2])
			if err != nil {
				return false, err
			}
			if labels["weir_namespace"] == namespace && n > 0 {
				got[decisions{labels["weir_rule"], labels["weir_outcome"]}] += n
			}
		}
		return maps.Equal(got, p.decided), nil
	})
	must.Same(t, got, p.decided, "metrics of namespace %s", namespace)
}

// untilRefused repeats a request, and returns how many were allowed before the first refusal.
func (c client) untilRefused(t *testing.T, method, target string, headers ...string) (allowed int, refusal answer) {
	t.Helper()
	const most = 300 // sent faster than a limit per second could admit them
	for allowed < most {
		switch a := c.send(t, method, target, headers...); a.status {
		case http.StatusOK:
			allowed++
		case http.StatusTooManyRequests:
			return allowed, a
		default:
			t.Fatalf("%s %s: got %d: %s", method, target, a.status, a.body)
		}
	}
	t.Fatalf("%s %s: nothing refused of %d", method, target, most)
	return 0, answer{}
}

// names reports whether an answer's headers name a rule.
func (a answer) names(rule string) bool {
	return strings.Contains(a.header.Get("RateLimit"), `"`+rule+`";r=`)
}

// remaining returns the rest of a rule's first limit in an answer's headers; -1 if they don't have
// it.
func (a answer) remaining(rule string) int {
	match := regexp.MustCompile(`"` + rule + `";r=([0-9]+);`).FindStringSubmatch(a.header.Get("RateLimit"))
	if match == nil {
		return -1
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		return -1
	}
	return n
}

// passes fails a test unless a request passed, and left so much of a rule's first limit; -1 if the rule must not be named.
func (a answer) passes(t *testing.T, rule string, left int, words string, args ...any) {
	t.Helper()
	if a.status != http.StatusOK || a.remaining(rule) != left || left < 0 && a.names(rule) {
		t.Errorf("%s: got %d %s, want it to pass with %d left of %s", fmt.Sprintf(words, args...), a.status, a.header, left, rule)
	}
}

// refused fails a test unless a request was refused.
func (a answer) refused(t *testing.T, words string, args ...any) {
	t.Helper()
	must.Equal(t, a.status, http.StatusTooManyRequests, "%s: %s", fmt.Sprintf(words, args...), a.header)
}

// matches compares an answer's headers with patterns. An empty pattern is for a header that must be
// absent.
func (a answer) matches(t *testing.T, patterns map[string]string) {
	t.Helper()
	for name, pattern := range patterns {
		if got := a.header.Values(name); strings.Join(got, "|") != "" || pattern != "" {
			if len(got) != 1 || !regexp.MustCompile("^(?:"+pattern+")$").MatchString(got[0]) {
				t.Errorf("%s: got %q, want %s", name, got, pattern)
			}
		}
	}
}

// httpListener returns a listener on a free port whose only filter is an HTTP connection manager with
// further fields. All requests go to the cluster shop.
func httpListener(name string, more envoytest.Object) envoytest.Object {
	manager := envoytest.Manager(name, []envoytest.Object{{"match": envoytest.Object{"prefix": "/"}, "route": envoytest.Object{"cluster": "shop"}}})
	maps.Copy(manager, more)
	return envoytest.Listener(name, manager)
}
