package convert_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/convert"
	"weir/internal/host"
	"weir/internal/must"
	"weir/internal/nightly"
)

// Kong and APISIX do not run here. Models stand in for them, each written from what a plugin's source or its documentation
// says, and from nothing of Weir's. The same traffic goes through a model and through what the plugin's configuration is
// converted to.

// model decides as a plugin does.
type model interface {
	// decide says whether a request passes, and whether it is one of those that documented differences are about: then it
	// may pass or not.
	decide(r logged) (passes, either bool)
	// settle has the model count a request that has passed or not.
	settle(r logged, passed bool)
}

// compareWithModel sends traffic through a model and through a converted configuration. Both have the same history: after a
// request that either may decide, the model goes on from what Weir has decided. It returns how many those were. What is lost has
// to have one of some parts.
func compareWithModel(t *testing.T, source, text string, m model, requests []logged, lost ...string) (either int) {
	t.Helper()
	document := converted(t, source, text, lost...)
	passed, refused := 0, 0
	for i, status := range decide(t, document, requests) {
		want, free := m.decide(requests[i])
		got := status == http.StatusOK
		if got != want && !free {
			t.Fatalf("request %d, %+v: the model lets it pass: %t, Weir: %t\n%s", i, requests[i], want, got, document)
		}
		if got != want {
			either++
		}
		m.settle(requests[i], got)
		if got {
			passed++
		} else {
			refused++
		}
	}
	if least := len(requests) / 50; passed < least || refused < least {
		t.Errorf("%d requests pass, and %d do not: want more of both", passed, refused)
	}
	t.Logf("%d requests pass, %d do not, %d are decided otherwise as documented", passed, refused, either)
	return either
}

// trafficOf are requests of a few clients. They begin before a month ends, and come in bursts with pauses between, so that
// each of a plugin's windows begins anew in their time. Times are in whole milliseconds.
func trafficOf(seed uint64, n int, most time.Duration) (requests []logged) {
	random := rand.New(rand.NewPCG(seed, 30))
	of := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	at := time.Date(2026, time.January, 31, 23, 58, 0, 0, time.UTC)
	for range n {
		if random.IntN(24) == 0 {
			at = at.Add(time.Duration(random.Int64N(most.Milliseconds())) * time.Millisecond)
		}
		requests = append(requests, logged{
			at: at, method: of("GET", "POST"), host: "shop.example", uri: of("/", "/a", "/a/b", "/b", "/b/c"), source: of("10.0.0.1", "10.0.0.2", "2001:db8::1"),
			who: of("ann", "ben", ""), status: http.StatusOK,
		})
	}
	return requests
}

// calendarLimits are Kong's rate-limiting: hits of each unit of the calendar, in UTC. A request passes if none of them is
// used up, and counts in all of them then (kong/plugins/rate-limiting/handler.lua, policies/init.lua).
type calendarLimits struct {
	// of is the identifier that a request counts for, and the plugin that it passes.
	of   func(r logged) (limits map[string]int, identifier string)
	hits map[string]int
}

// units are the calendar's units, as layouts that name them.
var units = map[string]string{
	"second": "2006-01-02T15:04:05", "minute": "2006-01-02T15:04", "hour": "2006-01-02T15", "day": "2006-01-02", "month": "2006-01",
}

func (m *calendarLimits) decide(r logged) (passes, either bool) {
	limits, identifier := m.of(r)
	for unit, limit := range limits {
		if m.hits[unit+identifier+r.at.UTC().Format(units[unit])] >= limit {
			return false, false
		}
	}
	return true, false
}

func (m *calendarLimits) settle(r logged, passed bool) {
	limits, identifier := m.of(r)
	for unit := range limits {
		if passed {
			m.hits[unit+identifier+r.at.UTC().Format(units[unit])]++
		}
	}
}

