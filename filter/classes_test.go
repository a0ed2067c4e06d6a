package filter_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir/internal/model"
	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/proxywasm"
	"weir/internal/wire"
	"weir/window"
)

// classed is a rule whose requests are of classes.
func classed(limits, rest string) string {
	return `{"name": "user", "key": [{"header": "x-user"}], "limits": [` + limits + `],
		"classes": {"by": {"header": "x-class"}, "of": {"interactive": {"guaranteed": 0.6}, "batch": {"guaranteed": 0.1, "most": 0.3}, "rest": {"most": 0.2}}}` + rest + `}`
}

const ofHour = `{"limit": 100, "window": "1h", "algorithm": "fixed_window"}`

// Each class has its part of a limit and borrows what no class has, but at most as much as it may.
// Requests of no class have that alone.
func TestClasses(t *testing.T) {
	for _, rate := range []string{"-1", "1", "0"} {
		t.Run(rate, func(t *testing.T) {
			w := joined(t, 2, 2, synced(rate, classed(ofHour, "")+`, {"name": "far", "sync_rate": 1, "limits": [{"limit": 1000000, "window": "1h"}]}`))
			passed := func(n int, class string) (passed int) {
				for range n {
					v := w.vms[0]
					if rate != "-1" {
						v = w.any()
					}
					if v.send("x-user", "ann", "x-class", class) {
						passed++
					}
					w.advance(10 * time.Millisecond)
				}
				return passed
			}
			for _, step := range []struct {
				class      string
				sent, want int
			}{{"batch", 200, 30}, {"other", 5, 5}, {"", 50, 5}, {"interactive", 200, 60}, {"batch", 5, 0}} {
				must.Equal(t, passed(step.sent, step.class), step.want, "of class %q passed", step.class)
			}
			if rate != "-1" {
				w.quiet()
				w.wantSum(100+20+100, "what has passed, what batch has of the pool, and the other rule")
			}
		})
	}
}

// Clients are told what their class may still have.
func TestHeadersOfClasses(t *testing.T) {
	v := newProxy(t).start(`{"rules": [` + classed(ofHour, "") + `]}`)
	for _, step := range []struct{ class, want string }{
		{"interactive", `ratelimit-policy: "user";q=90;w=3600
			ratelimit: "user";r=89;t=3600
			x-ratelimit-limit: 90`},
		{"batch", `ratelimit-policy: "user";q=30;w=3600
			x-ratelimit-remaining: 29`},
		{"", `ratelimit-policy: "user";q=30;w=3600
			ratelimit: "user";r=29;t=3600`},
	} {
		v.send("x-user", "ann", "x-class", step.class)
		want(t, v.response, step.want)
	}
	for range 28 {
		v.send("x-user", "ann", "x-class", "batch")
	}
	v.send("x-user", "ann", "x-class", "batch")
	want(t, v.response, `x-ratelimit-remaining: 0`)
	must.Equal(t, v.send("x-user", "ann", "x-class", "batch"), false, "passed")
	want(t, v.reply.headers, `retry-after: 3600`)
	for range 20 {
		v.send("x-user", "bob", "x-class", "rest")
	}
	must.Equal(t, v.send("x-user", "bob", "x-class", "rest"), false, "passed without a guaranteed part")
	want(t, v.reply.headers, `x-ratelimit-limit: 20
		retry-after: 3600`)
	v.send("x-user", "ann", "x-class", "interactive")
	want(t, v.response, fmt.Sprintf("x-ratelimit-remaining: %d", 58+9))
}

