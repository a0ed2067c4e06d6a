package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
)

// instance is an instance of the rate limit service. It can be stopped, and started again at its
// address.
type instance struct {
	*commandtest.Process
	store, descriptors, address string
	failure                     string // the answer to requests while the store is away
	metrics                     string // the address of its metrics, if it has any
}

func (i *instance) start(t *testing.T) {
	t.Helper()
	i.Process = start(t, "serve", "--listen", "127.0.0.1:0", "--store", i.store, "--rate-limit-service", i.address, "--descriptors", i.descriptors,
		"--rate-limit-on-backend-failure", i.failure)
	i.address = i.Wait(t, `the rate limit service listens" address=(\S+)`)
}

// instances starts n instances with a configuration. While the store is away they refuse.
func instances(t *testing.T, n int, store, descriptors string) (all []*instance) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "limits.yaml")
	must.OK(t, os.WriteFile(file, []byte(descriptors), 0o600))
	for range n {
		i := &instance{store: store, descriptors: file, address: steadyAddress(t), failure: "deny"}
		i.start(t)
		all = append(all, i)
	}
	return all
}

// asking is an Envoy whose HTTP filter asks instances in turn.
type asking struct {
	clusters []envoytest.Object // besides limits, the cluster of the instances
	routes   []envoytest.Object
	filter   envoytest.Object // further fields of the filter
	behind   []envoytest.Object
	domain   string
}

// start starts the Envoy, and returns the process and its address.
func (a *asking) start(t *testing.T, d envoys, all []*instance) (*envoytest.Envoy, string) {
	t.Helper()
	var addresses []string
	for _, i := range all {
		addresses = append(addresses, i.address)
	}
	e, files := envoytest.RunFiles(t, envoytest.Options{Binary: d.binary, Workers: 2})
	must.OK(t, files.SetClusters(t.Context(), e, append([]envoytest.Object{http2Cluster("limits", addresses...)}, a.clusters...)))
	filter := envoytest.Object{
		"domain": a.domain, "failure_mode_deny": true, "timeout": "5s", "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
		"rate_limit_service": envoytest.Object{
			"transport_api_version": "V3", "grpc_service": envoytest.Object{"envoy_grpc": envoytest.Object{"cluster_name": "limits"}},
		},
	}
	maps.Copy(filter, a.filter)
	filters := []envoytest.Object{{"name": "envoy.filters.http.ratelimit", "typed_config": envoytest.Typed("envoy.extensions.filters.http.ratelimit.v3.RateLimit", filter)}}
	manager := envoytest.Manager("in", a.routes, append(filters, a.behind...)...)
	must.OK(t, files.SetListeners(t.Context(), e, []envoytest.Object{envoytest.Listener("in", manager)}))
	listeners := must.Get(e.Listeners())(t)
	return e, "http://" + listeners["in"]
}

// byUser returns an Envoy that limits requests by their X-User.
func byUser(t *testing.T) *asking {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	return &asking{
		domain: "shop", clusters: []envoytest.Object{cluster("app", upstream.Listener.Addr().String())},
		routes: []envoytest.Object{{"match": envoytest.Object{"prefix": "/"}, "route": envoytest.Object{"cluster": "app", "rate_limits": []envoytest.Object{
			{"actions": []envoytest.Object{{"request_headers": envoytest.Object{"header_name": "x-user", "descriptor_key": "user"}}}},
		}}}},
	}
}

