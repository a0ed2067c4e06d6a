package backend

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

// teller is a node with rules.
type teller struct {
	t      *testing.T
	report wire.Report
	told   []byte
}

func newTeller(t *testing.T, node uint64, configuration uint64, rules ...wire.RuleShape) *teller {
	told := wire.AppendTold(nil, configuration, rules)
	return &teller{t, wire.Report{Namespace: "shop", Node: node, Sender: node, AtNanos: node, Digest: wire.DigestOf(told)}, told}
}

// say reports to a backend, with the rules or without, and returns whether it asks for them.
func (n *teller) say(b *Backend, told []byte) (asked bool) {
	n.t.Helper()
	n.report.Told = told
	reply, err := b.Push(context.Background(), wire.AppendReport(nil, &n.report))
	if err != nil || len(reply.Body) > 0 && string(reply.Body) != wire.TellRules {
		n.t.Fatalf("answer %q, error %v", reply.Body, err)
	}
	return len(reply.Body) > 0
}

func exampleRule(name string, limit uint64) wire.RuleShape {
	return wire.RuleShape{Name: name, Key: []byte{0, 0}, Limits: []wire.ToldLimit{{Limit: window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: 6e10}, Max: limit}}}}
}

// A node tells its rules once; then all backends with the store know them, until nobody has named
// them for a month.
func TestRulesAreKnown(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	clock := func() time.Time { return now }
	kept := memory.New(memory.Options{Now: clock})
	start := func() *Backend {
		b := New(kept)
		b.known.now = clock
		return b
	}
	a, b := start(), start()
	month := exampleRule("budget", 9)
	month.Limits[0].Width, month.Limits[0].Described = 31*24*3600e9, "\x02\x01\x00Europe/Berlin"
	rules := []wire.RuleShape{exampleRule("per-user", 100), month}
	one, other := newTeller(t, 1, 7, rules...), newTeller(t, 2, 7, rules...)
	configurations := func(b *Backend) []Configuration {
		t.Helper()
		return must.Get(b.Configurations(t.Context(), "shop"))(t)
	}
	must.Equal(t, one.say(a, nil), true, "nobody is asked for unknown rules")
	must.Equal(t, other.say(a, nil), false, "a second is asked at once")
	must.Equal(t, one.say(a, nil), false, "the first is asked again at once")
	if c := configurations(a); len(c) != 1 || len(c[0].Nodes) != 2 || !c[0].Heard.IsZero() || RuleOf(c, "per-user") != nil {
		t.Errorf("of unknown rules there are %+v", c)
	}
	// Whoever was asked says something else, or something that can't be read.
	forged := newTeller(t, 1, 7, exampleRule("per-user", 1))
	if one.say(a, forged.told) || one.say(a, []byte("rules")) || RuleOf(configurations(a), "per-user") != nil {
		t.Error("forged rules are taken for others")
	}
	now = now.Add(askEvery)
	must.Equal(t, one.say(a, nil), true, "nobody is asked again")
	if one.say(a, one.told) || one.say(a, nil) || other.say(a, nil) || other.say(b, nil) {
		t.Error("known rules are asked for")
	}
	for _, b := range []*Backend{a, b, start()} {
		c := configurations(b)
		r := RuleOf(c, "per-user")
		if len(c) != 1 || c[0].Digest != Number(one.report.Digest) || !reflect.DeepEqual(c[0].Nodes, []Number{1, 2}) || !c[0].Heard.Equal(now) || r == nil || !reflect.DeepEqual(*r, rules[0]) {
			t.Fatalf("known are %+v", c)
		}
		if r := RuleOf(c, "budget"); r == nil || r.Limits[0].Calendar == nil || r.Limits[0].Calendar.At(1_700_000_000e9).End != 1_701_385_200e9 {
			t.Errorf("the calendar's rule is %+v", r)
		}
	}
	// Another configuration is that of fewer nodes.
	third := newTeller(t, 3, 8, exampleRule("per-user", 5), exampleRule("new", 1))
	must.Equal(t, third.say(b, nil), true, "the other configuration is asked for")
	must.Equal(t, third.say(b, third.told), false, "the other configuration is asked for twice")
	c := configurations(a)
	if len(c) != 2 || !reflect.DeepEqual(c[1].Nodes, []Number{3}) || RuleOf(c, "per-user").Limits[0].Max != 100 || RuleOf(c, "new") == nil {
		t.Errorf("two configurations: %+v", c)
	}
	found, err := a.Namespaces(t.Context(), func(namespace string) bool { return namespace == "shop" })
	if err != nil || len(found) != 1 || found[0] != (Namespace{Name: "shop", Rules: 2, Nodes: 3, Others: 1, Heard: now}) {
		t.Errorf("namespaces: %+v, %v", found, err)
	}
	must.Equal(t, len(must.Get(a.Namespaces(t.Context(), func(string) bool { return false }))(t)), 0, "namespaces of others")
	// Once all are silent, the last that was heard is known.
	now = now.Add(heardEvery)
	third.say(a, nil)
	now = now.Add(store.ReportLife)
	if c := configurations(a); len(c) != 1 || c[0].Digest != Number(third.report.Digest) || len(c[0].Nodes) != 0 || c[0].Nodes == nil { // nil is no list in JSON
		t.Errorf("after a minute: %+v", c)
	}
	now = now.Add(store.RulesLife - store.ReportLife - time.Second)
	must.Equal(t, len(configurations(a)), 1, "configurations after almost a month")
	now = now.Add(time.Second)
	must.Equal(t, len(configurations(a)), 0, "configurations after a month")
	must.Equal(t, one.say(a, nil), true, "forgotten rules are not asked for")
}

