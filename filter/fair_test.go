package filter_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/model"
	"weir/internal/must"
	"weir/internal/named"
	"weir/internal/nightly"
	"weir/internal/wire"
	"weir/window"
)

// fair is a rule whose teams share evenly, by their users, what a class of theirs has.
func fair(limit, rest string) string {
	return `{"name": "team", "key": [{"header": "x-team"}, {"header": "x-user"}], "limits": [` + limit + `],
		"classes": {"by": {"header": "x-class"}, "of": {"interactive": {"guaranteed": 0.6}, "batch": {"guaranteed": 0.1, "most": 0.3}}, "fair": true}` + rest + `}`
}

// Who asks alone has all that its class has. While others ask, nobody gets more than an even part, and
// the next window begins with the parts of those who asked in the last one.
func TestFairShares(t *testing.T) {
	for _, rate := range []string{"-1", "0", "1"} {
		t.Run(rate, func(t *testing.T) {
			w := joined(t, 1, 2, synced(rate, fair(`{"limit": 1000, "window": "1h", "algorithm": "fixed_window"}`, "")+`, {"name": "far", "sync_rate": 1, "limits": [{"limit": 1000000, "window": "1h"}]}`))
			passed := map[string]int{}
			ask := func(n int, users ...string) {
				for range n {
					for _, user := range users {
						if w.any().send("x-team", "red", "x-user", user, "x-class", "interactive") {
							passed[user]++
						}
						w.advance(time.Millisecond)
					}
				}
			}
			check := func(when string, want map[string]int) {
				t.Helper()
				must.Equal(t, fmt.Sprint(passed), fmt.Sprint(want), "%s: passed", when)
				clear(passed)
				w.advance(time.Hour)
			}
			ask(2000, "ann")
			check("ann alone", map[string]int{"ann": 900})
			ask(2000, "ann")
			for range 200 {
				ask(1, "bob")
			}
			check("bob comes after ann has had all", map[string]int{"ann": 900})
			ask(2000, "ann")
			ask(2000, "bob")
			check("both", map[string]int{"ann": 450, "bob": 450})
			for range 200 {
				ask(10, "ann")
				ask(1, "bob", "cleo")
			}
			check("cleo comes, and two ask little", map[string]int{"ann": 300, "bob": 200, "cleo": 200})
			w.advance(2 * time.Hour)
			ask(2000, "bob")
			check("bob alone", map[string]int{"bob": 900})
			w.vms[1].tick()
			must.Equal(t, w.vms[0].count("weir_rule=.=team;.;uneven_requests_total"), 1550+1700, "refusals for the even part")
		})
	}
}

// Other limits are for all that share them: those of a key with an empty value in the last place, which
// proxies tell is none of a request's.
func TestFairOverrides(t *testing.T) {
	v := newProxy(t).start(`{"rules": [` + fair(`{"limit": 100, "window": "1h", "algorithm": "fixed_window"}`,
		`, "overrides": {"keys": [{"key": ["red", ""], "limits": [{"limit": 10, "window": "1h", "algorithm": "fixed_window"}]}]}`) + `]}`)
	for team, want := range map[string]int{"red": 9, "blue": 90} {
		must.Equal(t, v.passed(200, "x-team", team, "x-user", "ann", "x-class", "interactive"), want, "passed of %s", team)
	}
	must.Equal(t, v.plugin.Varies(0), wire.Varies|wire.Fair|wire.Classes, "what people are told")
}

// A reset gives room to the class, and so to those who have not had their even part. Who has had it waits.
func TestFairReset(t *testing.T) {
	w := joined(t, 1, 1, synced("0", fair(`{"limit": 100, "window": "1h", "algorithm": "fixed_window"}`, "")))
	ask := func(n int, user string) (passed int) {
		for range n {
			if w.any().send("x-team", "red", "x-user", user, "x-class", "interactive") {
				passed++
			}
			w.advance(time.Millisecond)
		}
		return passed
	}
	must.Equal(t, ask(200, "ann"), 90, "passed of ann, who asks alone")
	must.Equal(t, ask(1, "bob"), 0, "passed of bob")
	b := backend.New(w.store)
	b.Now = func() time.Time { return time.Unix(0, w.now) }
	values := []string{"red", "", "interactive"}
	returned, _, err := b.By(nil).ChangeCounter(t.Context(), "default", &backend.Change{ID: named.Plain("team", values), Rule: "team", Values: values})
	must.OK(t, err)
	must.Equal(t, returned, 60, "hits of the class's own part")
	w.advance(20 * time.Second)
	must.Equal(t, ask(100, "ann"), 0, "passed of ann after the reset")
	must.Equal(t, ask(100, "bob"), 30, "passed of bob after it: his even part of what is guaranteed")
	w.advance(time.Hour)
	must.Equal(t, ask(100, "ann"), 45, "passed of ann in the next window")
}