// identifierOf names a request as Kong's limit_by does: by its address where it has none of that.
func identifierOf(by string, r logged) string {
	path, _, _ := strings.Cut(r.uri, "?")
	switch {
	case by == "header" && r.who != "":
		return "header " + r.who
	case by == "path" && path == "/a":
		return "path"
	case by == "service":
		return "service"
	}
	return "ip " + r.source
}

func TestKongModel(t *testing.T) {
	t.Parallel()
	limits := map[string]int{"second": 3, "minute": 11, "hour": 60, "day": 150, "month": 400}
	const written = "second: 3, minute: 11, hour: 60, day: 150, month: 400"
	for by, config := range map[string]string{
		"ip": "limit_by: ip", "consumer": "limit_by: consumer", "header": "limit_by: header, header_name: X-User", "path": "limit_by: path, path: /a", "service": "limit_by: service",
	} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			plugin := fmt.Sprintf("plugins: [{name: rate-limiting, config: {%s, policy: local, %s}}]\n", written, config)
			text := "_format_version: '3.0'\nservices:\n- name: shop\n  routes: [{name: all, paths: [/]}]\n  " + plugin
			// More requests at once would be refused nearly all, by the limits of the day and the month.
			for seed := range nightly.Or[uint64](20, 1) {
				m := &calendarLimits{hits: map[string]int{}, of: func(r logged) (map[string]int, string) { return limits, identifierOf(by, r) }}
				compareWithModel(t, "kong", text, m, trafficOf(1+seed, 1000, 40*time.Second))
			}
		})
	}
	// A route without a service has none to count by.
	for where, text := range map[string]string{
		"everywhere": "routes: [{name: a, paths: [/a]}]\nplugins: [PLUGIN]\nservices: [{name: shop, routes: [{name: all, paths: [/]}]}]\n",
		"on a route": "routes: [{name: a, paths: [/a], plugins: [PLUGIN]}]\nservices: [{name: shop, plugins: [PLUGIN], routes: [{name: all, paths: [/]}]}]\n",
		"alone":      "routes: [{name: a, paths: [/]}]\nplugins: [PLUGIN]\n",
	} {
		t.Run("no service, "+where, func(t *testing.T) {
			t.Parallel()
			m := &calendarLimits{hits: map[string]int{}, of: func(r logged) (map[string]int, string) {
				if where != "alone" && !strings.HasPrefix(r.uri, "/a") {
					return limits, identifierOf("service", r)
				}
				return limits, identifierOf("ip", r)
			}}
			text = "_format_version: '3.0'\n" + strings.ReplaceAll(text, "PLUGIN", "{name: rate-limiting, config: {"+written+", policy: local, limit_by: service}}")
			compareWithModel(t, "kong", text, m, trafficOf(3, nightly.Or(20_000, 1000), 40*time.Second), "want a plugin for each service")
		})
	}
	// A request runs the plugin of its route, else that of its service, else that of all.
	t.Run("nearest", func(t *testing.T) {
		t.Parallel()
		const text = `_format_version: '3.0'
services:
- name: shop
  routes:
  - {name: a, paths: [/a], plugins: [{name: rate-limiting, config: {minute: 4, policy: local, limit_by: ip}}]}
  - {name: b, paths: [/b]}
  plugins: [{name: rate-limiting, config: {minute: 7, policy: local, limit_by: ip}}]
plugins: [{name: rate-limiting, config: {minute: 12, policy: local, limit_by: ip}}]
`
		m := &calendarLimits{hits: map[string]int{}, of: func(r logged) (map[string]int, string) {
			switch {
			case strings.HasPrefix(r.uri, "/a"):
				return map[string]int{"minute": 4}, "a " + r.source
			case strings.HasPrefix(r.uri, "/b"):
				return map[string]int{"minute": 7}, "b " + r.source
			}
			return map[string]int{"minute": 12}, r.source
		}}
		compareWithModel(t, "kong", text, m, trafficOf(2, nightly.Or(20_000, 1000), 40*time.Second))
	})
}

