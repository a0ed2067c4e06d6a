package filter_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/wire"
)

const flightRule = `{"rules": [{"name": "r", "key": [{"header": "x-key"}], "limits": [{"limit": 2, "algorithm": "in_flight", "hold": "5m"}]}]}`

// A place is given back when a response has ended, however it does, and when its stream is gone.
func TestPlacesGoBack(t *testing.T) {
	v := newProxy(t).start(flightRule)
	for name, end := range map[string]func(s *stream){
		"headers alone":             func(s *stream) { v.respond(s, true) },
		"a body":                    func(s *stream) { v.respond(s, false); v.bring(s, false, "a"); v.bring(s, true, "b") },
		"trailers":                  func(s *stream) { v.respond(s, false); v.bring(s, false, "a"); v.trail(s) },
		"an upgrade that is closed": func(s *stream) { v.respond(s, false, ":status", "101"); v.reset(s) },
		"an upstream that fails":    func(s *stream) { v.respond(s, true, ":status", "503") },
		"a client that has gone":    func(s *stream) { v.reset(s) },
	} {
		first, second := v.open("x-key", "ann"), v.open("x-key", "ann")
		must.EqualOrEnd(t, [3]bool{first != nil, second != nil, v.open("x-key", "ann") != nil}, [3]bool{true, true, false}, "%s: in flight are", name)
		want(t, v.reply.headers, `
			ratelimit-policy: "r";q=2;qu="concurrent-requests"
			ratelimit: "r";r=0;t=1
			x-ratelimit-limit: 2
			x-ratelimit-remaining: 0
			x-ratelimit-reset: 1
			retry-after: 1
			x-envoy-ratelimited: true
		`)
		end(first)
		if third := v.open("x-key", "ann"); third == nil || v.open("x-key", "ann") != nil {
			t.Errorf("%s: want its place for another request, and no more", name)
		} else {
			v.reset(third)
		}
		if !first.Holds() && !strings.Contains(name, "client") && !strings.Contains(name, "closed") {
			v.reset(first) // at its end, a place does not go back twice
		}
		v.reset(second)
		must.Equal(t, v.plugin.Holds(), false, "%s: somebody holds something", name)
	}
}

// Nobody has to wait for a place while there is one.
func TestPlacesLeft(t *testing.T) {
	v := newProxy(t).start(flightRule)
	for _, want := range []string{`"r";r=1;t=0`, `"r";r=0;t=1`} {
		v.respond(v.open("x-key", "ann"), false)
		must.Equal(t, v.response["ratelimit"], want, "ratelimit")
	}
}

// If the clock is set back, a place counts once all the same, and goes back as a whole.
func TestPlacesAfterTheClockWasSetBack(t *testing.T) {
	v := newProxy(t).start(flightRule)
	early, late := v.open("x-key", "ann"), v.open("x-key", "bob")
	v.now -= 40 * second
	v.reset(late)
	v.tick()
	for key, places := range map[string]int{"ann": 1, "bob": 2} {
		var held []*stream
		for s := v.open("x-key", key); s != nil; s = v.open("x-key", key) {
			held = append(held, s)
		}
		must.Equal(t, len(held), places, "%s: further requests in flight", key)
		for _, s := range held {
			v.reset(s)
		}
	}
	v.reset(early)
	must.Equal(t, v.plugin.Holds(), false, "somebody holds something")
}