// even is an even part of some hits, as the documents define it.
func even(hits uint64, keys int) uint64 { return max(hits/uint64(max(keys, 1)), min(hits, 1)) }

// A model of keys that share a class evenly: a request passes if and only if its key's use stays within
// the even part of what the class may have, and there is room in the class's own part, of which the key
// has at most an even part too, or in the pool.
func TestFairSharesAgainstModel(t *testing.T) {
	outcomes := map[string]int{}
	for number := range nightly.Or(2000, 40) {
		random := rand.New(rand.NewPCG(uint64(number), 551))
		hits := 1 + random.Uint64N(300)
		all := model.Limit{Algorithm: model.FixedWindow, Max: hits, Window: minute}
		text := "fixed_window"
		switch random.IntN(3) {
		case 0:
			text, all.Algorithm = "sliding_window", model.SlidingWindow
		case 1:
			text, all.Algorithm, all.Precision = "sliding_log", model.SubBuckets, window.LogPrecision
		}
		rate := pick(random, "-1", "0")
		configuration := synced(rate, fair(fmt.Sprintf(`{"limit": %d, "window": "1m", "algorithm": "%s"}`, hits, text), `, "cost": {"header": "x-cost", "least": 0}`))
		if rate == "-1" {
			configuration = local(configuration)
		}
		w := newWorld(t, 1, 2, configuration)
		// What each class has, and what its keys have had.
		owns := map[string]uint64{"interactive": hits * 600 / 1000, "batch": hits * 100 / 1000}
		pooled := hits - owns["interactive"] - owns["batch"]
		borrows := map[string]uint64{"interactive": pooled, "batch": min(pooled, hits*300/1000-owns["batch"]), "": pooled}
		own, bound, pool := map[string]*model.Counter{}, map[string]*model.Counter{}, part(all, pooled, 0)
		whole := part(all, hits, 0)
		for class := range borrows {
			own[class], bound[class] = part(all, owns[class], 0), part(all, borrows[class], 0)
		}
		if owns["batch"] == 0 {
			continue // it has no whole hit
		}
		seats := map[string]*model.Counter{}
		asked := map[string]map[string]int64{} // by class and user, in which windows
		for range 400 {
			class, user, cost := pick(random, "interactive", "interactive", "batch", ""), pick(random, "ann", "ann", "ann", "bob", "cleo", "dan", "eve"), uint64(1)
			if random.IntN(3) == 0 {
				cost = random.Uint64N(12)
			}
			seat, at := seats[class+user], w.now/minute
			if seat == nil {
				seat = part(all, 0, 0)
				seats[class+user] = seat
			}
			of := asked[class]
			if of == nil {
				of = map[string]int64{}
				asked[class] = of
			}
			if cost > 0 {
				of[user] = at
			}
			keys := 0
			for _, last := range of {
				if last >= at-1 {
					keys++
				}
			}
			within := func(most uint64) bool {
				seat.Max = most
				return seat.Fits(w.now, cost)
			}
			seated := within(even(owns[class]+borrows[class], keys))
			mine := cost == 0 || within(even(owns[class], keys))
			fromOwn := class != "" && mine && own[class].Fits(w.now, cost)
			fromPool := pool.Fits(w.now, cost) && bound[class].Fits(w.now, cost)
			want := seated && (fromOwn || fromPool)
			passed := w.any().send("x-team", "red", "x-user", user, "x-class", class, "x-cost", fmt.Sprint(cost))
			if passed != want || passed && !whole.Fits(w.now, cost) {
				t.Fatalf("world %d, %s of class %q, cost %d, %d keys: passed is %v; seat %v, own part %v, pool %v\n%s", number, user, class, cost, keys, passed, seated, fromOwn, fromPool, configuration)
			}
			outcomes[fmt.Sprintf("rate %s: seat %v, own part %v, pool %v", rate, seated, fromOwn, fromPool)]++
			if passed {
				seat.Take(w.now, cost)
				whole.Take(w.now, cost)
				if fromOwn {
					own[class].Take(w.now, cost)
				} else {
					pool.Take(w.now, cost)
					bound[class].Take(w.now, cost)
				}
			}
			if step := time.Duration(random.Int64N(second)); rate == "-1" {
				w.pass(step)
			} else {
				w.advance(step)
			}
		}
	}
	wantOutcomes(t, outcomes, []string{"-1", "0"}, "seat true, own part true, pool true", "seat true, own part false, pool true", "seat false, own part false, pool true", "seat true, own part false, pool false")
}