// routeOfKong is a route with a plugin of its own, in the form of Kong's file.
type routeOfKong struct {
	Name          string              `json:"name"`
	Hosts         []string            `json:"hosts,omitempty"`
	Paths         []string            `json:"paths,omitempty"`
	Methods       []string            `json:"methods,omitempty"`
	Headers       map[string][]string `json:"headers,omitempty"`
	RegexPriority uint64              `json:"regex_priority,omitempty"`
	Plugins       []any               `json:"plugins,omitempty"`
}

// priority is what get_priority returns for a route that has one path, or none (kong/router/transform.lua). LuaJIT's bit.lshift
// keeps 32 bits of a number, and 64 of cdata as the two constants are; bit.bor extends a number's sign.
func (r *routeOfKong) priority(path string) uint64 {
	shifted := func(n uint64, by int) uint64 {
		if n = n << (by % 32) & math.MaxUint32; n>>31 == 1 {
			n |= math.MaxUint32 << 32
		}
		return n
	}
	weight := uint64(0)
	for _, given := range []int{len(r.Hosts), len(path), len(r.Methods), len(r.Headers)} {
		if given > 0 {
			weight++
		}
	}
	n := shifted(weight, 61) | shifted(uint64(len(r.Headers)), 52)
	if len(r.Hosts) > 0 && !strings.Contains(strings.Join(r.Hosts, ""), "*") {
		n |= 1 << 60
	}
	if strings.HasPrefix(path, "~") {
		return n | 1<<51 | shifted(r.RegexPriority, 19)
	}
	return n | uint64(len(path))
}

// fits says whether a request fulfils the conditions of a route that has one path, or none.
func (r *routeOfKong) fits(path string, of logged) bool {
	expr, isRegex := strings.CutPrefix(path, "~")
	switch {
	case isRegex && !regexp.MustCompile("^"+expr).MatchString(of.uri), !isRegex && !strings.HasPrefix(of.uri, path),
		len(r.Methods) > 0 && !slices.Contains(r.Methods, of.method), r.Headers != nil && !slices.Contains(r.Headers["x-user"], of.who):
		return false
	}
	return len(r.Hosts) == 0 || slices.ContainsFunc(r.Hosts, func(h string) bool {
		end, wild := strings.CutPrefix(h, "*")
		return h == of.host || wild && strings.HasSuffix(of.host, end)
	})
}

// takenOf is the route that Kong takes for a request, or -1: the one of the highest priority, of a route with several paths
// by each of them (split_routes_and_services_by_path; kong/router/atc.lua). Of equal ones Kong's identifiers decide.
func takenOf(routes []*routeOfKong, of logged) (taken int, equal bool) {
	taken, highest := -1, uint64(0)
	for i, r := range routes {
		paths := r.Paths
		if len(paths) == 0 {
			paths = []string{""}
		}
		for _, path := range paths {
			switch n := r.priority(path); {
			case !r.fits(path, of) || n < highest:
			case n > highest:
				taken, highest, equal = i, n, false
			default:
				equal = equal || taken != i
			}
		}
	}
	return taken, equal
}