// A place stays held for as long as its request lasts, up to hold, and a worker that has died gives back its
// own after half a minute.
func TestPlacesLast(t *testing.T) {
	p := newProxy(t)
	v, other := p.start(flightRule), p.start(flightRule)
	wait := func(seconds int, workers ...*fakeVM) {
		for range seconds {
			p.now += second
			for _, w := range workers {
				w.tick()
			}
		}
	}
	held, dead := v.open("x-key", "ann"), other.open("x-key", "ann")
	must.EqualOrEnd(t, held != nil && dead != nil, true, "two are in flight")
	wait(27, v)
	must.Equal(t, v.open("x-key", "ann") != nil, false, "a third is in flight, though nobody knows that the worker has died")
	wait(6, v)
	next := v.open("x-key", "ann")
	must.EqualOrEnd(t, next != nil, true, "the place of a worker that has died is free")
	v.reset(next)
	wait(240, v)
	must.Equal(t, [2]bool{v.open("x-key", "ann") != nil, v.open("x-key", "ann") != nil}, [2]bool{true, false}, "one place is free, and the other one")
	wait(60, v)
	must.Equal(t, v.open("x-key", "ann") != nil, true, "a place is free after hold")
	v.reset(held)
	must.Equal(t, held.Holds(), false, "a request that has gone is still among those that hold something")
	must.Equal(t, v.count("lost_places_total"), 1, "places were taken for lost")
}

// The process tells how many places its workers' requests hold, and for how long, and takes a
// worker for gone that says nothing any more.
func TestHeldPlacesAreTold(t *testing.T) {
	p := newProxy(t)
	v, other := p.start(flightRule), p.start(flightRule)
	want := func(places, seconds uint64) {
		t.Helper()
		for _, w := range []*fakeVM{v, other} {
			must.Equal(t, [2]uint64{w.count("held_places"), w.count("longest_held_seconds")}, [2]uint64{places, seconds}, "places that are held, and for how many seconds")
		}
	}
	pass := func(seconds int, vms ...*fakeVM) {
		for range seconds {
			p.now += second
			for range 2 { // the other worker may tell later
				for _, w := range vms {
					w.tick()
				}
				p.now++
			}
		}
	}
	pass(1, v, other)
	want(0, 0)
	first := v.open("x-key", "ann")
	pass(3, v, other)
	bob := other.open("x-key", "bob")
	third := other.open("x-key", "bob")
	pass(2, v, other)
	want(3, 5)
	v.reset(first)
	other.reset(bob)
	pass(2, v, other)
	want(1, 4)
	pass(20, v)
	must.Equal(t, v.count("held_places"), 0, "places are held by a worker that is gone")
	pass(2, v, other)
	want(1, 26)
	other.reset(third)
	pass(2, v, other)
	want(0, 0)
}

// Requests of a configuration that was replaced hold their places on.
func TestPlacesOutliveConfigurations(t *testing.T) {
	v := newProxy(t).start(flightRule)
	s := v.open("x-key", "ann")
	next, gone := v.replace(strings.Replace(flightRule, "5m", "6m", 1))
	must.Equal(t, gone, false, "the configuration is gone, and with it who renews the place")
	for range 60 {
		v.now += second
		v.tick()
		next.tick()
	}
	must.Equal(t, [2]bool{next.open("x-key", "ann") != nil, next.open("x-key", "ann") != nil}, [2]bool{true, false}, "one place is free, and the other one")
	v.reset(s)
	v.tick()
	must.Equal(t, next.open("x-key", "ann") != nil, true, "the place has come back")
}

// Beside other rules a request takes of all, or of none.
func TestPlacesBesideOtherRules(t *testing.T) {
	v := newProxy(t).start(`{"rules": [{"name": "f", "limits": [{"limit": 2, "algorithm": "in_flight"}]},
		{"name": "w", "limits": [{"limit": 3, "window": "1h", "algorithm": "fixed_window"}]},
		{"name": "s", "mode": "shadow", "limits": [{"limit": 1, "algorithm": "in_flight"}]}]}`)
	open := func(want string) *stream {
		t.Helper()
		s, got := v.open(), "passed"
		if s == nil {
			got = v.reply.details
		}
		must.EqualOrEnd(t, got, want, "")
		return s
	}
	first, second := open("passed"), open("passed")
	open("weir_rate_limited:f")
	v.reset(first)
	v.reset(second)
	third := open("passed")
	open("weir_rate_limited:w")
	v.reset(third)
	v.now += 3600 * 1e9
	a, b := open("passed"), open("passed") // the request that w has refused holds nothing
	v.reset(a)
	v.reset(b)
	v.tick()
	v.wantShadow("s", 3, 2)
}