// Keys share evenly over all proxies, with leases, too: a user who floods all of them has no more than the
// others, who have their parts by far fewer requests.
func TestFairSharesOfManyProxies(t *testing.T) {
	for _, rate := range []string{"0", "0.2"} {
		w := newWorld(t, 3, 2, synced(rate, fair(`{"limit": 3000, "window": "1d", "algorithm": "fixed_window"}`, "")))
		users := []string{"ann", "bob", "cleo", "dan"}
		for day := range 3 {
			passed := map[string]int{}
			for i := range 800 {
				for range 10 {
					if w.any().send("x-team", "red", "x-user", "eve", "x-class", "interactive") {
						passed["eve"]++
					}
				}
				user := users[i%len(users)]
				for _, v := range []*fakeVM{w.vms[0], w.vms[3], w.vms[5]} {
					if v.send("x-team", "red", "x-user", user, "x-class", "interactive") {
						passed[user]++
					}
				}
				w.advance(50 * time.Millisecond)
			}
			const part = 2700 / 5
			sum := passed["eve"]
			for _, user := range users {
				sum += passed[user]
				if day > 0 && passed[user] < part-10 {
					t.Errorf("rate %s, day %d: %s has %d of %d", rate, day, user, passed[user], part)
				}
			}
			if sum > 2700 || day > 0 && passed["eve"] > part {
				t.Errorf("rate %s, day %d: %v passed, in all %d", rate, day, passed, sum)
			}
			t.Log(rate, day, passed)
			w.pass(24*time.Hour - 40*time.Second)
		}
	}
}

// What a response costs is put right in its key's seat, too, wherever its class has taken it.
func TestChargesOfFairShares(t *testing.T) {
	for _, mode := range []string{"enforce", "shadow"} {
		w := joined(t, 1, 1, synced("1", fair(`{"limit": 1000, "window": "1h", "algorithm": "fixed_window"}`, `,
			"mode": "`+mode+`", "reserve": {"header": "x-reserve"}, "cost_on_response": "openai"`)))
		v := w.vms[0]
		spend := func(user, class string, reserved, cost int, want ...uint64) {
			t.Helper()
			w.spend(v, mode, reserved, cost, func() any { // of the user, of the class's own part, and of the pool
				return []uint64{v.used("red", user, class+"="), v.used("red", "", class), v.used("red", "", "")}
			}, want, "x-team", "red", "x-user", user, "x-class", class)
		}
		spend("ann", "interactive", 500, 70, 70, 70, 0)
		spend("bob", "interactive", 200, 100, 100, 170, 0)
		spend("ann", "interactive", 300, 240, 310, 170, 240) // more than half of the class's own part
		spend("bob", "interactive", 100, 160, 260, 330, 240)
		spend("bob", "", 50, 60, 60, 300, 300)
	}
}