// TestKongRoutes wants a request to count for the route that Kong takes, by that route's plugin alone.
func TestKongRoutes(t *testing.T) {
	t.Parallel()
	// What Kong's get_priority returns in LuaJIT 2.1.
	for _, test := range []struct {
		routeOfKong
		want uint64
	}{
		{routeOfKong{Paths: []string{"/health"}}, 536870919},
		{routeOfKong{Hosts: []string{"shop.example"}}, 1152921505143717888},
		{routeOfKong{Hosts: []string{"*.example"}, Paths: []string{"/a"}}, 1073741826},
		{routeOfKong{Paths: []string{"~/a"}, RegexPriority: 1}, 2251800351080448},
		{routeOfKong{Hosts: []string{"a.b"}, Paths: []string{"~/a"}}, 1155173305494274048},
		{routeOfKong{Headers: map[string][]string{"x": {"a"}, "y": {"b"}}, Paths: []string{"/a"}}, 1075838978},
		{routeOfKong{Hosts: []string{"*.a"}, Paths: []string{"/a"}, Methods: []string{"GET"}, Headers: map[string][]string{"x": {"a"}}}, 18446744071563116546},
	} {
		must.Equal(t, test.priority(strings.Join(test.Paths, "")), test.want, "the priority of %+v", test.routeOfKong)
	}
	shop, ann := []string{"shop.example"}, map[string][]string{"x-user": {"ann"}}
	cases := map[string][]*routeOfKong{
		"each path by itself":          {{Paths: []string{"/a", "/documentation"}}, {Paths: []string{"/a/b"}}},
		"a path beside an expression":  {{Paths: []string{`~/v\d+`, "/a"}}, {Paths: []string{"/a/b"}}},
		"plain hosts before a path":    {{Hosts: shop}, {Paths: []string{"/a"}}},
		"plain hosts before two":       {{Hosts: shop, RegexPriority: 7}, {Paths: []string{"/a"}, Methods: []string{"GET"}}, {Hosts: []string{"*.example"}, Paths: []string{"/b"}}},
		"an expression before two":     {{Paths: []string{"~/a"}}, {Paths: []string{"/a/b"}, Methods: []string{"GET"}}, {Paths: []string{"/"}}},
		"four conditions before hosts": {{Hosts: shop, Paths: []string{"~/a"}}, {Hosts: []string{"*.example"}, Paths: []string{"/a"}, Methods: []string{"GET"}, Headers: ann}},
	}
	random := rand.New(rand.NewPCG(8, 30))
	for i := range nightly.Or(400, 40) {
		routes := []*routeOfKong{{Paths: []string{"/"}}}
		for range 1 + random.IntN(3) {
			some := func(texts ...string) (all []string) {
				for _, text := range texts {
					if random.IntN(len(texts)) == 0 {
						all = append(all, text)
					}
				}
				return all
			}
			r := &routeOfKong{
				Paths: some("/", "/a", "/a/b", "/b", "/b/c", "~/a", "~/(a|b)/.", `~/b$`), Hosts: some("shop.example", "*.example", "*.test"), Methods: some("GET", "POST", "PUT"),
				RegexPriority: random.Uint64N(3),
			}
			if random.IntN(3) == 0 {
				r.Headers = ann
			}
			routes = append(routes, r)
		}
		cases[fmt.Sprint("random ", i)] = routes
	}
	var compared, seen atomic.Int64
	t.Cleanup(func() {
		if compared.Load() < seen.Load()/2 {
			t.Errorf("%d of %d cases are compared", compared.Load(), seen.Load())
		}
	})
	for name, routes := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen.Add(1)
			for i, r := range routes {
				r.Name = fmt.Sprint("r", i)
				r.Plugins = []any{map[string]any{"name": "rate-limiting", "config": map[string]any{"minute": 2 + 2*i, "policy": "local", "limit_by": "ip"}}}
			}
			text := string(must.Get(json.Marshal(map[string]any{"_format_version": "3.0", "routes": routes}))(t))
			requests := trafficOf(9, nightly.Or(3000, 500), 40*time.Second)
			for _, r := range requests {
				if _, equal := takenOf(routes, r); equal {
					return
				}
			}
			for _, l := range must.Get(convert.Convert("kong", []convert.File{{Name: "file", Text: []byte(text)}}))(t).Lost {
				if strings.Contains(l.Problem, "applies here too") {
					return
				}
			}
			compared.Add(1)
			m := &calendarLimits{hits: map[string]int{}, of: func(r logged) (map[string]int, string) {
				if i, _ := takenOf(routes, r); i >= 0 {
					return map[string]int{"minute": 2 + 2*i}, fmt.Sprint(i, " ", r.source)
				}
				return nil, ""
			}}
			compareWithModel(t, "kong", text, m, requests, "no route has it", "requests may fit")
		})
	}
}