// The override of a key is divided as the limit that it replaces.
func TestOverridesOfClasses(t *testing.T) {
	w := joined(t, 1, 1, synced("1", classed(ofHour, `, "overrides": {"keys": [{"key": ["bob"], "limits": [{"limit": 200, "window": "1h", "algorithm": "fixed_window"}]}]}`)))
	limitOf := func(user, class string) string {
		w.vms[0].send("x-user", user, "x-class", class)
		return w.vms[0].response["x-ratelimit-limit"]
	}
	hour := func(hits uint64) []wire.OverrideLimit {
		return []wire.OverrideLimit{{Max: hits, WidthMillis: 3_600_000}}
	}
	check := func(when, ann, bob, cleo string) {
		t.Helper()
		must.Equal(t, [3]string{limitOf("ann", "interactive"), limitOf("bob", "batch"), limitOf("cleo", "")}, [3]string{ann, bob, cleo}, "%s: the limits of ann, bob and cleo", when)
	}
	check("configured", "90", "60", "30")
	w.override(wire.Override{Rule: "user", Values: []string{"ann", ""}, Limits: hour(1000)})
	check("of a key", "900", "60", "30")
	w.override(wire.Override{Rule: "user", Mode: wire.Configured, Limits: hour(500)})
	check("of the rule", "450", "150", "150")
	w.override(wire.Override{Rule: "user", Values: []string{"ann", "interactive"}, Limits: hour(1000)})
	check("of a class", "90", "60", "30")
	applied, unfit := w.vms[0].plugin.Node().Overrides()
	must.Equal(t, [2]int{applied, unfit}, [2]int{0, 1}, "applied, and unfit")
	w.override()
	check("none", "90", "60", "30")
}

// divided is what a rule with classes is by its definition: models of each limit and of its parts.
type divided struct {
	whole, pool []*model.Counter
	own, most   [3][]*model.Counter // by class: its part, and what it may have of the pool
}

// part is a counter of a part of a limit. A bucket has one only with both a rate and a burst.
func part(of model.Limit, hits, burst uint64) *model.Counter {
	if of.Max = hits; of.Algorithm == model.TokenBucket {
		if of.Burst = burst; hits == 0 || burst == 0 {
			of.Max, of.Burst = 0, 1
		}
	}
	return &model.Counter{Limit: of}
}

func fit(counters []*model.Counter, at int64, cost uint64) bool {
	for _, c := range counters {
		if !c.Fits(at, cost) {
			return false
		}
	}
	return true
}

func take(counters []*model.Counter, at int64, cost uint64) {
	for _, c := range counters {
		c.Take(at, cost)
	}
}