// Envoy's own HTTP filters in three Envoys ask three instances of the rate limit service in turn.
// With one Redis they admit exactly one limit, and Envoy tells clients about it: under load, while
// Redis is away, while instances are replaced, and when some are killed.
func TestRateLimitService(t *testing.T) {
	onEnvoyAlone(t, 3, newest, func(t *testing.T, d envoys) {
		const limit, users = 300, 20
		enough := nightly.Or(6000, 600)
		redis := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
		all := instances(t, 3, redis.URL(), fmt.Sprintf(`
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: user, value: ann, rate_limit: {unit: year, requests_per_unit: %d}}
  - {key: user, value: bob, rate_limit: {unit: year, requests_per_unit: %[1]d}}`, limit))
		var addresses []string
		var envoys []*envoytest.Envoy
		for range 3 {
			e, address := byUser(t).start(t, d, all)
			envoys, addresses = append(envoys, e), append(addresses, address)
		}
		f := newTraffic(1, addresses...)
		var failed atomic.Int64
		// send lets clients send random requests, for users and for another client, until enough were
		// answered.
		send := func(other string, enough int, alsoFail bool) {
			t.Helper()
			var answered atomic.Int64
			var group sync.WaitGroup
			for c := range 6 {
				client := client(t)
				group.Go(func() {
					for i := c; answered.Load() < int64(enough); i++ {
						user := other
						if i%3 != 0 {
							user = fmt.Sprint("user", i%users)
						}
						status, header, err := f.ask(t, client, i%len(addresses), user)
						switch {
						case err == nil:
							answered.Add(1)
						case alsoFail && status != 0:
							failed.Add(1)
							continue
						default:
							t.Errorf("%s: status %d: %v", user, status, err)
							return
						}
						if told, want := header.Get("X-Ratelimit-Limit"), fmt.Sprintf("%d, %[1]d;w=31536000", limit); user == other && other != "carl" && told != want {
							t.Errorf("the limit is told as %q, want %q", told, want)
						}
					}
				})
			}
			group.Wait()
		}
		// during lets clients send requests while something happens.
		during := func(other string, enough int, alsoFail bool, happens func()) {
			t.Helper()
			var group sync.WaitGroup
			group.Go(func() { send(other, enough, alsoFail) })
			happens()
			group.Wait()
		}
		// usesUp sends a user's requests until the limit is used up: instances may still give back
		// leases.
		usesUp := func(user string) {
			t.Helper()
			client := client(t)
			until := time.Now().Add(time.Minute)
			for i := 0; f.admitted[user] < limit && time.Now().Before(until); i++ {
				f.request(t, client, i%len(addresses), user)
			}
		}
		// check compares Redis's hits of all users with the admitted hits. An instance that was killed may have taken
		// along lost hits of each user.
		check := func(lost int64) {
			t.Helper()
			watcher, backend := serveAt(t, "127.0.0.1:0", redis.URL())
			counted, passed := []int64{}, slices.Sorted(maps.Values(f.admitted))
			for _, hits := range counters(t, backend, "ratelimit") {
				counted = append(counted, hits...)
			}
			if lost == 0 && !slices.Equal(counted, passed) || sum(counted) < sum(passed)-lost*int64(len(passed)) {
				t.Errorf("%d passed, and %d are counted:\n%d\n%d", sum(passed), sum(counted), passed, counted)
			}
			t.Logf("%d passed, and %d are counted", sum(passed), sum(counted))
			must.Report(t, watcher.End())
		}

		send("ann", enough, false)
		usesUp("ann")
		// Each instance learns that the limit is used up.
		for range 10 {
			for node := range addresses {
				f.request(t, envoytest.Client, node, "ann")
			}
		}
		kept := func(when string) {
			t.Helper()
			must.Equal(t, f.admitted["ann"], limit, "%s: passed of %d", when, limit)
		}
		kept("with all well")
		for _, e := range envoys {
			asked := must.Get(e.Admin("GET", "/clusters"))(t)
			for _, share := range regexp.MustCompile(`limits::\S+::rq_total::(\d+)`).FindAllSubmatch(asked, -1) {
				if string(share[1]) == "0" {
					t.Errorf("an instance was not asked:\n%s", asked)
				}
			}
		}

		end := func(i *instance) {
			t.Helper()
			must.Reportf(t, i.End(), "%s", i.Printed())
		}
		// While Redis is away no client gets an error.
		during("ann", enough, false, redis.Stop)
		during("ann", enough, false, redis.Restart)
		kept("with Redis away")
		// Instances are replaced under load. The new instances decide alone while the store is away.
		for _, i := range all {
			during("ann", enough/3, true, func() {
				end(i)
				i.failure = "local"
				i.start(t)
			})
		}
		t.Logf("%d requests failed while instances were replaced", failed.Swap(0))
		refused := f.refused
		during("carl", enough, false, redis.Stop)
		must.Equal(t, f.refused, refused, "%d requests were refused while Redis was away", f.refused-refused)
		during("carl", enough, false, redis.Restart)
		for _, i := range all {
			end(i)
		}
		check(0)

		// The leases of a killed instance stay counted, and hits that it has let pass before they were counted are lost.
		// Others leave room for these: no more than the limit passes.
		for _, i := range all {
			i.failure = "deny"
			i.start(t)
		}
		send("bob", enough/6, true)
		during("bob", enough/3, true, func() { all[0].Kill(t) })
		during("bob", enough/3, true, func() { all[0].start(t) })
		t.Logf("%d requests failed while an instance was away", failed.Load())
		for _, i := range all {
			end(i)
		}
		check(wire.MaxAdvance)
		must.AtMost(t, f.admitted["bob"], limit, "passed with an instance killed")
	})
}