// weighedLimits are Kong's rate-limiting-advanced: windows of the clock, of which the one before counts by how much of it
// is still within a window's length, unless windows are fixed. A request passes if the hits with its own are up to the limit
// in each. With the penalty, refused requests count, too (kong/tools/public/rate-limiting/init.lua, and the documentation of
// disable_penalty). Kong weighs by whole seconds.
type weighedLimits struct {
	limits, sizes  []int // sizes are in seconds
	fixed, penalty bool
	of             func(r logged) string
	hits           map[string]int
}

func (m *weighedLimits) key(i int, r logged, ago int64) string {
	size := int64(m.sizes[i])
	return fmt.Sprint(i, " ", r.at.Unix()/size-ago, " ", m.of(r))
}

func (m *weighedLimits) decide(r logged) (passes, either bool) {
	passes, exactly := true, true
	for i, limit := range m.limits {
		size := int64(m.sizes[i]) * 1000
		hits, before := float64(m.hits[m.key(i, r, 0)]+1), float64(m.hits[m.key(i, r, 1)])
		if m.fixed {
			before = 0
		}
		weight := func(millis int64) float64 { return before * float64(size-millis%size) / float64(size) }
		passes = passes && hits+weight(r.at.UnixMilli()/1000*1000) <= float64(limit)
		exactly = exactly && hits+weight(r.at.UnixMilli()) <= float64(limit)
	}
	return passes, passes != exactly
}

func (m *weighedLimits) settle(r logged, passed bool) {
	for i := range m.limits {
		if passed || m.penalty {
			m.hits[m.key(i, r, 0)]++
		}
	}
}

func TestKongAdvancedModel(t *testing.T) {
	t.Parallel()
	for _, fixed := range []bool{false, true} {
		for _, penalty := range []bool{false, true} {
			kind := map[bool]string{false: "sliding", true: "fixed"}[fixed]
			t.Run(fmt.Sprintf("%s, penalty %t", kind, penalty), func(t *testing.T) {
				t.Parallel()
				text := fmt.Sprintf("_format_version: '3.0'\nplugins: [{name: rate-limiting-advanced, config: {limit: [10, 40], window_size: [20, 300], window_type: %s, "+
					"disable_penalty: %t, identifier: header, header_name: x-user, sync_rate: -1}}]\n", kind, !penalty)
				m := &weighedLimits{
					limits: []int{10, 40}, sizes: []int{20, 300}, fixed: fixed, penalty: penalty, hits: map[string]int{}, of: func(r logged) string { return identifierOf("header", r) },
				}
				requests := trafficOf(3, nightly.Or(20_000, 1000), 30*time.Second)
				if either := compareWithModel(t, "kong", text, m, requests); either > len(requests)/50 || fixed && either > 0 {
					t.Errorf("%d requests are decided otherwise", either)
				}
			})
		}
	}
}

// firstHitLimit is APISIX's limit-count: a window begins with a key's first request, and ends by itself, whatever is refused
// in it (apisix/plugins/limit-count/limit-count-local.lua, resty/limit/count.lua).
type firstHitLimit struct {
	limit  int
	window time.Duration
	of     func(r logged) string
	began  map[string]time.Time
	hits   map[string]int
}

func newFirstHitLimit(limit int, window time.Duration, of func(r logged) string) *firstHitLimit {
	return &firstHitLimit{limit, window, of, map[string]time.Time{}, map[string]int{}}
}

func (m *firstHitLimit) decide(r logged) (passes, either bool) {
	began, found := m.began[m.of(r)]
	return !found || r.at.Sub(began) >= m.window || m.hits[m.of(r)] < m.limit, false
}

func (m *firstHitLimit) settle(r logged, passed bool) {
	key := m.of(r)
	if began, found := m.began[key]; !found || r.at.Sub(began) >= m.window {
		m.began[key], m.hits[key] = r.at, 0
	}
	if passed {
		m.hits[key]++
	}
}