// A request passes if and only if its class's part has room for it, or the pool and what the class may
// have of it. So no class is refused below its part, and nothing passes above the limit: of any algorithm,
// at any time and at any cost. Where the backend decides each request, this is so on all proxies together.
// With leases the limit holds, too, while the backend comes and goes.
func TestClassesAgainstModel(t *testing.T) {
	const requests = 300
	outcomes := map[string]int{}
	for number := range nightly.Or(2000, 80) {
		random := rand.New(rand.NewPCG(uint64(number), 55))
		rate := pick(random, "-1", "-1", "0", "1")
		var limits []string
		var d divided
		guaranteed := [3]uint64{random.Uint64N(600), random.Uint64N(300), random.Uint64N(100)}
		var mosts [3]uint64
		classes := ""
		for i := range guaranteed {
			mosts[i] = pick(random, 1000, guaranteed[i]+1+random.Uint64N(1000-guaranteed[i]))
			share := fmt.Sprintf(`"most": %v`, float64(mosts[i])/1000)
			if guaranteed[i] > 0 {
				share += fmt.Sprintf(`, "guaranteed": %v`, float64(guaranteed[i])/1000)
			}
			classes += fmt.Sprintf(`, "c%d": {%s}`, i, share)
		}
		for i := range 1 + random.IntN(2) {
			hits, width := 1+random.Uint64N(200), minute*int64(1+i)
			text := fmt.Sprintf(`{"limit": %d, "window": "%dm", "algorithm": `, hits, 1+i)
			all := model.Limit{Algorithm: model.FixedWindow, Max: hits, Window: width}
			switch n := random.IntN(4); {
			case n == 0 || rate == "1":
				text += `"fixed_window"}`
			case n == 1:
				text += `"sliding_window"}`
				all.Algorithm = model.SlidingWindow
			case n == 2:
				text += `"sliding_log"}`
				all.Algorithm, all.Precision = model.SubBuckets, window.LogPrecision
			default:
				all.Algorithm, all.Burst = model.TokenBucket, 1+random.Uint64N(100)
				text += fmt.Sprintf(`"token_bucket", "burst": %d}`, all.Burst)
			}
			limits = append(limits, text)
			d.whole = append(d.whole, part(all, all.Max, all.Burst))
		}
		for c := range guaranteed { // a class has its part of all limits, or of none
			for _, w := range d.whole {
				if part(w.Limit, w.Max*guaranteed[c]/1000, w.Burst*guaranteed[c]/1000).Max == 0 {
					guaranteed[c] = 0
				}
			}
		}
		for i, w := range d.whole {
			left, leftBurst := w.Max, w.Burst
			for c := range guaranteed {
				own := part(w.Limit, w.Max*guaranteed[c]/1000, w.Burst*guaranteed[c]/1000)
				d.own[c] = append(d.own[c], own)
				if own.Max > 0 {
					left, leftBurst = left-own.Max, leftBurst-own.Burst
				}
			}
			d.pool = append(d.pool, part(w.Limit, left, leftBurst))
			for c := range mosts {
				most, burst := w.Max*mosts[c]/1000, w.Burst*mosts[c]/1000
				if own := d.own[c][i]; own.Max > 0 {
					most, burst = most-own.Max, burst-min(burst, own.Burst)
				}
				d.most[c] = append(d.most[c], part(w.Limit, min(most, left), min(burst, leftBurst)))
			}
		}
		configuration := synced(rate, `{"name": "r", "cost": {"header": "x-cost", "least": 0}, "limits": [`+strings.Join(limits, ", ")+`], "classes": {"by": {"header": "x-class"}, "of": {`+classes[2:]+`}}}`)
		switch rate {
		case "-1":
			configuration = local(configuration)
		case "1":
			configuration = `{"on_backend_failure": "deny", ` + configuration[1:]
		}
		nodes := 2
		if rate == "-1" {
			nodes = 1
		}
		w := newWorld(t, nodes, 2, configuration)
		for range requests {
			class, cost := random.IntN(5), uint64(1)
			if random.IntN(4) == 0 {
				cost = random.Uint64N(30)
			}
			passed := w.any().send("x-class", fmt.Sprint("c", class), "x-cost", fmt.Sprint(cost))
			own := class < 3 && fit(d.own[class], w.now, cost)
			lent := fit(d.pool, w.now, cost) && (class > 2 || fit(d.most[class], w.now, cost))
			if want := own || lent; passed != want && rate != "1" || passed && !fit(d.whole, w.now, cost) {
				t.Fatalf("world %d: class %d, cost %d: passed is %v, want %v\n%s", number, class, cost, passed, want, configuration)
			}
			outcomes[fmt.Sprintf("rate %s: own part %v, pool %v, passed %v", rate, own, lent, passed)]++
			if passed {
				take(d.whole, w.now, cost)
				if own {
					take(d.own[class], w.now, cost)
				} else if take(d.pool, w.now, cost); class < 3 {
					take(d.most[class], w.now, cost)
				}
			}
			w.away = rate == "1" && random.IntN(50) < 5 || w.away && random.IntN(4) > 0
			if step := random.Int64N(second); rate == "-1" {
				w.pass(time.Duration(step))
			} else {
				w.advance(time.Duration(step))
			}
		}
	}
	wantOutcomes(t, outcomes, []string{"-1", "0", "1"}, "own part true, pool true, passed true", "own part true, pool false, passed true", "own part false, pool true, passed true", "own part false, pool false, passed false")
}

// wantOutcomes wants a model to have seen each outcome at each rate often enough.
func wantOutcomes(t *testing.T, outcomes map[string]int, rates []string, each ...string) {
	t.Helper()
	t.Log(outcomes)
	for _, rate := range rates {
		for _, outcome := range each {
			must.AtLeast(t, outcomes["rate "+rate+": "+outcome], 50, "rate %s: %s: times", rate, outcome)
		}
	}
}

// used is what the first rule's counter of a key has, as the proxy knows it.
func (v *fakeVM) used(values ...string) uint64 {
	defer proxywasm.Use(v)()
	d := v.plugin.Named(0, values...)
	v.plugin.Node().Look(&d, v.plugin.Node().Time(v.now))
	return d.Rule.Limits[0].Used(&d.Counter.States[0])
}