// TestRateLimitServiceScripts sends the requests of envoyproxy/ratelimit's integration-test/scripts
// through an Envoy that makes the same descriptors as its proxy.yaml, and wants the scripts'
// results. If a script waits for the next minute, the next script here begins with new counters.
func TestRateLimitServiceScripts(t *testing.T) {
	onEnvoyAlone(t, 1, newest, func(t *testing.T, d envoys) {
		const configuration = `
domain: rl
descriptors:
  - {key: category, value: account, rate_limit: {replaces: [{name: bkthomps}, {name: fake_name}], unit: hour, requests_per_unit: 4}}
  - key: source_cluster
    value: proxy
    descriptors:
      - {key: destination_cluster, value: bkthomps, rate_limit: {replaces: [{name: bkthomps}], unit: hour, requests_per_unit: 2}}
      - {key: destination_cluster, value: mock, rate_limit: {unit: hour, requests_per_unit: 1}}
      - {key: destination_cluster, value: override, rate_limit: {replaces: [{name: banned_limit}], unit: hour, requests_per_unit: 2}}
      - {key: destination_cluster, value: fake, rate_limit: {name: fake_name, unit: hour, requests_per_unit: 2}}
  - key: foo
    rate_limit: {unit: hour, requests_per_unit: 2}
    descriptors:
      - {key: bar, rate_limit: {unit: hour, requests_per_unit: 3}}
      - {key: bar, value: bkthomps, rate_limit: {name: bkthomps, unit: hour, requests_per_unit: 1}}
      - {key: bar, value: banned, rate_limit: {name: banned_limit, unit: hour, requests_per_unit: 0}}
      - {key: baz, value: not-so-shady, rate_limit: {unit: hour, requests_per_unit: 3}}
      - {key: baz, value: shady, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: unspec, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: service, value: service_1, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}, metadata: {service_with_quota: {name: service_1}}}
  - {key: service, value: service_2, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}, metadata: {service_with_quota: {name: service_2}}}
`
		type object = envoytest.Object
		upstream := func(text string) string {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
			t.Cleanup(s.Close)
			return s.Listener.Addr().String()
		}
		services := cluster("multiservice", upstream("1"))
		second := cluster("second", upstream("2"))
		var localities []any
		for i, c := range []object{services, second} {
			name := fmt.Sprint("service_", i+1)
			of := c["load_assignment"].(object)["endpoints"].([]object)[0]
			of["locality"] = object{"region": name}
			of["metadata"] = object{"filter_metadata": object{"envoy.cluster.locality": object{"name": name}}}
			of["lb_endpoints"].([]object)[0]["metadata"] = object{"filter_metadata": object{"envoy.lb": object{"service": name}}}
			localities = append(localities, of)
		}
		services["load_assignment"] = object{"cluster_name": "multiservice", "endpoints": localities}
		services["lb_subset_config"] = object{"fallback_policy": "ANY_ENDPOINT", "subset_selectors": []object{{"keys": []string{"service"}}}}

		header := func(name string) object {
			return object{"request_headers": object{"header_name": name, "descriptor_key": name}}
		}
		actions := func(names ...string) object {
			all := []object{}
			for _, name := range names {
				all = append(all, header(name))
			}
			return object{"actions": all}
		}
		service := func(n int) object {
			return object{"actions": []object{{"generic_key": object{"descriptor_key": "service", "descriptor_value": fmt.Sprint("service_", n)}}}}
		}
		costs := func(limit object, hits int, done bool) object {
			limit["hits_addend"] = object{"number": hits}
			if done {
				limit["apply_on_stream_done"] = true
			}
			return limit
		}
		locality := object{"actions": []object{{"metadata": object{
			"descriptor_key": "service", "source": "CLUSTER_LOCALITY_ENTRY",
			"metadata_key": object{"key": "envoy.cluster.locality", "path": []object{{"key": "name"}}},
		}}}}
		route := func(path, to string, limits ...object) object {
			return object{"match": object{"prefix": path}, "route": object{"cluster": to, "rate_limits": limits}}
		}
		// perRoute returns a route with the filter's own configuration of limits, because only that has
		// hits_addend and when to apply it.
		perRoute := func(path, to string, limits ...object) object {
			return object{"match": object{"prefix": path}, "route": object{"cluster": to}, "typed_per_filter_config": object{
				"envoy.filters.http.ratelimit": envoytest.Typed("envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute", object{
					"vh_rate_limits": "INCLUDE", "override_option": "INCLUDE_POLICY", "rate_limits": limits,
				}),
			}}
		}
		a := &asking{
			domain: "rl", clusters: []object{cluster("mock", upstream("mock")), services},
			filter: object{"failure_mode_deny": true, "rate_limited_as_resource_exhausted": true},
			routes: []object{
				route("/twoheader", "mock", actions("foo", "bar"), actions("foo", "baz")),
				route("/fourheader", "mock", actions("foo", "bar"), actions("source_cluster", "destination_cluster")),
				route("/fiveheader", "mock", actions("foo", "bar"), actions("source_cluster", "destination_cluster"), actions("category")),
				route("/unspec", "mock", actions("unspec")),
				perRoute("/quota", "mock", service(1), service(2)),
				perRoute("/tokenquota", "mock", costs(service(2), 0, false), costs(service(2), 1, true)),
				perRoute("/multiservice-tokenquota", "multiservice", costs(service(1), 0, false), costs(service(2), 0, false), costs(locality, 1, true)),
			},
			behind: []object{
				{"name": "set_header", "typed_config": envoytest.Typed("envoy.extensions.filters.http.header_mutation.v3.HeaderMutation", object{
					"mutations": object{"request_mutations": []object{{"append": object{
						"header":        object{"key": "x-service", "value": "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:metadata:service_with_quota:name)%"},
						"append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
					}}}},
				})},
				{"name": "header_to_metadata", "typed_config": envoytest.Typed("envoy.extensions.filters.http.header_to_metadata.v3.Config", object{
					"stat_prefix": "to", "request_rules": []object{{"header": "x-service", "on_header_present": object{
						"metadata_namespace": "envoy.lb", "key": "service", "type": "STRING",
					}}},
				})},
			},
		}
		const banned, four = "foo:bkthomps bar:banned ", "foo:my_foo bar:bkthomps "
		for _, script := range []struct {
			name  string
			steps [][3]string // a path, headers, and the results of requests: X is 429, others are the upstream's answer
		}{
			{"simple-get", [][3]string{{"/twoheader", "foo:test baz:shady", "o"}}},
			{"trigger-ratelimit", [][3]string{{"/twoheader", "foo:pelle baz:not-so-shady", "oooXX"}}},
			{"trigger-shadow-mode-key", [][3]string{{"/twoheader", "foo:pelle baz:shady", "oooooo"}}},
			{"value-included-in-stats-key", [][3]string{{"/unspec", "unspec:unspecified_value", "ooX"}}},
			{"replaces", [][3]string{
				{"/twoheader", banned, "X"},
				{"/fourheader", banned + "source_cluster:proxy destination_cluster:mock", "X"},
				{"/fourheader", banned + "source_cluster:proxy destination_cluster:override", "ooX"},
				{"/fourheader", four + "source_cluster:proxy destination_cluster:bkthomps", "ooX"},
				{"/fourheader", four + "source_cluster:proxy destination_cluster:not_bkthomps", "oX"},
				{"/fourheader", four + "source_cluster:proxy destination_cluster:bkthomps", "X"},
				{"/fiveheader", four + "source_cluster:proxy destination_cluster:fake category:account", "ooooX"},
				{"/twoheader", "foo:foo_2 bar:bkthomps", "oX"},
				{"/fourheader", "foo:foo_3 bar:bar_3 source_cluster:proxy destination_cluster:fake", "ooX"},
				{"/fiveheader", four + "source_cluster:proxy destination_cluster:fake category:account", "X"},
			}},
			{"quota", [][3]string{{"/quota", "", "ooX"}}},
			{"token-quota", [][3]string{{"/tokenquota", "", "oooX"}}},
			{"multiservice-tokenquota", [][3]string{{"/multiservice-tokenquota", "", "11222X"}}},
		} {
			t.Run(script.name, func(t *testing.T) {
				// Each has its own counters, because the scripts wait for another minute in between.
				all := rateLimits(t, configuration)
				e, address := a.start(t, d, []*instance{all})
				client := client(t)
				for _, step := range script.steps {
					got := ""
					for i := range step[2] {
						r := ask(t, client, address, headersOf("GET "+step[0]+" "+step[1])...)
						switch {
						case r.status == http.StatusTooManyRequests:
							got += "X"
						case r.status != http.StatusOK:
							t.Fatalf("got status %d", r.status)
						case r.body == "mock":
							got += "o"
						default:
							got += r.body
						}
						if strings.Contains(step[0], "tokenquota") && i+1 < len(step[2]) {
							settled(t, e, int64(2*(i+1)))
						}
					}
					must.Equal(t, got, step[2], "%s %s", step[0], step[1])
				}
				if script.name == "value-included-in-stats-key" {
					body := fetch(t, "http://"+all.metrics)
					must.Contains(t, body, `ratelimit_service_rate_limit_over_limit{domain="rl",key1="unspec_unspecified_value",key2=""} 1`, "the metrics lack")
				}
			})
		}
	})
}