// estimatedLimit is the same plugin with window_type: sliding. It lets a request pass while its estimate of the hits before is
// below the limit, so that the request itself may exceed the limit by less than a hit
// (apisix/plugins/limit-count/sliding-window/sliding-window.lua).
type estimatedLimit struct {
	limit, size int // size in seconds
	of          func(r logged) string
	hits        map[string]int
}

func (m *estimatedLimit) key(r logged, ago int64) string {
	return fmt.Sprint(m.of(r), " ", r.at.Unix()/int64(m.size)-ago)
}

func (m *estimatedLimit) decide(r logged) (passes, either bool) {
	size := int64(m.size) * 1000
	rate := float64(min(m.hits[m.key(r, 1)], m.limit)) / float64(size)
	return rate*float64(size-r.at.UnixMilli()%size)+float64(m.hits[m.key(r, 0)]) < float64(m.limit), false
}

func (m *estimatedLimit) settle(r logged, passed bool) {
	if passed {
		m.hits[m.key(r, 0)]++
	}
}

// TestAPISIXModelOfSlidingWindows has the model and Weir decide each by its own history. In a window either lets a request more
// of a key pass than the other at most.
func TestAPISIXModelOfSlidingWindows(t *testing.T) {
	t.Parallel()
	for key, of := range keysOfAPISIX {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			text := fmt.Sprintf("routes: [{id: 1, uri: /*, plugins: {limit-count: {count: 9, time_window: 47, window_type: sliding, %s}}}]\n", key)
			requests := trafficOf(4, nightly.Or(20_000, 1000), 40*time.Second)
			m, weir := &estimatedLimit{limit: 9, size: 47, of: of, hits: map[string]int{}}, map[string]int{}
			passed, same := 0, 0
			for i, status := range decide(t, converted(t, "apisix", text), requests) {
				want, _ := m.decide(requests[i])
				m.settle(requests[i], want)
				if status == http.StatusOK {
					weir[m.key(requests[i], 0)]++
					passed++
				}
				if (status == http.StatusOK) == want {
					same++
				}
			}
			for window, hits := range m.hits {
				if hits-weir[window] < -1 || hits-weir[window] > 1 {
					t.Errorf("window %s: the model lets %d requests pass, Weir %d", window, hits, weir[window])
				}
			}
			if least := len(requests) / 50; passed < least || len(requests)-passed < least || same < len(requests)*9/10 {
				t.Errorf("%d of %d requests pass, %d are decided alike", passed, len(requests), same)
			}
			t.Logf("%d of %d requests pass, %d are decided alike", passed, len(requests), same)
		})
	}
}

// leakyLimit is APISIX's limit-req without waiting: in thousandths of a request and in milliseconds (resty/limit/req.lua).
type leakyLimit struct {
	rate, burst int
	of          func(r logged) string
	excess      map[string]int64
	last        map[string]time.Time
}

func newLeakyLimit(rate, burst int, of func(r logged) string) *leakyLimit {
	return &leakyLimit{rate, burst, of, map[string]int64{}, map[string]time.Time{}}
}

func (m *leakyLimit) next(r logged) (excess int64) {
	last, found := m.last[m.of(r)]
	if !found {
		return 0
	}
	return max(m.excess[m.of(r)]-int64(m.rate)*r.at.Sub(last).Milliseconds()+1000, 0)
}

func (m *leakyLimit) decide(r logged) (passes, either bool) {
	return m.next(r) <= int64(m.burst)*1000, false
}

func (m *leakyLimit) settle(r logged, passed bool) {
	if passed {
		m.excess[m.of(r)], m.last[m.of(r)] = m.next(r), r.at
	}
}

// keysOfAPISIX are fields that say what a plugin counts by, and what that is of a request.
var keysOfAPISIX = map[string]func(r logged) string{
	"key: remote_addr":        func(r logged) string { return r.source },
	"key: http_x_user":        func(r logged) string { return identifierOf("header", r) },
	"key: uri, key_type: var": func(r logged) string { return r.uri },
	"key: $remote_addr $request_method, key_type: var_combination": func(r logged) string { return r.source + " " + r.method },
}

