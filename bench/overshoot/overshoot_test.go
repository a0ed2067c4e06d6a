package main

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/bench/sim"
	"weir/internal/wire"
)

// The tables of the quick grid equal the kept tables, so they are the same every time: a change must come with new figures
// in README.md.
func TestFiguresAreKept(t *testing.T) {
	got, err := tables(quick().trials(everything))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(quickTables)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(kept) {
		t.Errorf("figures have changed: run go run ./bench/overshoot\ngot:\n%s\nwant:\n%s", got, kept)
	}
}

// README.md has the figures that its text mentions.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []grid{full(), others()} {
		for _, a := range g.algorithms {
			if !strings.Contains(string(readme), "\n"+a.name+" 10x") {
				t.Errorf("README.md has no figures for %s", a.name)
			}
		}
	}
	if n := len(full().trials(everything)); !strings.Contains(string(readme), fmt.Sprintf("\n%d trials ", n)) {
		t.Errorf("README.md has no figures for %d trials", n)
	}
}

func TestOnlyWhatMatches(t *testing.T) {
	trials := full().trials(regexp.MustCompile(`^token_bucket/5s/sync 1/on/off/`))
	if len(trials) != 8 {
		t.Errorf("got %d trials, want 8", len(trials))
	}
	if err := matching("no such trial"); err == nil {
		t.Error("nothing was measured, and nobody noticed")
	}
	if err := matching("("); err == nil {
		t.Error("a wrong expression was taken")
	}
}

func quickTrial(name string, traffic traffic, load float64) *trial {
	t := quick().trials(everything)[0]
	for _, a := range append(full().algorithms, others().algorithms...) {
		if a.name == name {
			t.algorithm = a
		}
	}
	t.traffic, t.load = traffic, load
	return &t
}

// Traffic has the requested rate, in order, and goes to the right nodes.
func TestTraffic(t *testing.T) {
	const windows, perWindow = 400, 10_000
	for _, kind := range kinds {
		f := quickTrial("fixed_window", kind, 10).flow()
		f.end = f.start + windows*f.width
		last, requests, first, hot, counts := f.start, 0.0, 0.0, 0.0, make([]float64, windows)
		for a := range f.arrivals() {
			if a.at < last || a.at >= f.end {
				t.Fatalf("%s: a request at %d, after one at %d", kind.name, a.at-f.start, last-f.start)
			}
			last = a.at
			requests++
			counts[(a.at-f.start)/f.width]++
			if a.place == 0 {
				first++
			}
			if a.place == int((a.at-f.start)/(f.width/2))%nodes {
				hot++
			}
		}
		variance := 0.0
		for _, n := range counts {
			variance += (n - perWindow) * (n - perWindow) / perWindow / windows
		}
		want, moving := 0.1, 0.1
		if kind.hot > 0 && !kind.moves {
			want = hotShare
		} else if kind.moves {
			moving = hotShare
		}
		near := func(got, want, by float64) bool { return math.Abs(got-want) < by }
		if !near(requests/windows/perWindow, 1, 0.03) || !near(first/requests, want, 0.01) || !near(hot/requests, moving, 0.01) || kind.bursts != (variance > 10) {
			t.Errorf("%s: %g requests, %g to the first node, %g to the one whose turn it is; their variance is %g times the mean", kind.name, requests, first, hot, variance)
		}
	}
}

// Requests go only to running nodes.
func TestTrafficFollowsMembership(t *testing.T) {
	for _, kind := range kinds {
		trial := quickTrial("fixed_window", kind, 10)
		trial.changing = true
		f := trial.flow()
		down, changes, met := map[int]bool{nodes: true}, f.changes, 0
		for a := range f.arrivals() {
			for ; len(changes) > 0 && changes[0].at <= a.at; changes = changes[1:] {
				if c := changes[0]; down[c.place] == (c.what == joins) {
					down[c.place] = c.what != joins
				} else {
					t.Fatalf("%s: node %d changes to what it is", kind.name, c.place)
				}
			}
			if down[a.place] {
				t.Fatalf("%s: a request to node %d, which is not there", kind.name, a.place)
			}
			if a.place == nodes {
				met++
			}
		}
		if len(changes) != 0 || met == 0 {
			t.Errorf("%s: %d changes are left, and the node that joins got %d requests", kind.name, len(changes), met)
		}
	}
}

