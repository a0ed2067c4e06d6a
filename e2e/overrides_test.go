package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/server"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
	"weir/ratelimit"
)

const (
	// moving has limits with overrides. Ann's is never reached, and those of others soon are.
	moving = `{"namespace": "moving", "backend": {"cluster": "weir", "timeout": "5s"}, "sync_rate": 0.2, "headers": ["x-ratelimit"], "rules": [
		{"name": "per-user", "key": [{"header": "x-user"}], "limits": [{"limit": 20, "window": "366d", "algorithm": "fixed_window"}]}]}`
	movingRate = 200 * time.Millisecond
)

// weir runs the command, which must succeed.
func weir(t *testing.T, backend string, args ...string) (output string) {
	t.Helper()
	output, err := tryWeir(backend, args...)
	must.OKf(t, err, "weir %s: %s", strings.Join(args, " "), output)
	return output
}

// tells waits until the command tells what matches a pattern.
func tells(t *testing.T, backend, pattern string, args ...string) {
	t.Helper()
	like, output := regexp.MustCompile(pattern), ""
	if !soon(func() bool {
		output = weir(t, backend, args...)
		return like.MatchString(output)
	}) {
		t.Errorf("weir %s tells nothing like %q:\n%s", strings.Join(args, " "), pattern, output)
	}
}

func tryWeir(backend string, args ...string) (output string, err error) {
	command := exec.Command(commandFile, args...)
	command.Env = append(command.Environ(), "WEIR_BACKEND=http://"+backend)
	said, err := command.CombinedOutput()
	return string(said), err
}

// setOverride sends the command's request to a backend, without the time to start the command.
func setOverride(t *testing.T, backend, namespace, override string) {
	t.Helper()
	r := ask(t, envoytest.Client, "http://"+backend, ":method", http.MethodPut, ":path", "/v1/overrides?namespace="+namespace,
		"content-type", "application/json", ":body", `{"overrides": [`+override+`]}`)
	must.EqualOrEnd(t, r.status, http.StatusOK, "set an override: status: %s", r.body)
}

// A limit changes five times, a hundred times in a nightly run, while clients send requests as
// fast as they are answered. It holds at every worker of every node two intervals later. No request
// fails, and all that passes is counted.
func TestLimitsMove(t *testing.T) {
	onEachByNight(t, 3, func(t *testing.T, d driver) {
		const connections, each, users = 2, 10, 3 // so few that some are refused, however slowly all is answered
		changes := nightly.Or(100, 5)
		backend := serve(t, "memory")
		_, addresses := nodes(t, d, 3, nodeConfig{configuration: moving, backend: backend, workers: 2})
		first := 1_000_000
		weir(t, backend, "override", "set", "moving", "per-user", "ann", fmt.Sprintf("%d/366d", first), "--force", "--wait", "60s")

		var admitted, refused atomic.Int64
		var wanted atomic.Int64 // ann's limit; 0 while it is being distributed
		wanted.Store(int64(first))
		var late sync.Map                             // limits that did not hold everywhere in time
		right := make([]atomic.Int64, len(addresses)) // answers with the limit wanted
		stop := make(chan struct{})
		var group sync.WaitGroup
		for i, address := range addresses {
			for connection := range connections {
				group.Go(func() {
					client := client(t)
					for n := 0; ; n++ {
						select {
						case <-stop:
							return
						default:
						}
						user := "ann"
						if n%4 == 3 {
							user = fmt.Sprint("user", (n/4*connections+connection)%users)
						}
						before := wanted.Load()
						r, err := send(t, client, address, "x-user", user)
						switch {
						case err != nil:
							t.Errorf("node %d: %v", i, err)
							return
						case r.status == http.StatusOK:
							admitted.Add(1)
						case r.status == http.StatusTooManyRequests && user != "ann":
							refused.Add(1)
						default:
							t.Errorf("node %d: %s: status %d", i, user, r.status)
						}
						got, err := strconv.ParseInt(r.header.Get("x-ratelimit-limit"), 10, 64)
						switch {
						case user != "ann" && got != 20:
							t.Errorf("node %d: a limit of %d for %s, error %v", i, got, user, err)
						case user != "ann" || before == 0 || before != wanted.Load():
						case got == before-1:
							late.Store(before, i)
						case got != before:
							t.Errorf("node %d: a limit of %d two intervals after it was set to %d", i, got, before)
						default:
							right[i].Add(1)
						}
					}
				})
			}
		}
		for change := range changes {
			limit := first + 1 + change
			wanted.Store(0)
			setOverride(t, backend, "moving", fmt.Sprintf(`{"rule": "per-user", "key": ["ann"], "limits": [{"limit": %d, "width_ms": %d}]}`, limit, 366*24*time.Hour.Milliseconds()))
			<-time.After(2 * movingRate) // the documented delay
			before := make([]int64, len(right))
			for i := range right {
				before[i] = right[i].Load()
			}
			wanted.Store(int64(limit))
			deadline := time.Now().Add(hang)
			for i := range right {
				for right[i].Load() < before[i]+each && !t.Failed() {
					if time.Now().After(deadline) {
						t.Fatalf("node %d answers no more", i)
					}
					<-time.After(time.Millisecond)
				}
			}
			if t.Failed() {
				break
			}
		}
		close(stop)
		group.Wait()
		// On a busy machine ticks come late, for which the test makes allowance. The tests of package
		// node make none.
		slow := 0
		late.Range(func(limit, node any) bool {
			t.Logf("the limit %v did not hold at node %v two intervals later", limit, node)
			slow++
			return true
		})
		must.AtMost(t, slow, max(2, changes/20), "changes of %d that did not hold everywhere two intervals later", changes)
		must.AtLeast(t, refused.Load(), 1, "refused")
		t.Logf("%d passed, %d were refused", admitted.Load(), refused.Load())
		tells(t, backend, "known to 3 of 3 nodes\n", "override", "list", "moving") // nodes tell what they know with their next pushes
		must.Equal(t, weir(t, backend, "override", "unset", "moving", "per-user", "ann", "--wait", "60s"), "1 removed\nknown to 3 of 3 nodes\n", "weir override unset")
		// Nodes have leased more than the lower limit leaves, and give it back at once.
		settle(t, backend, "moving", admitted.Load())
		for i, address := range addresses {
			if r := ask(t, envoytest.Client, address, "x-user", "ann"); r.status != http.StatusTooManyRequests || r.header.Get("x-ratelimit-limit") != "20" {
				t.Errorf("node %d: status %d of limit %s, want a refusal by 20", i, r.status, r.header.Get("x-ratelimit-limit"))
			}
		}
	})
}