// Random worlds of greedy and modest keys that come and go, with costs that are settled, on some proxies:
//
//   - nothing passes above the limit, nor above what a class may have;
//   - no key has more at a proxy than an even part, divided by the keys that have asked there;
//   - in a window in which no key comes, no request is refused that its key's even part of what its class is
//     guaranteed has room for.
func TestFairWorlds(t *testing.T) {
	outcomes := map[string]int{}
	for number := range nightly.Or(600, 16) {
		random := rand.New(rand.NewPCG(uint64(number), 552))
		rate, nodes := []string{"-1", "0", "0.2"}[number%3], 1+random.IntN(3)
		hits := 100 + random.Uint64N(2000)
		configuration := synced(rate, fair(fmt.Sprintf(`{"limit": %d, "window": "1m", "algorithm": "fixed_window"}`, hits), `, "reserve": {"header": "x-reserve"}, "cost_on_response": "openai"`))
		if rate == "-1" {
			configuration, nodes = local(configuration), 1
		}
		w := joined(t, nodes, 2, configuration)
		most := map[string]uint64{"interactive": hits * 600 / 1000, "batch": hits * 100 / 1000}
		reach := map[string]uint64{"interactive": most["interactive"] + hits - most["interactive"] - most["batch"], "batch": hits * 300 / 1000}
		type key struct {
			node        int
			class, user string
		}
		asked, had := [2]map[key]bool{{}, {}}, map[key]uint64{} // in the last window and in this one, and the hits of this one
		comes := map[string]bool{}
		users := []string{"ann", "bob", "cleo", "dan", "eve", "fay"}
		window := w.now / minute
		for range 800 {
			if random.IntN(300) == 0 {
				users = users[1+random.IntN(2):]
				users = append(users, fmt.Sprint("user", random.IntN(1000)))
			}
			if len(users) < 3 {
				users = append(users, fmt.Sprint("user", random.IntN(1000)), "ann")
			}
			if at := w.now / minute; at != window {
				if at > window+1 {
					asked[1] = map[key]bool{}
				}
				asked, had, window = [2]map[key]bool{asked[1], {}}, map[key]uint64{}, at
				clear(comes)
			}
			user := users[0] // the greedy one
			if random.IntN(3) == 0 {
				user = pick(random, users...)
			}
			at := random.IntN(len(w.vms))
			v, k := w.vms[at], key{at / 2, pick(random, "interactive", "interactive", "batch"), user}
			asked[1][k] = true
			comes[k.class] = comes[k.class] || !asked[0][k]
			here, all := 0, 0
			for before, window := range asked {
				for other := range window {
					if other.class != k.class || before == 0 && asked[1][other] {
						continue
					}
					if all++; other.node == k.node {
						here++
					}
				}
			}
			reserved := 1 + random.Uint64N(hits/30)
			v.reply = nil
			s := v.opened("x-team", "red", "x-user", user, "x-class", k.class, "x-reserve", fmt.Sprint(reserved))
			if s == nil {
				outcomes[fmt.Sprintf("rate %s: refused, come %v", rate, comes[k.class])]++
				if part := even(most[k.class], all); rate != "0.2" && !comes[k.class] && had[k]+reserved <= part {
					t.Fatalf("world %d: %v has %d and is refused %d, of a part of %d\n%s", number, k, had[k], reserved, part, configuration)
				}
			} else {
				outcomes[fmt.Sprintf("rate %s: passed", rate)]++
				if part := even(reach[k.class], here); had[k]+reserved > part {
					t.Fatalf("world %d: %v has %d and gets %d, of a part of %d\n%s", number, k, had[k], reserved, part, configuration)
				}
				cost := random.Uint64N(reserved + 1)
				v.answers(s, fmt.Sprintf(`{"usage":{"total_tokens":%d}}`, cost))
				had[k] += cost
				sum := uint64(0)
				ofClass := uint64(0)
				for of, hits := range had {
					if sum += hits; of.class == k.class {
						ofClass += hits
					}
				}
				if sum > hits || ofClass > reach[k.class] {
					t.Fatalf("world %d: %d hits of %d, and %d of the class's %d", number, sum, hits, ofClass, reach[k.class])
				}
			}
			step := time.Duration(random.Int64N(second * 2 / 3))
			if random.IntN(200) == 0 {
				step = time.Duration(random.Int64N(3 * minute))
			}
			if rate == "-1" {
				w.pass(step)
			} else {
				for ; step > time.Second; step -= time.Second {
					w.advance(time.Second)
				}
				w.advance(step)
			}
		}
	}
	wantOutcomes(t, outcomes, []string{"-1", "0", "0.2"}, "passed", "refused, come true", "refused, come false")
}

// Whoever invents keys gets no more than the parts of 1,024 of them, and takes no more memory. A key that
// asked before keeps its part.
func TestInventedKeys(t *testing.T) {
	v := newProxy(t).start(`{"capacity": 8192, "rules": [` + fair(`{"limit": 100000, "window": "1h", "algorithm": "fixed_window"}`, `, "cost": {"header": "x-cost"}`) + `]}`)
	ask := func(user, cost string) bool {
		return v.send("x-team", "red", "x-user", user, "x-class", "interactive", "x-cost", cost)
	}
	for hour := range 3 {
		ask("ann", "1")
		for i := range 3000 {
			ask(fmt.Sprint("invented", i), "50000")
			ask(fmt.Sprint("invented", i), "50")
			ask(fmt.Sprint("invented", i), "32")
		}
		got := 1
		for ask("ann", "1") {
			got++
		}
		if hour > 0 && (got < 60000/1088 || got > 90000/1088) {
			t.Errorf("hour %d: ann has %d, want %d to %d", hour, got, 60000/1088, 90000/1088)
		}
		want(t, v.reply.headers, "x-ratelimit-limit: 82")
		v.now += 3600 * second
	}
	must.Equal(t, v.count("evicted_counters_total"), 0, "evicted counters")
}

// While the backend is away and everything is to pass, a key passes above its even part, too.
func TestFairSharesWithoutBackend(t *testing.T) {
	for _, rate := range []string{"0", "1"} {
		w := joined(t, 1, 2, `{"on_backend_failure": "allow", `+synced(rate, fair(`{"limit": 20, "window": "1h", "algorithm": "fixed_window"}`, ""))[1:])
		w.away = true
		for i := range 100 {
			must.EqualOrEnd(t, w.any().send("x-team", "red", "x-user", pick(w.random, "ann", "bob"), "x-class", "interactive"), true, "rate %s: request %d is refused", rate, i)
			w.advance(10 * time.Millisecond)
		}
	}
}