// The single limiter agrees with the oracle: it uses all of the limit if enough is offered, and
// never more. The other ways are judged by the same requests.
func TestWays(t *testing.T) {
	for _, a := range append(full().algorithms, others().algorithms...) {
		even := quickTrial(a.name, kinds[0], 5)
		rs, err := measure([]trial{*even})
		if err != nil {
			t.Fatal(err)
		}
		r := &rs[0]
		if r.central.worst > mostSteady || r.central.worst < 0.99 || r.ofLimit(&r.central) < 0.97 || r.ofLimit(&r.central) > 1+1e-3 {
			t.Errorf("%s: the one limiter admits %g, and uses %g", a.name, r.ofLimit(&r.central), r.central.worst)
		}
		for _, w := range ways {
			if o := w.of(r); o.requests != r.central.requests || o.admitted == 0 {
				t.Errorf("%s, %s: %+v", a.name, w.name, *o)
			}
		}
		if r.periodic.worst < 1.05 {
			t.Errorf("%s: periodic sync uses %g of the limit at most", a.name, r.periodic.worst)
		}
		skewed := quickTrial(a.name, kinds[1], 2)
		even.changing = true
		if o, err := even.fixed(); err != nil || float64(o.admitted) < 0.9*float64(r.central.admitted) {
			t.Errorf("%s: fixed shares admit %d while nodes come and go, one limiter %d (%v)", a.name, o.admitted, r.central.admitted, err)
		}
		if o, err := skewed.fixed(); err != nil || o.worst > 1 || float64(o.admitted) > 0.5*float64(o.requests)/2 {
			t.Errorf("%s: fixed shares admit %d of %d, and use %g (%v)", a.name, o.admitted, o.requests, o.worst, err)
		}
	}
}

// When all is quiet the backend has all admitted hits, although callouts are lost.
func TestNothingIsLost(t *testing.T) {
	trial := quickTrial("fixed_window", kinds[0], 5)
	trial.width = minute
	trial.condition = hard[1]
	w, err := trial.world()
	if err != nil {
		t.Fatal(err)
	}
	passed := int64(0)
	w.Passed = func(*sim.Request) { passed++ }
	f := trial.flow()
	f.end = monday + 20*second
	for a := range f.arrivals() {
		w.Advance(a.at)
		w.Request(a.place, a.worker, onlyKey, 0)
	}
	w.Advance(monday + 45*second)
	sum, err := w.Backend.Sum("default")
	if err != nil || w.Failure() != nil {
		t.Fatal(err, w.Failure())
	}
	if passed == 0 || sum != passed || w.Backend.Duplicates == 0 {
		t.Errorf("%d passed, the backend has %d, and has seen %d pushes again", passed, sum, w.Backend.Duplicates)
	}
}

// A population has the expected load, and none without requests.
func TestDemand(t *testing.T) {
	p := population{nodes: 3, keys: 50, perNode: 100, rate: second, limit: 1_000_000, window: minute, warm: 2 * second, span: 5 * second,
		idle: minute, repeats: true, seed: 1}
	d, err := p.measure()
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(float64(d.requests)/1500-1) > 0.1 || d.passed != d.requests {
		t.Errorf("%d requests, %d passed", d.requests, d.passed)
	}
	if d.Pushes == 0 || d.callouts < d.Pushes-5 || d.Duplicates != 0 {
		t.Errorf("got %+v", d)
	}
	for i, s := range d.split {
		if s.commands < d.Pushes || s.commands > d.Items+d.Takes || s.busiest == 0 || s.busiest > d.Pushes || d.split[0].busiest < s.busiest {
			t.Errorf("%d partitions: got %+v of %d pushes", partitions[i], s, d.Pushes)
		}
	}
	// An idle node asks for news once in three quarters of an interval.
	if most := p.nodes * int(p.idle*4/3/p.rate+1); d.idleCallouts > most || d.repeated != 0 {
		t.Errorf("%d callouts while nobody asked, want at most %d; %d keys pushed again within an interval", d.idleCallouts, most, d.repeated)
	}
}

// A push touches each partition once, and the rooms of its takes count.
func TestTouch(t *testing.T) {
	counter := func(first byte) wire.LimitCounter { return wire.LimitCounter{ID: wire.ID{first, 1}} }
	push := &wire.Push{
		Items: []wire.Item{{LimitCounter: counter(7)}, {LimitCounter: counter(7)}, {LimitCounter: counter(8)}},
		Takes: []wire.Take{{Rooms: []wire.Room{{LimitCounter: counter(8)}, {LimitCounter: counter(9)}}}},
	}
	var touched [mostPartitions]int
	if n := touch(&touched, 256, push); n != 3 || slices.Max(touched[:]) != 1 {
		t.Errorf("%d partitions: %v", n, touched)
	}
	if n := touch(&touched, 1, push); n != 1 {
		t.Errorf("%d of one partition", n)
	}
}

// A key that a node has pushed less than an interval ago counts.
func TestRepeats(t *testing.T) {
	last := map[pushedKey]int64{}
	for i, step := range []struct {
		at   int64
		node uint64
		keys string
		want int
	}{{0, 1, "ab", 0}, {second / 2, 2, "a", 0}, {second / 2, 1, "c", 0}, {second, 1, "ab", 0}, {second + second/2, 1, "bc", 1}} {
		p := &wire.Push{Node: step.node}
		for _, k := range []byte(step.keys) {
			p.Items = append(p.Items, wire.Item{LimitCounter: wire.LimitCounter{ID: wire.ID{k}}})
		}
		if got := repeats(last, p, monday+step.at, second); got != step.want {
			t.Errorf("step %d: %d repeats, want %d", i, got, step.want)
		}
	}
}