// A whole rule goes to shadow mode, off, to another limit and back, by the command, at two proxies and a
// program that share a backend. Each is seen in answers and in the proxies'
// metrics, nobody's requests fail, and counters go on. A configuration that comes meanwhile changes
// nothing, and a change that can't apply is refused.
func TestRulesMove(t *testing.T) {
	onEach(t, 2, func(t *testing.T, d driver) {
		const limit = 10
		configuration := func(limit int) string {
			return fmt.Sprintf(`{"backend": {"cluster": "weir", "timeout": "5s"}, "sync_rate": 0, "headers": ["x-ratelimit"], "rules": [
				{"name": "per-user", "key": [{"header": "x-user"}], "limits": [{"limit": %d, "window": "366d", "algorithm": "fixed_window"}]}]}`, limit)
		}
		backend := serve(t, "file:"+filepath.Join(t.TempDir(), "weir.db"))
		started, addresses := nodes(t, d, 2, nodeConfig{configuration: configuration(limit), backend: backend, workers: 2})
		addresses = append(addresses, program(t, "default", backend, "", true, ratelimit.FixedWindow(limit, 366*24*time.Hour)))
		rule := func(args ...string) {
			t.Helper()
			must.Contains(t, weir(t, backend, append([]string{"rule"}, append(args, "--wait", "60s")...)...), "known to 3 of 3 nodes\n", "weir rule %q", args)
		}
		passed := 0 // and counted, of a user
		want := func(when, user string, statuses ...int) {
			t.Helper()
			for i, address := range addresses {
				must.Equal(t, ask(t, envoytest.Client, address, "x-user", user).status, statuses[i%len(statuses)], "%s: node %d answers", when, i)
			}
		}
		wantTwo := func(n node, name string) { // a shadow rule decides later
			t.Helper()
			if e, ok := d.(envoys); ok && e.native {
				return // a module defines metrics only while a configuration starts: docs/backend.md
			}
			if !soon(func() bool { return n.metric(t, metricName(name)) == 2 }) {
				t.Errorf("%s is %d, want 2", name, n.metric(t, metricName(name)))
			}
		}
		for range limit {
			must.EqualOrEnd(t, ask(t, envoytest.Client, addresses[passed%3], "x-user", "ann").status, http.StatusOK, "request %d has status", passed)
			passed++
		}
		const ok, refused = http.StatusOK, http.StatusTooManyRequests
		want("as configured", "ann", refused)
		rule("set", "default", "per-user", "--mode", "shadow", "--force")
		for range 2 {
			want("shadow", "ann", ok)
		}
		wantTwo(started[0], "weir_rule=.=per-user;.;weir_outcome=.=shadow_rejected;.;requests_total")
		rule("off", "default", "per-user", "--until", "1d", "--reason", "for a test")
		want("off", "ann", ok)
		want("off", "bob", ok)
		wantTwo(started[1], "weir_rule=.=per-user;.;weir_outcome=.=off;.;requests_total")
		for _, n := range started {
			must.OK(t, n.configure(configuration(limit-1)))
		}
		want("off in a new configuration", "ann", ok)
		file := filepath.Join(t.TempDir(), "weir.json")
		must.OK(t, os.WriteFile(file, []byte(configuration(limit-1)), 0o600))
		for _, by := range []string{"--config=" + file, "--wait=1s"} {
			if out, err := tryWeir(backend, "rule", "set", "default", "per-user", "--limit", "5/1h", by); err == nil || strings.Contains(out, "taken back") {
				t.Errorf("another window: %v, %s", err, out)
			}
			want("off", "ann", ok)
		}
		rule("set", "default", "per-user", "--limit", fmt.Sprintf("%d/366d", limit+3), "--config", file)
		want("another limit", "ann", ok)
		want("another limit", "ann", refused)
		must.Equal(t, ask(t, envoytest.Client, addresses[0], "x-user", "dee").header.Get("x-ratelimit-limit"), fmt.Sprint(limit+3), "the limit is")
		weir(t, backend, "override", "set", "default", "per-user", "--prefix", "ed", "99/366d", "--wait", "60s")
		for i, address := range addresses[:2] {
			for user, want := range map[string]int{"eddy": 99, "dee": limit + 3} {
				must.Equal(t, ask(t, envoytest.Client, address, "x-user", user).header.Get("x-ratelimit-limit"), fmt.Sprint(want), "node %d: the limit of %s", i, user)
			}
		}
		rule("off", "--all", "default")
		want("all rules are off", "ann", ok)
		must.Equal(t, ask(t, envoytest.Client, addresses[0], "x-user", "ann").header.Get("x-ratelimit-limit"), "", "a rule that is off is in headers")
		rule("reset", "--all", "default")
		want("all rules are on again", "ann", refused)
		rule("off", "default", "per-user", "--until", "6s")
		want("off for six seconds", "ann", ok)
		for i, address := range addresses {
			must.Equal(t, soon(func() bool { return ask(t, envoytest.Client, address, "x-user", "ann").status == refused }), true, "it ends at node %d", i)
		}
		settle(t, backend, "default", int64(limit+3)+5) // dee's and eddy's, too
	})
}