// spend brings a request that reserves and costs so many hits, and wants what is counted in the end.
func (w *world) spend(v *fakeVM, what string, reserved, cost int, counted func() any, want any, headers ...string) {
	w.t.Helper()
	s := v.opened(append(headers, "x-reserve", fmt.Sprint(reserved))...)
	must.EqualOrEnd(w.t, s != nil, true, "%s: %q passes", what, headers)
	often(4, w.advance, 20*time.Millisecond) // a shadow rule hears of the backend meanwhile, within its timeout
	v.answers(s, fmt.Sprintf(`{"usage":{"total_tokens":%d}}`, cost))
	for round := 0; fmt.Sprint(counted()) != fmt.Sprint(want); round++ {
		if w.advance(100 * time.Millisecond); round == 50 {
			w.t.Fatalf("%s: %q has reserved %d and cost %d: got %v, want %v", what, headers, reserved, cost, counted(), want)
		}
	}
}

// What a response costs is put right where the request has taken it, and goes back there.
func TestChargesOfClasses(t *testing.T) {
	for _, mode := range []string{"enforce", "shadow"} {
		for _, rate := range []string{"-1", "1", "0"} {
			w := joined(t, 1, 1, synced(rate, classed(`{"limit": 1000, "window": "1h", "algorithm": "fixed_window"}`, `,
				"mode": "`+mode+`", "reserve": {"header": "x-reserve"}, "cost_on_response": "openai"`)+`, {"name": "far", "sync_rate": 1, "limits": [{"limit": 1000000, "window": "1h"}]}`))
			v := w.vms[0]
			counters := func() (told [4]uint64) { // of interactive, batch, what batch has of the pool, and the pool
				for i, value := range []string{"interactive", "batch", "batch+", ""} {
					told[i] = v.used("ann", value)
				}
				return told
			}
			spend := func(class string, reserved, cost int, want [4]uint64) {
				t.Helper()
				w.spend(v, mode+", rate "+rate, reserved, cost, func() any { return counters() }, want, "x-user", "ann", "x-class", class)
			}
			spend("interactive", 500, 70, [4]uint64{70, 0, 0, 0})
			spend("batch", 100, 95, [4]uint64{70, 95, 0, 0})
			spend("batch", 50, 20, [4]uint64{70, 95, 20, 20}) // 5 of its own are not enough
			spend("", 50, 60, [4]uint64{70, 95, 20, 80})
			spend("interactive", 530, 1, [4]uint64{71, 95, 20, 80})
		}
	}
}

// Workers that take from the same parts at the same time keep both promises: a request that loses the race
// for the last hit of its class's part is decided by the pool, and takes from nothing else.
func TestRacesOfClasses(t *testing.T) {
	p := newProxy(t)
	random := rand.New(rand.NewPCG(55, 3))
	mine, other := p.start(`{"rules": [`+classed(ofHour, "")+`]}`), p.start(`{"rules": [`+classed(ofHour, "")+`]}`)
	lost := 0
	for hour := range 100 {
		passed := map[string]int{}
		send := func(v *fakeVM, class string) {
			if v.send("x-user", "ann", "x-class", class) {
				passed[class]++
			} else if own := map[string]int{"interactive": 60, "batch": 10}[class]; passed[class] < own {
				t.Fatalf("hour %d: %s is refused with %v", hour, class, passed)
			}
		}
		nested := false
		p.before = func(v *fakeVM, op string) {
			if v != mine || op != "set" || nested || random.IntN(2) == 0 {
				return
			}
			nested = true
			key := string(p.setting)
			for range 1 + random.IntN(3) {
				send(other, pick(random, "interactive", "batch", ""))
			}
			p.setting = append(p.setting[:0], key...)
			nested = false
			lost++
		}
		for range 250 {
			send(mine, pick(random, "interactive", "interactive", "batch", ""))
		}
		if all := passed["interactive"] + passed["batch"] + passed[""]; all != 100 || passed["batch"] > 30 {
			t.Fatalf("hour %d: %v passed", hour, passed)
		}
		must.EqualOrEnd(t, mine.used("ann", "interactive")+mine.used("ann", "batch")+mine.used("ann", ""), uint64(passed["interactive"]+passed["batch"]+passed[""]), "hour %d: hits are counted of %v", hour, passed)
		p.now += 3600 * second
	}
	must.AtLeast(t, lost, 1000, "races")
}