func TestAPISIXModels(t *testing.T) {
	t.Parallel()
	for key, of := range keysOfAPISIX {
		for plugin, m := range map[string]struct {
			model
			name, config string
			most         time.Duration
		}{
			"limit-count": {newFirstHitLimit(9, 47*time.Second, of), "limit-count", "count: 9, time_window: 47", 40 * time.Second},
			"limit-req":   {newLeakyLimit(3, 5, of), "limit-req", "rate: 3, burst: 5, nodelay: true", 3 * time.Second},
		} {
			t.Run(plugin+" by "+key, func(t *testing.T) {
				t.Parallel()
				text := fmt.Sprintf("routes: [{id: 1, uri: /*, plugins: {%s: {%s, %s}}}]\n", m.name, m.config, key)
				requests := trafficOf(4, nightly.Or(20_000, 1000), m.most)
				must.Equal(t, compareWithModel(t, "apisix", text, m.model, requests), 0, "requests that are decided otherwise")
			})
		}
	}
	t.Run("limit-count, constant", func(t *testing.T) {
		t.Parallel()
		m := newFirstHitLimit(20, 13*time.Second, func(logged) string { return "" })
		compareWithModel(t, "apisix", "routes: [{id: 1, uri: /*, plugins: {limit-count: {count: 20, time_window: 13, key: all, key_type: constant}}}]\n", m, trafficOf(5, 3000, 9*time.Second))
	})
}

// TestAPISIXModelOfConnections opens and ends requests: up to conn and burst are under way for a key
// (resty/limit/conn.lua). That APISIX has those above conn wait is told as lost.
func TestAPISIXModelOfConnections(t *testing.T) {
	t.Parallel()
	result := must.Get(convert.Convert("apisix", []convert.File{{Name: "file.yaml", Text: []byte(
		"routes: [{id: 1, uri: /*, plugins: {limit-conn: {conn: 4, burst: 2, default_conn_delay: 0.1, key: remote_addr}}}]\n")}}))(t)
	if len(result.Lost) != 1 || !strings.Contains(result.Lost[0].String(), "file.yaml:1:66: limit-conn: APISIX makes requests above conn wait") {
		t.Errorf("lost: %v", result.Lost)
	}
	now := time.Date(2026, time.January, 31, 23, 58, 0, 0, time.UTC)
	_, root := started(t, result.Document, host.VMConfig{}, func() int64 { return now.UnixNano() })
	random := rand.New(rand.NewPCG(6, 30))
	open, refused := map[string][]*host.Stream{}, 0
	for i := range 3000 {
		now = now.Add(time.Duration(random.Int64N(100)) * time.Millisecond)
		source := []string{"10.0.0.1", "10.0.0.2"}[random.IntN(2)]
		if under := open[source]; len(under) > 0 && random.IntN(9) < 4 {
			i := random.IntN(len(under))
			under[i].Close()
			open[source] = slices.Delete(under, i, i+1)
			continue
		}
		s := must.Get(root.NewStream(host.StreamInfo{Source: net.JoinHostPort(source, "4711")}))(t)
		must.Get(s.RequestHeaders(host.NewHeaders(":method", "GET", ":path", "/", ":authority", "shop.example"), true))(t)
		passes := s.LocalReply() == nil
		must.EqualOrEnd(t, passes, len(open[source]) < 4+2, "event %d: with %d under way another passes", i, len(open[source]))
		if passes {
			open[source] = append(open[source], s)
		} else {
			refused++
			s.Close()
		}
	}
	if refused < 100 {
		t.Errorf("%d requests are refused", refused)
	}
}