// asProgram has the tests' program be one with the library, at the backend that it names: it tells its address,
// and answers there until it is told to end.
const asProgram = "WEIR_E2E_PROGRAM"

func beProgram(backend string) error {
	server, err := ratelimit.Dial("http://"+backend, ratelimit.DialOptions{})
	if err != nil {
		return err
	}
	n, err := ratelimit.NewNamespace(ratelimit.Options{
		Name: "default", Backend: server, SyncRate: movingRate, Timeout: 5 * time.Second,
		Rules: []ratelimit.Rule{{Name: "per-user", Limits: []ratelimit.Limit{ratelimit.FixedWindow(20, 366*24*time.Hour)}}},
	})
	if err != nil {
		return err
	}
	limiter, err := n.Limiter("per-user")
	if err != nil {
		return err
	}
	front := httptest.NewServer(limitedBy(limiter))
	fmt.Println("listens address=" + strings.TrimPrefix(front.URL, "http://"))
	ended, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	<-ended.Done()
	front.Close()
	return n.Close(context.Background())
}

// switchable is a way to a backend that can be cut, and counts the calls that come through, and the bytes of
// their answers.
type switchable struct {
	cut          atomic.Bool
	calls, bytes atomic.Int64
}

func (s *switchable) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.cut.Load() {
		return nil, errors.New("cut")
	}
	s.calls.Add(1)
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		answer.Body = countedBody{answer.Body, &s.bytes}
	}
	return answer, err
}