// reads counts the notes that are asked for.
type reads struct {
	store.Store
	notes int
}

func (r *reads) Notes(ctx context.Context, topic store.Topic, namespace string) ([]store.Note, error) {
	r.notes++
	return r.Store.Notes(ctx, topic, namespace)
}

// A list of many namespaces takes one call to the store. It has how they stood at their nodes' last reports, which
// is noted more often at first.
func TestManyNamespaces(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	counted := &reads{Store: memory.New(memory.Options{Now: func() time.Time { return now }})}
	b := New(counted)
	b.known.now = func() time.Time { return now }
	for i := range 60 {
		one := newTeller(t, 1, 7, exampleRule("per-user", 100))
		one.report.Namespace = fmt.Sprint("n", i)
		one.say(b, one.told)
	}
	list := func() []Namespace {
		t.Helper()
		counted.notes = 0
		found := must.Get(b.Namespaces(t.Context(), func(string) bool { return true }))(t)
		must.Equal(t, counted.notes, 1, "calls for a list of %d namespaces", len(found))
		return found
	}
	if found := list(); len(found) != 60 || found[0] != (Namespace{Name: "n0", Rules: 1, Nodes: 1, Heard: now}) {
		t.Errorf("%d namespaces, the first %+v", len(found), found[0])
	}
	one, two := newTeller(t, 1, 7, exampleRule("per-user", 100)), newTeller(t, 2, 7, exampleRule("per-user", 100))
	one.report.Namespace, two.report.Namespace = "n0", "n0"
	two.say(b, nil)
	var seen []int
	for range 30 {
		now = now.Add(5 * time.Second)
		counted.notes = 0
		one.say(b, nil)
		two.say(b, nil)
		seen = append(seen, counted.notes)
	}
	must.Equal(t, list()[0].Nodes, 2, "nodes")
	must.Equal(t, fmt.Sprint(seen), "[3 0 3 0 0 0 3 0 0 0 0 0 0 0 3 0 0 0 0 0 0 0 0 0 0 0 3 0 0 0]", "calls every five seconds: %v", seen)
}