// rateLimits starts weir ratelimit with counters in memory, unless the environment says otherwise.
func rateLimits(t *testing.T, configuration string, environment ...string) *instance {
	t.Helper()
	root := t.TempDir()
	folder := filepath.Join(root, "config")
	must.OK(t, errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(filepath.Join(folder, "limits.yaml"), []byte(configuration), 0o600)))
	cmd := exec.Command(commandFile, "ratelimit")
	cmd.Env = append(os.Environ(), "RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=", "WEIR_STORE=memory", "HOST=127.0.0.1", "PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0",
		"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=127.0.0.1:0", "RESPONSE_DYNAMIC_METADATA=true", "LOG_LEVEL=info")
	cmd.Env = append(cmd.Env, environment...)
	i := &instance{Process: startCommand(t, cmd)}
	i.address = i.Wait(t, `the rate limit service listens" address=(\S+)`)
	i.metrics = i.Wait(t, `the rate limit service's metrics listens" address=(\S+)`) + "/metrics"
	return i
}

// settled waits until the service has answered an Envoy a number of times: hits applied at the end
// of a stream come after its response.
func settled(t *testing.T, e *envoytest.Envoy, answers int64) {
	t.Helper()
	must.OK(t, waitOnStat(t, e, "cluster.limits.upstream_rq_completed", func(n int64) bool { return n == answers }))
}