// countedBody counts what is read of a body.
type countedBody struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (c countedBody) Read(p []byte) (n int, err error) {
	n, err = c.ReadCloser.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// A namespace has as many overrides as it may. An Envoy knows them, and each of their changes, without the others.
// What that takes is logged: docs/counters.md has it.
func TestManyOverrides(t *testing.T) {
	onEnvoyAlone(t, 1, newest, func(t *testing.T, d envoys) {
		many, changes := nightly.Or(wire.MaxOverrides, wire.MaxOverrides/10), nightly.Or(20, 3)
		backend, way := serve(t, "memory"), &switchable{}
		n := d.node(t, nodeConfig{configuration: moving, backend: through(t, way, backend)}).(*envoyNode)
		limitOf := func(user int) string {
			r := ask(t, envoytest.Client, n.url(), "x-user", fmt.Sprintf("user-%012d", user))
			return r.header.Get("x-ratelimit-limit")
		}
		limitOf(0)
		override := func(user, limit int) string {
			return fmt.Sprintf(`{"rule": "per-user", "key": ["user-%012d"], "limits": [{"limit": %d, "width_ms": %d}]}`, user, limit, 366*24*time.Hour.Milliseconds())
		}
		set := func(what string, overrides ...string) {
			t.Helper()
			bytes := way.bytes.Load()
			setOverride(t, backend, "moving", strings.Join(overrides, ", "))
			began := time.Now()
			var known server.Overrides
			for known.Nodes == 0 || known.Knowing < known.Nodes { // one knows when each of its workers does
				must.OK(t, json.Unmarshal([]byte(fetch(t, "http://"+backend+"/v1/overrides?some&namespace=moving")), &known))
			}
			t.Logf("%s: known after %.1f s, by %d bytes of answers", what, time.Since(began).Seconds(), way.bytes.Load()-bytes)
		}
		var all []string
		for user := range many {
			all = append(all, override(user, 1000+user%7))
		}
		before := residentBytes(t, n.PID())
		set(fmt.Sprint(many, " overrides"), all...)
		first := residentBytes(t, n.PID())
		for change := range changes {
			set("a change of one", override(change*many/changes, 5000+change))
		}
		for change := range changes {
			must.Equal(t, limitOf(change*many/changes), fmt.Sprint(5000+change), "a limit that was changed")
		}
		must.Equal(t, limitOf(many-1), fmt.Sprint(1000+(many-1)%7), "the last has the limit")
		t.Logf("Envoy with %d workers: %d MiB more, and %d MiB more after %d changes",
			envoyWorkers, (first-before)>>20, (residentBytes(t, n.PID())-before)>>20, changes)
	})
}

// Three Envoys, a program in a process of its own and weir ratelimit share a Redis. Under load a rule goes to
// shadow mode, off, another limit and back. No request fails, and counters stay. Whoever starts anew goes on by what
// was set, and so does a proxy that was away meanwhile. By night a node of the last version is beside them, which
// goes on by its configuration; the backend says so.
func TestRulesMoveUnderLoad(t *testing.T) {
	onEnvoyAlone(t, nightly.Or(4, 3), newest, func(t *testing.T, d envoys) {
		const limit = 20
		store, at := redistest.Start(t).URL(), steadyAddress(t)
		served, backend := serveAt(t, at, store)
		way := &switchable{}
		config := nodeConfig{backend: backend, configuration: `{"backend": {"cluster": "weir", "timeout": "5s"}, "sync_rate": 0.2, "rules": [
			{"name": "per-user", "key": [{"header": "x-user"}], "limits": [{"limit": 20, "window": "366d", "algorithm": "fixed_window"}]}]}`}
		proxies, addresses := nodes(t, d, 2, config)
		config.backend = through(t, way, backend)
		_, far := nodes(t, d, 1, config)
		config.backend = backend
		startProgram := func() (p *commandtest.Process, address string) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), asProgram+"="+backend)
			p = startCommand(t, cmd)
			return p, "http://" + p.Wait(t, `listens address=(\S+)`)
		}
		program, programAddress := startProgram()
		const restarted, asProgram, away, asService = 1, 2, 3, 4
		addresses = append(addresses, programAddress, far[0])
		startService := func() caller {
			return callers(t, 1, "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 20}}]", store)[0]
		}
		service := startService()

		// Other keys have hits all the time.
		var others, failed atomic.Int64
		done := make(chan struct{})
		var clients sync.WaitGroup
		end := sync.OnceFunc(func() { close(done); clients.Wait() })
		defer end()
		for _, address := range []string{addresses[0], far[0]} {
			client := client(t)
			clients.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-done:
						return
					case <-time.After(5 * time.Millisecond):
					}
					r, err := send(t, client, address, "x-user", fmt.Sprint(address, i))
					if err != nil || r.status != http.StatusOK {
						failed.Add(1)
					} else {
						others.Add(1)
					}
				}
			})
		}
		const ok, refused = http.StatusOK, http.StatusTooManyRequests
		status := func(i int) int {
			if i < asService {
				return ask(t, envoytest.Client, addresses[i], "x-user", "ann").status
			}
			if passes, _ := service.ask(t, "shop", "user", "ann", 1); passes {
				return ok
			}
			return refused
		}
		all := []int{0, restarted, asProgram, away, asService}
		// want waits until all of some do it. passed is how many of ann's requests pass meanwhile.
		want := func(when string, want int, of ...int) {
			t.Helper()
			began, calls, passed, after := time.Now(), way.calls.Load(), 0, ""
			for _, i := range of {
				got := 0
				if !soon(func() bool {
					if got = status(i); got == ok {
						passed++
					}
					return got == want
				}) {
					t.Errorf("%s: %d answers %d, want %d", when, i, got, want)
				}
				after += fmt.Sprintf(" %.1f", float64(time.Since(began))/float64(movingRate))
			}
			t.Logf("%s: they do it after%s sync_rates, asked one after the other; %d requests of the key passed, and a proxy made %d calls to the backend",
				when, after, passed, way.calls.Load()-calls)
		}
		move := func(mode string, limit int) {
			t.Helper()
			for namespace, rule := range map[string]string{"default": "per-user", "ratelimit": "year"} {
				limits := ""
				if limit > 0 {
					width := map[string]time.Duration{"default": 366, "ratelimit": 365}[namespace] * 24 * time.Hour
					limits = fmt.Sprintf(`, "limits": [{"limit": %d, "width_ms": %d}]`, limit, width.Milliseconds())
				}
				setOverride(t, backend, namespace, fmt.Sprintf(`{"rule": %q, "mode": %q%s}`, rule, mode, limits))
			}
		}
		for i := range limit { // of the proxies and the program, and of the service
			if status(i%asService) != ok || status(asService) != ok {
				t.Fatalf("request %d is refused", i)
			}
		}
		want("as configured", refused, all...)
		var old node
		if nightly.On() {
			last := config
			last.plugin = filepath.Join(buildVersion(t, lastVersion(t)), "dist/weir.wasm")
			old = envoys{binary: d.binary, left: d.left}.node(t, last)
		}
		wantOld := func(when string) {
			t.Helper()
			if old == nil {
				return
			}
			must.Equal(t, ask(t, envoytest.Client, old.url(), "x-user", "ann").status, refused, "%s: a node of the last version answers", when)
			tells(t, backend, "1 of them can't apply all overrides", "rule", "show", "default", "per-user")
		}
		move("shadow", 0)
		want("shadow", ok, all...)
		wantOld("shadow")
		move("enforce", 0)
		want("enforced again", refused, all...)
		move("off", 0)
		want("off", ok, all...)
		wantOld("off")

		// Who starts anew hears of it, and so does who was away.
		way.cut.Store(true)
		must.OK(t, served.End())
		serveAt(t, at, store)
		must.OK(t, program.End())
		_, addresses[asProgram] = startProgram()
		must.OK(t, service.End())
		service = startService()
		addresses[restarted] = d.restart(t, proxies[restarted].(*envoyNode))
		want("off, after restarts", ok, all...)
		move("configured", 25)
		want("another limit", refused, 0, restarted, asProgram, asService)
		must.Equal(t, status(away), ok, "a proxy that is away has heard of the change: status")
		way.cut.Store(false)
		want("another limit, at a proxy that was away", refused, away)
		wantOld("another limit")
		for _, of := range [][]string{{"default", "per-user"}, {"ratelimit", "year"}} {
			weir(t, backend, "rule", "reset", of[0], of[1])
		}
		want("reset", refused, all...)
		end()
		must.Equal(t, failed.Load(), 0, "failed requests of others, besides %d", others.Load())
		t.Logf("%d requests of others passed", others.Load())
		// Nodes tell their limits with their first report, some seconds after they start.
		tells(t, backend, `: 2[0-5] of 20 used, 0 left`, "counter", "get", "default", "per-user", "ann")
	})
}
