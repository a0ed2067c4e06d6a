package filter_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir/internal/backend/backendtest"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/must"
	"weir/internal/proxywasm"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/sharedata"
)

const (
	perUser = `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 50, "window": "1h", "algorithm": "fixed_window"}]}`
	// scarce has a limit so small that nodes ask before each hit.
	scarce = `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 5, "window": "1h", "algorithm": "fixed_window"}]}`
	// long has room for all hits of a test, in a window that outlasts it.
	long = `"limits": [{"limit": 100000, "window": "30d", "algorithm": "fixed_window"}]`
)

// synced is a configuration with a backend.
func synced(rate string, rule string) string {
	return `{"backend": {"cluster": "weir"}, "sync_rate": ` + rate + `, "rules": [` + rule + `]}`
}

// local is a configuration of synced without its backend.
func local(configuration string) string {
	return `{` + configuration[strings.Index(configuration, `"rules"`):]
}

// waits are configurations by which requests wait.
var waits = []string{synced("0", perUser), synced("1", scarce)}

// world is some proxies and a backend, on one clock.
type world struct {
	t       testing.TB
	now     int64
	store   store.Store
	proxies []*fakeProxy
	vms     []*fakeVM
	random  *rand.Rand
	away    bool // whether no callout reaches the backend
}

func newWorld(t testing.TB, nodes, workers int, configuration string) *world {
	w := &world{t: t, now: monday, random: rand.New(rand.NewPCG(11, 3))}
	w.store = memory.New(memory.Options{Now: func() time.Time { return time.Unix(0, w.now) }})
	for range nodes {
		p := newProxy(t)
		w.proxies = append(w.proxies, p)
		for range workers {
			w.vms = append(w.vms, p.start(configuration))
			w.vms[len(w.vms)-1].settle = w.deliver
		}
	}
	return w
}

// joined is a world whose nodes have heard from the backend.
func joined(t testing.TB, nodes, workers int, configuration string) *world {
	w := newWorld(t, nodes, workers, configuration)
	w.advance(time.Second)
	return w
}

// advance lets time pass, ticks every VM, and carries callouts to the backend and answers back.
func (w *world) advance(d time.Duration) {
	w.pass(d)
	for _, i := range w.random.Perm(len(w.vms)) {
		w.vms[i].tick()
	}
	for _, i := range w.random.Perm(len(w.vms)) {
		w.deliver(w.vms[i])
	}
}

// often advances a world so many times.
func often(n int, advance func(time.Duration), by time.Duration) {
	for range n {
		advance(by)
	}
}

func (w *world) pass(d time.Duration) {
	w.now += int64(d)
	for _, p := range w.proxies {
		p.now = w.now
	}
}

// quiet waits until there is nothing to do any more.
func (w *world) quiet() {
	often(400, w.advance, 500*time.Millisecond)
}

func (w *world) deliver(v *fakeVM) {
	callouts := v.dispatched()
	w.random.Shuffle(len(callouts), func(i, j int) { callouts[i], callouts[j] = callouts[j], callouts[i] })
	for _, c := range callouts {
		if w.away {
			v.answer(c, []int{0, 503, 504}[w.random.IntN(3)], []byte("upstream connect error"))
			continue
		}
		v.answer(c, 200, w.apply(c.body))
	}
}

func (w *world) apply(body []byte) []byte { return backendtest.Answer(w.t, w.store, body) }

// sum is all hits that the backend has of the namespace.
func (w *world) sum() int64 { return backendtest.Sum(w.t, w.store, "default") }

func (w *world) wantSum(want int64, when string) {
	w.t.Helper()
	backendtest.WantSum(w.t, w.store, want, when)
}

// override replaces the overrides of run time, and lets a second pass.
func (w *world) override(list ...wire.Override) {
	w.t.Helper()
	w.list(wire.List(list))
}

// price is override for prices.
func (w *world) price(list ...wire.Price) {
	w.t.Helper()
	w.list(wire.List(nil, list...))
}

func (w *world) list(list []byte) {
	w.t.Helper()
	backendtest.Set(w.t, w.store, "default", list)
	often(20, w.advance, 50*time.Millisecond)
}

func (w *world) any() *fakeVM { return w.vms[w.random.IntN(len(w.vms))] }

// busy is a proxy whose clock goes on with each access to shared data, so that work takes time.
func busy(w *world) {
	w.proxies[0].before = func(v *fakeVM, _ string) {
		v.now += 5_000
		w.now = v.now
	}
}

// shortly has a callback run that must not take much longer than a tick may.
func (w *world) shortly(what string, callback func()) {
	w.t.Helper()
	start := w.now
	callback()
	must.AtMost(w.t, time.Duration(w.now-start), 7*time.Millisecond/4, "%s took", what)
}

// leased returns the hits that the proxy has leased of the plugin's only rule, which has no key.
func (v *fakeVM) leased() (leased uint64) {
	v.t.Helper()
	defer proxywasm.Use(v)()
	table := must.Get(sharedata.Open(&proxywasm.SharedData{}, sharedata.Options{Namespace: "default", Capacity: 1}, rand.Uint64))(v.t)
	var slot sharedata.Slot
	var kept counter.Counter
	rule := &v.plugin.Rules()[0].Rule
	key := v.plugin.Rules()[0].Prefix
	table.Read(&slot, table.Address(table.Group(key), key))
	kept.Load(rule, slot.Payload())
	kept.Advance(v.plugin.Node().Time(v.now))
	for i := range kept.States {
		leased = max(leased, rule.Limits[i].Leased(&kept.States[i]))
	}
	return leased
}

// crossing has the second node take a hit at the end of a second, and then the first ask for one, and be refused. The
// answer comes in the next second.
func (w *world) crossing(headers ...string) (answer func()) {
	w.t.Helper()
	v := w.vms[0]
	w.pass(900 * time.Millisecond)
	must.EqualOrEnd(w.t, w.vms[1].send(headers...), true, "passed within the limit")
	must.EqualOrEnd(w.t, v.open(headers...) == nil && v.reply == nil, true, "the request waits")
	out := v.dispatched()[0]
	body := w.apply(out.body)
	w.pass(150 * time.Millisecond)
	return func() { v.answer(out, 200, body) }
}

// left describes what a VM still has to do.
func (v *fakeVM) left() string {
	defer proxywasm.Use(v)()
	if left := v.plugin.Node().Backlog(); left != (engine.Backlog{}) || v.plugin.Node().Unfinished() {
		return fmt.Sprintf("%+v", left)
	}
	return ""
}