// Rules that somebody makes up are bounded, and don't drive out those that nodes have.
func TestInventedRules(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	clock := func() time.Time { return now }
	b := New(memory.New(memory.Options{Now: clock}))
	b.known.now = clock
	honest := newTeller(t, 1, 0, exampleRule("per-user", 100))
	honest.say(b, honest.told)
	for i := range 10 * store.MaxRules {
		now = now.Add(askEvery)
		honest.say(b, nil)
		invented := newTeller(t, 2, uint64(i)+1, exampleRule(fmt.Sprint("r", i), 1))
		invented.say(b, nil)
		invented.say(b, invented.told)
	}
	now = now.Add(heardEvery)
	if honest.say(b, nil) {
		honest.say(b, honest.told)
	}
	notes, err := b.store.Notes(t.Context(), store.Rules, "shop")
	if c, err2 := b.Configurations(t.Context(), "shop"); err != nil || err2 != nil || len(notes) > store.MaxRules || RuleOf(c, "per-user") == nil {
		t.Errorf("%d are kept; %+v, %v %v", len(notes), c, err, err2)
	}
}

// A note on a namespace takes all of its reports, and a look for rules all of these. Rules that somebody makes up have the
// namespace noted four times at once, names of such rules have as many looked for as are kept, and then both take a turn
// every five seconds.
func TestInventedRulesTakeFewReads(t *testing.T) {
	for name, test := range map[string]struct {
		tells bool
		want  []int
	}{
		"rules": {true, []int{8, 0, 2, 4, 8}}, // two for a note
		"names": {false, []int{store.MaxRules, 0, 1, 2, store.MaxRules}},
	} {
		now := time.Unix(1_700_000_000, 0)
		counted := &reads{Store: memory.New(memory.Options{Now: func() time.Time { return now }})}
		b := New(counted)
		b.known.now = func() time.Time { return now }
		var seen []int
		for i, after := range []time.Duration{0, heardSoon - 1, 1, 2 * heardSoon, -time.Hour} {
			now = now.Add(after)
			counted.notes = 0
			for j := range 20 {
				invented := newTeller(t, 1, uint64(20*i+j), exampleRule("r", 1))
				told := invented.told
				if !test.tells {
					told = nil
				}
				invented.say(b, told)
			}
			seen = append(seen, counted.notes)
		}
		must.Same(t, seen, test.want, "%s: calls", name)
	}
}

// Rules that nobody tells are looked for as often as they are asked for.
func TestUntoldRulesTakeFewReads(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	counted := &reads{Store: memory.New(memory.Options{Now: func() time.Time { return now }})}
	b := New(counted)
	b.known.now = func() time.Time { return now }
	one, other := newTeller(t, 1, 7, exampleRule("per-user", 100)), newTeller(t, 2, 7, exampleRule("per-user", 100))
	for range 2 {
		counted.notes = 0
		must.Equal(t, one.say(b, nil), true, "nobody is asked")
		for range 10 {
			other.say(b, nil)
			now = now.Add(askEvery / 10)
		}
		must.Equal(t, counted.notes, 1, "calls")
	}
}

// What somebody writes into the store under a digest that it does not have is believed by nobody.
func TestForgedRules(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	clock := func() time.Time { return now }
	b := New(memory.New(memory.Options{Now: clock}))
	b.known.now = clock
	honest, forged := newTeller(t, 1, 0, exampleRule("per-user", 100)), newTeller(t, 2, 0, exampleRule("per-user", 9))
	must.Get(b.store.Note(t.Context(), store.Rules, "shop", store.RulesNote(wire.DigestOf(honest.told), now, forged.told)))(t)
	asked := honest.say(b, nil)
	if c, err := b.Configurations(t.Context(), "shop"); err != nil || !asked || RuleOf(c, "per-user") != nil {
		t.Errorf("asked %v; %+v, %v", asked, c, err)
	}
}

// A namespace that the store would not note is noted with the next report.
func TestNamespaceIsNotedAgain(t *testing.T) {
	kept := &broken{Store: memory.New(memory.Options{}), refuses: func(of store.Topic) bool { return of == store.Namespaces }}
	b := New(kept)
	one := newTeller(t, 1, 7, exampleRule("per-user", 100))
	one.say(b, nil)
	one.say(b, one.told)
	kept.refuses = nil
	one.say(b, nil)
	must.Equal(t, len(must.Get(b.Namespaces(t.Context(), func(string) bool { return true }))(t)), 1, "namespaces")
}
