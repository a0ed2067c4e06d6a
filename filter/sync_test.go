package filter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// world is some proxies and a backend, on one clock.
type world struct {
	t       testing.TB
	now     int64
	store   store.Store
	proxies []*fakeProxy
	vms     []*fakeVM
	random  *rand.Rand
	// lossBefore and lossAfter are the shares of callouts that are lost before or after they were applied.
	lossBefore, lossAfter float64
	pushes                int
	zombies               [][]byte // pushes whose senders gave up on them
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

// advance lets time pass, ticks every VM, and carries callouts to the backend and answers back.
func (w *world) advance(d time.Duration) {
	w.now += int64(d)
	for _, p := range w.proxies {
		p.now = w.now
	}
	for _, i := range w.random.Perm(len(w.vms)) {
		w.vms[i].tick()
	}
	for _, i := range w.random.Perm(len(w.vms)) {
		w.deliver(w.vms[i])
	}
}

func (w *world) deliver(v *fakeVM) {
	callouts := v.callouts
	v.callouts = nil
	w.random.Shuffle(len(callouts), func(i, j int) { callouts[i], callouts[j] = callouts[j], callouts[i] })
	for _, c := range callouts {
		w.pushes++
		if w.random.Float64() < w.lossBefore {
			w.zombies = append(w.zombies, c.body)
			v.answer(c, []int{0, 503, 504}[w.random.IntN(3)], []byte("upstream connect error"))
			continue
		}
		answer := w.apply(c.body)
		if w.random.Float64() < w.lossAfter {
			v.answer(c, 504, []byte("upstream request timeout"))
			continue
		}
		v.answer(c, 200, answer)
	}
}

func (w *world) apply(body []byte) []byte {
	push, err := wire.DecodePush(body)
	if err != nil {
		w.t.Fatal(err)
	}
	nodes, err := w.store.Join(context.Background(), push.Namespace, push.Node)
	if err != nil {
		w.t.Fatal(err)
	}
	outcome, err := w.store.Push(context.Background(), push, nodes)
	if err != nil {
		w.t.Fatal(err)
	}
	return wire.AppendAnswer(nil, &outcome.Answer)
}

// sum is all hits that the backend has of the namespace.
func (w *world) sum() (sum int64) {
	err := w.store.Counters(context.Background(), "default", nil, func(c store.Counter) error {
		for _, window := range c.Windows {
			sum += window.Hits
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return sum
}

func (w *world) any() *fakeVM { return w.vms[w.random.IntN(len(w.vms))] }

func synced(rate string, rule string) string {
	return `{"backend": {"cluster": "weir"}, "sync_rate": ` + rate + `, "rules": [` + rule + `]}`
}

func TestNodesKeepOneLimit(t *testing.T) {
	for _, limit := range []string{
		`{"limit": 10, "window": "1h", "algorithm": "fixed_window"}`,
		`{"limit": 10, "window": "1h"}`,
		`{"limit": 10, "window": "1h", "algorithm": "fixed_window", "start": "first_hit"}`,
		`{"limit": 10, "window": "1h", "precision": "10m"}`,
		`{"limit": 10, "window": "1h", "algorithm": "sliding_log"}`,
		`{"limit": 1, "window": "1h", "algorithm": "token_bucket", "burst": 10}`,
	} {
		w := newWorld(t, 2, 2, synced("0.1", `{"name": "all", "limits": [`+limit+`]}`))
		passed := 0
		for i := range 40 {
			if w.vms[i%len(w.vms)].send() {
				passed++
			}
			w.advance(20 * time.Millisecond)
			w.advance(200 * time.Millisecond)
		}
		if passed != 10 || w.sum() != 10 {
			t.Errorf("%s: passed %d, and the backend has %d, want 10", limit, passed, w.sum())
		}
	}
}

// Whatever happens to callouts, the backend has what was admitted once all is quiet.
func TestHitsArriveExactlyOnce(t *testing.T) {
	rule := `{"name": "user", "key": [{"header": "x-user"}], "limits": [
		{"limit": 100, "window": "1h", "algorithm": "fixed_window"}, {"limit": 1000, "window": "1d"},
		{"limit": 200, "window": "1h", "precision": "1m"}, {"limit": 300, "window": "1d", "algorithm": "sliding_log"},
		{"limit": 1, "window": "366d", "algorithm": "token_bucket", "burst": 1000}]}`
	w := newWorld(t, 2, 2, synced("0.05", rule))
	w.lossBefore, w.lossAfter = 0.15, 0.15
	passed := int64(0)
	for range 5000 {
		if w.any().send("x-user", fmt.Sprint(w.random.IntN(30))) {
			passed++
		}
		if w.random.IntN(3) == 0 {
			w.advance(time.Duration(w.random.IntN(20)) * time.Millisecond)
		}
		if len(w.zombies) > 0 && w.random.IntN(50) == 0 {
			// A push that its sender has given up on arrives after all. Twice.
			body := w.zombies[w.random.IntN(len(w.zombies))]
			w.apply(body)
			w.apply(body)
		}
	}
	w.lossBefore, w.lossAfter = 0, 0
	for range 200 {
		w.advance(100 * time.Millisecond)
	}
	if got := w.sum(); got != 5*passed {
		t.Errorf("the backend has %d hits of five limits, want 5 × %d", got, passed)
	}
	for _, v := range w.vms {
		if left := v.left(); left != "" {
			t.Errorf("left when all is quiet: %s", left)
		}
	}
}

// A flood with a table too small for it evicts counters whose hits were not pushed yet. They arrive all the same.
func TestEvictedHitsArrive(t *testing.T) {
	w := newWorld(t, 1, 2, `{"capacity": 40, `+synced("0.05", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 100, "window": "1h"}]}`)[1:])
	for i := range 2000 {
		w.any().send("x-user", fmt.Sprint("random", i))
		if i%10 == 0 {
			w.advance(time.Millisecond)
		}
	}
	for range 100 {
		w.advance(100 * time.Millisecond)
	}
	if w.vms[0].count("evicted_counters_total") == 0 {
		t.Error("nothing was evicted")
	}
	if got := w.sum(); got != 2000 {
		t.Errorf("the backend has %d hits, want 2000", got)
	}
}

// While the backend is away nodes go on by themselves, in bounded memory; what they counted arrives afterwards.
func TestBackendAway(t *testing.T) {
	w := newWorld(t, 2, 1, synced("0.05", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 50, "window": "1h"}]}`))
	w.lossBefore = 1
	passed := map[string]int64{}
	all := int64(0)
	for i := range 6000 {
		user := fmt.Sprint(i % 40)
		if w.any().send("x-user", user) {
			passed[user]++
			all++
		}
		w.advance(10 * time.Millisecond)
	}
	for user, n := range passed {
		if n != 100 {
			t.Errorf("user %s: passed %d, want 50 on each of two nodes", user, n)
		}
	}
	if w.sum() != 0 {
		t.Error("the backend was away, but has hits")
	}
	if w.pushes > 6000*10/1000*4 {
		t.Errorf("%d pushes to a backend that is away for a minute", w.pushes)
	}
	w.lossBefore = 0
	for range 200 {
		w.advance(100 * time.Millisecond)
	}
	if w.sum() != all {
		t.Errorf("the backend has %d hits, want %d", w.sum(), all)
	}
	if got := w.vms[0].count("failed_pushes_total"); got == 0 {
		t.Error("no failed push was counted")
	}
}

// Answers that no backend gives are failures: the push is sent again, and nothing of the answer is believed.
func TestOddAnswers(t *testing.T) {
	w := newWorld(t, 1, 1, synced("0.05", `{"name": "all", "limits": [{"limit": 50, "window": "1h"}]}`))
	v := w.vms[0]
	v.foreign = true
	w.advance(time.Second)
	v.send()
	v.tick()
	good := w.apply(v.callouts[0].body)
	for i, odd := range []struct {
		status int
		body   []byte
	}{
		{200, nil}, {200, good[:len(good)-1]}, {200, append(good[:len(good):len(good)], 0)}, {200, []byte("<html>")}, {204, good[:1]}, {302, good}, {400, good},
		{401, good}, {500, good}, {0, nil}, {200, wire.AppendAnswer(nil, &wire.Answer{NowNanos: 1})},
	} {
		if len(v.callouts) != 1 {
			t.Fatalf("answer %d: %d callouts are out", i, len(v.callouts))
		}
		c := v.callouts[0]
		v.callouts = nil
		v.answer(c, odd.status, odd.body)
		v.answer(c, 200, good) // a second end of the same callout does nothing
		for n := 0; n < 100 && len(v.callouts) == 0; n++ {
			w.now += 100e6
			w.proxies[0].now = w.now
			v.tick()
		}
		if len(v.callouts) == 1 && string(v.callouts[0].body) != string(c.body) {
			t.Fatalf("answer %d: the push was changed", i)
		}
	}
	v.answer(v.callouts[0], 200, good)
	v.callouts = nil
	v.send()
	want(t, v.response, `x-ratelimit-remaining: 48`)
	if n := v.plugin.node.Backlog().Pushes; n != 0 {
		t.Errorf("%d batches are left", n)
	}
}

func TestPushRequest(t *testing.T) {
	p := newProxy(t)
	v := p.start(`{"namespace": "shop", "backend": {"cluster": "c", "authority": "weir.example", "token": "s3cret"},
		"rules": [{"name": "all", "limits": [{"limit": 50, "window": "1m"}]}]}`)
	v.tick() // it asks how many nodes there are
	if len(v.callouts) != 1 {
		t.Fatalf("got %d callouts", len(v.callouts))
	}
	v.answer(v.callouts[0], 200, wire.AppendAnswer(nil, &wire.Answer{NowNanos: uint64(monday), Nodes: 1}))
	v.callouts = nil
	p.now++
	v.send()
	v.tick()
	if len(v.callouts) != 1 {
		t.Fatalf("got %d callouts", len(v.callouts))
	}
	c := v.callouts[0]
	want(t, c.headers, `
		:method: POST
		:path: /v1/push
		:authority: weir.example
		content-type: application/x-weir
		authorization: Bearer s3cret
	`)
	push, err := wire.DecodePush(c.body)
	if err != nil || c.cluster != "c" || push.Namespace != "shop" || push.Sequence != 2 || push.Floor != 2 || len(push.Items) != 1 {
		t.Fatalf("got %s %+v, %v", c.cluster, push, err)
	}
	item := push.Items[0]
	if item.WidthMillis != 60_000 || item.Newest != uint64(monday/minute) || len(item.Hits) != 2 || item.Hits[0] != 1 {
		t.Errorf("got %+v", item)
	}
	if v.tickMillis == 0 || v.tickMillis > 125 {
		t.Errorf("ticks every %d ms", v.tickMillis)
	}
}

// A cluster that does not exist is a backend that is away.
func TestMissingCluster(t *testing.T) {
	p := newProxy(t)
	v := p.start(`{"backend": {"cluster": "missing"}, "rules": [{"name": "all", "limits": [{"limit": 5, "window": "1m"}]}]}`)
	for range 6 {
		v.send()
		p.now += second
		v.tick()
	}
	if v.reply == nil || v.count("failed_pushes_total") == 0 {
		t.Errorf("got reply %v, and %d failed pushes", v.reply, v.count("failed_pushes_total"))
	}
}

// A tick that has much to do stops after about a millisecond, and goes on in the next.
func TestTickIsShort(t *testing.T) {
	w := newWorld(t, 1, 1, synced("1", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 5, "window": "1h"}]}`))
	v := w.vms[0]
	const keys = 5000
	for i := range keys {
		v.send("x-user", fmt.Sprint(i))
	}
	usual := v.tickMillis
	// Every access to shared data takes 10 µs now.
	v.before = func(*fakeVM, string) { w.proxies[0].now += 10_000 }
	ticks := 0
	for ; w.sum() < keys; ticks++ {
		before := v.now
		v.tick()
		if took := v.now - before; took > 2*tickNanos {
			t.Fatalf("tick %d took %d µs", ticks, took/1000)
		}
		if v.tickMillis != 1 && w.sum() == 0 && len(v.callouts) == 0 {
			t.Fatalf("with much to do ticks come every %d ms", v.tickMillis)
		}
		w.now = v.now
		w.deliver(v)
		if ticks > 10*keys {
			t.Fatal("the keys are never done")
		}
	}
	for range 200 {
		v.tick()
		w.deliver(v)
	}
	if v.tickMillis != usual {
		t.Errorf("with nothing to do ticks come every %d ms, before every %d", v.tickMillis, usual)
	}
}

// A key that nobody hits costs nothing, and one that is hit all the time one push for each interval.
func TestPushesPerInterval(t *testing.T) {
	w := newWorld(t, 1, 4, synced("1", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 100000, "window": "1h"}]}`))
	for i := range 10_000 { // ten seconds
		w.vms[i%4].send("x-user", "ann")
		w.advance(time.Millisecond)
	}
	for range 5 {
		w.advance(time.Second)
	}
	if w.pushes > 13 {
		t.Errorf("%d pushes of one key by four workers in ten intervals", w.pushes)
	}
	for range 20 { // its lease goes back
		w.advance(time.Second)
	}
	before := w.pushes
	for range 20 {
		w.advance(time.Second)
	}
	if w.pushes != before {
		t.Errorf("%d pushes of a key that nobody hits", w.pushes-before)
	}
}