// Random requests on workers of a process: a request passes if and only if there is room.
func TestPlacesModel(t *testing.T) {
	const limit = 7
	configuration := strings.Replace(flightRule, `"limit": 2`, `"limit": 7`, 1)
	p, random := newProxy(t), rand.New(rand.NewPCG(1, 2))
	workers := []*fakeVM{p.start(configuration), p.start(configuration), p.start(configuration)}
	type held struct {
		v     *fakeVM
		s     *stream
		since int64
	}
	var open [2][]held
	for step := range modelSteps() {
		key := random.IntN(2)
		switch choice := random.IntN(100); {
		case choice < 55:
			v := workers[random.IntN(len(workers))]
			s := v.open("x-key", []string{"ann", "bob"}[key])
			must.EqualOrEnd(t, s != nil, len(open[key]) < limit, "step %d: passed is %v with %d of %d in flight", step, s != nil, len(open[key]), limit)
			if s != nil {
				open[key] = append(open[key], held{v, s, p.now})
			}
		case choice < 96:
			if n := len(open[key]); n > 0 {
				i := random.IntN(n)
				h := open[key][i]
				if random.IntN(2) == 0 {
					h.v.respond(h.s, true)
				}
				h.v.reset(h.s)
				open[key][i] = open[key][n-1]
				open[key] = open[key][:n-1]
			}
		default:
			p.now += int64(random.IntN(2_000)) * 1e6
			for _, v := range workers {
				v.tick()
			}
			for k := range open { // those for which hold is over soon
				for i := len(open[k]) - 1; i >= 0; i-- {
					if h := open[k][i]; p.now-h.since > 280*second {
						h.v.reset(h.s)
						open[k] = append(open[k][:i], open[k][i+1:]...)
					}
				}
			}
		}
	}
}

// Faults on the way to the backend, and nodes that die, never let more through than the limit while nobody
// passes without the backend. Afterwards every place can be had.
func TestPlacesThroughFaults(t *testing.T) {
	const limit = 5
	for _, rate := range []string{"0", "0.5"} {
		for seed := range uint64(20) {
			w := newWorld(t, 4, 2, `{"backend": {"cluster": "weir"}, "on_backend_failure": "deny", "sync_rate": `+rate+`,
				"rules": [{"name": "all", "limits": [{"limit": 5, "algorithm": "in_flight"}]}]}`)
			w.random = rand.New(rand.NewPCG(seed, 77))
			faulty := true
			carry := func(v *fakeVM) {
				for _, c := range v.dispatched() {
					switch choice := w.random.IntN(20); {
					case !faulty || choice > 4:
						v.answer(c, 200, w.apply(c.body))
					case choice == 0: // the answer is lost
						w.apply(c.body)
						v.answer(c, 0, nil)
					case choice == 1: // it comes twice
						w.apply(c.body)
						v.answer(c, 200, w.apply(c.body))
					case choice == 2:
						v.answer(c, 503, nil)
					default:
						v.callouts = append(v.callouts, c) // it takes its time
					}
				}
			}
			type held struct {
				v *fakeVM
				s *stream
			}
			var open []held
			living := len(w.vms)
			end := func(i int) {
				h := open[i]
				if w.random.IntN(3) > 0 {
					h.v.respond(h.s, true)
				}
				h.v.reset(h.s)
				open[i] = open[len(open)-1]
				open = open[:len(open)-1]
			}
			for step := range 2_000 {
				switch choice := w.random.IntN(100); {
				case choice < 50:
					v := w.vms[w.random.IntN(living)]
					s := v.open()
					if s == nil && v.reply == nil {
						s, v.resumed = v.last, false
						for rounds := 0; !v.resumed && v.reply == nil && rounds < 10; rounds++ {
							carry(v)
						}
						if !v.resumed {
							v.reset(s) // its client is tired of waiting, or it was refused
							s = nil
						}
					}
					if s == nil {
						break
					}
					if open = append(open, held{v, s}); len(open) > limit {
						t.Fatalf("sync_rate %s, seed %d, step %d: %d are in flight of %d", rate, seed, step, len(open), limit)
					}
				case choice < 85:
					if len(open) > 0 {
						end(w.random.IntN(len(open)))
					}
				case choice == 85 && step > 1_000 && living > 4: // a node dies, with what its workers hold
					living -= 2
					w.pass(0)
					for i := len(open) - 1; i >= 0; i-- {
						if open[i].v == w.vms[living] || open[i].v == w.vms[living+1] {
							open[i] = open[len(open)-1]
							open = open[:len(open)-1]
						}
					}
				default:
					w.pass(time.Duration(w.random.IntN(200)) * time.Millisecond)
					for _, v := range w.vms[:living] {
						v.tick()
						carry(v)
					}
				}
			}
			faulty = false
			w.vms = w.vms[:living]
			for len(open) > 0 {
				end(0)
			}
			often(200, w.advance, 500*time.Millisecond)
			for range limit {
				v := w.any()
				if s := v.open(); s == nil && v.reply == nil {
					for rounds := 0; !v.resumed && v.reply == nil && rounds < 100; rounds++ {
						carry(v)
					}
				}
				must.EqualOrEnd(t, v.reply == nil, true, "sync_rate %s, seed %d: no place is lost", rate, seed)
			}
		}
	}
}