// TestAPISIXModelOfDelays has requests of limit-req wait: each by its excess over the rate, and those beyond the burst not at all
// (resty/limit/req.lua). Weir lets them go on at its next tick.
func TestAPISIXModelOfDelays(t *testing.T) {
	t.Parallel()
	document := converted(t, "apisix", "routes: [{id: 1, uri: /*, plugins: {limit-req: {rate: 5, burst: 8, key: http_x_user}}}]\n")
	random := rand.New(rand.NewPCG(7, 30))
	at := time.Date(2026, time.January, 31, 23, 58, 0, 0, time.UTC).UnixMilli()
	var requests []delayedRequest
	for i := range 400 {
		if random.IntN(6) == 0 {
			at += random.Int64N(2500)
		}
		requests = append(requests, delayedRequest{user: random.IntN(2), number: i, at: at})
	}
	decided, order := replayDelays(t, document, requests)
	m := newLeakyLimit(5, 8, func(r logged) string { return r.who })
	passed, waited := 0, int64(0)
	for i, r := range requests {
		as := logged{who: fmt.Sprint(r.user), at: time.UnixMilli(r.at)}
		excess := m.next(as)
		want, _ := m.decide(as)
		must.EqualOrEnd(t, decided[i].passed, want, "request %d, %+v: the model lets it pass: %t, Weir", i, r, want)
		if m.settle(as, want); !want {
			continue
		}
		passed++
		late := decided[i].waited - excess/5
		if waited = max(waited, late); late < -1 {
			t.Errorf("request %d, %+v: waits for %d ms, and in the model for %d ms", i, r, decided[i].waited, excess/5)
		}
	}
	if passed < 50 || passed > len(requests)-50 {
		t.Errorf("%d of %d requests pass", passed, len(requests))
	}
	for _, numbers := range order {
		must.Equal(t, slices.IsSorted(numbers), true, "requests overtake others: %v", numbers)
	}
	t.Logf("%d of %d requests pass, and go on up to %d ms later than in the model", passed, len(requests), waited)
}

// TestKongConsumers wants clients to be told apart by what authenticates on their route, wherever the key is, and else by
// address.
func TestKongConsumers(t *testing.T) {
	t.Parallel()
	const text = `_format_version: '3.0'
services:
- name: private
  routes: [{name: private, paths: [/private]}, {name: open, paths: [/private/open], plugins: [{name: key-auth, config: {anonymous: guest}}]}]
  plugins: [{name: key-auth}, {name: jwt, enabled: false}]
- name: public
  routes: [{name: public, paths: [/public]}]
plugins: [{name: rate-limiting, config: {year: 2, policy: local}}]
`
	result := must.Get(convert.Convert("kong", []convert.File{{Name: "kong.yaml", Text: []byte(text)}}))(t)
	const one, two = "10.0.0.1", "10.0.0.2"
	var requests []logged
	for _, ask := range []struct {
		uri, source, key string
		statuses         []int
	}{
		{"/public", one, "", []int{200, 200, 429}},
		{"/public", two, "", []int{200, 200, 429}},
		{"/public", two, "a", []int{429}}, // nobody looks for the key there
		{"/private", one, "a", []int{200, 200, 429}},
		{"/private", two, "a", []int{429}},
		{"/private", two, "b", []int{200, 200, 429}},
		{"/private?apikey=c", one, "", []int{200, 200, 429}},
		{"/private?x=1&apikey=d", one, "", []int{200, 200, 429}},
		{"/private/open", one, "e", []int{200, 200, 429}},
		{"/private/open", one, "", []int{200, 200, 429}},
		{"/private/open", two, "", []int{429}}, // the anonymous consumer is one
		{"/none", one, "", []int{429}},         // counts with /public
	} {
		for _, status := range ask.statuses {
			r := logged{at: time.Unix(1_800_000_000, 0), method: "GET", host: "shop.example", uri: ask.uri, source: ask.source, status: status}
			if ask.key != "" {
				r.headers = map[string]string{"apikey": ask.key}
			}
			requests = append(requests, r)
		}
	}
	for i, status := range decide(t, result.Document, requests) {
		must.Equal(t, status, requests[i].status, "request %d to %s from %s with %v", i, requests[i].uri, requests[i].source, requests[i].headers)
	}
}