// A request that passes though the backend can't be asked holds nothing, and the metrics tell of nothing that
// it holds. Nor do they of a place that was taken for lost, though its request goes on.
func TestNothingIsHeld(t *testing.T) {
	w := newWorld(t, 1, 1, `{"backend": {"cluster": "weir"}, "on_backend_failure": "allow", "sync_rate": 0,
		"rules": [{"name": "r", "limits": [{"limit": 2, "algorithm": "in_flight"}]}]}`)
	v := w.vms[0]
	w.away = true
	for range 5 {
		s := v.open()
		for rounds := 0; s == nil && v.reply == nil && rounds < 100; rounds++ {
			if w.advance(100 * time.Millisecond); v.resumed {
				s = v.last
			}
		}
		must.EqualOrEnd(t, s != nil, true, "a request passes, as the backend is away")
		v.finish(s)
	}
	w.advance(2 * time.Second)
	w.advance(2 * time.Second)
	must.Equal(t, v.count("held_places"), 0, "places are held by nobody")

	p := newProxy(t)
	v = p.start(flightRule)
	s := v.open("x-key", "ann")
	for range 400 {
		p.now += second
		v.tick()
	}
	must.Equal(t, [3]uint64{v.count("lost_places_total"), v.count("held_places"), v.count("longest_held_seconds")}, [3]uint64{1, 0, 0}, "lost, held, and for how long")
	v.reset(s)
}

// While an override is there, nodes lease places. Requests of that time end after it is gone, and so does a
// request that began before. Their places are free soon, and not only when they would be taken for lost.
func TestPlacesOfAnOverrideThatIsGone(t *testing.T) {
	w := newWorld(t, 2, 1, synced("0.5", `{"name": "all", "limits": [{"limit": 5, "algorithm": "in_flight"}]}`))
	v := w.vms[0]
	open := func() *stream {
		t.Helper()
		for s := v.pause(); s != nil && v.ended[s.ID()] == 0; {
			w.advance(time.Millisecond)
		}
		must.EqualOrEnd(t, v.reply == nil, true, "it passes")
		return v.last
	}
	before := open()
	w.override(wire.Override{Rule: "all", Limits: []wire.OverrideLimit{{Max: 300, WidthMillis: 32_000}}})
	var during []*stream
	for range 10 {
		during = append(during, open())
	}
	w.override()
	for _, s := range append(during, before) {
		v.finish(s)
	}
	often(20, w.advance, 250*time.Millisecond)
	w.wantSum(0, "when nobody holds a place")
}
