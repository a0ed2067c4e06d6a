package engine_test

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/link"
	"weir/internal/must"
	"weir/internal/wire"
)

// report returns a node's next report.
func (f *fakeNode) report() *wire.Report {
	f.process.t.Helper()
	f.reports = nil
	for range 200 {
		f.advance(100 * time.Millisecond)
		if n := len(f.reports); n > 0 {
			r, err := wire.DecodeReport(f.reports[n-1])
			must.OK(f.process.t, err)
			return r
		}
	}
	f.process.t.Fatal("no report")
	return nil
}

// A node reports what it was asked for, with random keys beside those that have most, within the
// bounds that the report tells. It is of a bounded size.
func TestReport(t *testing.T) {
	shadow := users(fixed(10))
	shadow.shadow, shadow.reveal = true, 4
	_, f := alone(t, second, engine.Options{}, shadow, users(fixed(1e9)).here())
	const requests, sampled = 30_000, 8 // one request in sampled is looked at
	exact := map[string]uint64{}
	refused := uint64(0)
	for i := range requests {
		user := fmt.Sprint("random", i)
		switch i % 10 {
		case 0:
			user = "annabel"
		case 5:
			user = fmt.Sprint("bob", i%3)
		}
		exact[user]++
		if !f.send(user) {
			refused++
		}
	}
	r := f.report()
	if len(r.Rules) != 2 || r.Namespace != "default" || r.Node != f.Table().ID() {
		t.Fatalf("got %+v", r)
	}
	must.AtMost(t, len(f.reports[len(f.reports)-1]), wire.MaxReport, "bytes")
	for i := range r.Rules {
		p := &r.Rules[i]
		must.Equal(t, [3]uint64{p.Requests, p.Hits, p.Every}, [3]uint64{requests, requests, sampled}, "%s: requests, hits, and one in how many is looked at", p.Name)
		found := map[wire.ID]*wire.ReportKey{}
		for j := range p.Used.Keys {
			found[p.Used.Keys[j].ID] = &p.Used.Keys[j]
		}
		for user, n := range exact {
			id := f.id(i, user)
			// Four times the standard error of what was drawn at random.
			margin := 4 * math.Sqrt((sampled-1)*float64(n))
			k := found[id]
			if k == nil {
				must.AtMost(t, float64(n), float64(p.Used.Floor)+margin, "%s: %s is missing, with hits", p.Name, user)
				continue
			}
			if n > 100 && (float64(n) > float64(k.Hits)+margin || float64(n) < float64(k.Hits-k.Error)-margin) {
				t.Errorf("%s: %s has %d hits, error %d, want %d ± %.0f", p.Name, user, k.Hits, k.Error, n, margin)
			}
			want := ""
			if i == 0 {
				want = string(wire.AppendValue(nil, []byte(user)[:4], len(user) > 4))
			}
			must.Equal(t, string(k.Name), want, "%s: %s has the name %q", p.Name, user, k.Name)
		}
		if i == 1 && p.Used.Keys[0].Leased != 0 {
			t.Error("a rule that is not shared has leases")
		}
		must.Equal(t, p.Used.Keys[0].ID, f.id(i, "annabel"), "%s: annabel is not first", p.Name)
	}
	if p := &r.Rules[0]; p.RefusedRequests != refused || !p.Shadow || len(p.Limits) != 1 || p.Limits[0].Max != 10 {
		t.Errorf("%d refused, want %d: %+v", p.RefusedRequests, refused, p.Limits)
	}
	s := &r.Rules[0].Sample
	if len(s.Keys) == 0 || len(s.Keys) > wire.MaxReportSample || s.Threshold == math.MaxUint64 {
		t.Errorf("%d keys up to %x", len(s.Keys), s.Threshold)
	}
	must.Equal(t, len(r.Rules[1].Limits)+len(r.Rules[1].Sample.Keys), 0, "limits and sampled keys of an enforced rule")
	// It speaks of the last minute or two.
	often(130, f.advance, time.Second)
	f.send("zoe")
	if r = f.report(); r.Rules[0].Requests != 1 || len(r.Rules[0].Used.Keys) != 1 {
		t.Errorf("two minutes later there are %+v", r.Rules[0])
	}
}

// Reports of many rules are cut to what fits.
func TestReportsAreBounded(t *testing.T) {
	rules := make([]fakeRule, 60)
	for i := range rules {
		rules[i] = users(fixed(1e9))
		rules[i].shadow, rules[i].reveal = true, 255
	}
	_, f := alone(t, second, engine.Options{}, rules...)
	for i := range 150 {
		f.send(fmt.Sprintf("%0200d", i))
	}
	r := f.report()
	if size := len(f.reports[len(f.reports)-1]); len(r.Rules) != len(rules) || size > wire.MaxReport || size < wire.MaxReport/8 {
		t.Errorf("%d rules in %d bytes", len(r.Rules), size)
	}
	for i := range r.Rules {
		p := &r.Rules[i]
		if p.Requests != 150 || p.Used.Floor == 0 && len(p.Used.Keys) < 64 {
			t.Errorf("%s: %d requests, %d keys, floor %d", p.Name, p.Requests, len(p.Used.Keys), p.Used.Floor)
		}
	}
}

// A node names what it would tell of its rules, and tells it when the backend asks: at once for the
// first time. Another worker tells the same.
func TestRulesAreTold(t *testing.T) {
	shadow := users(fixed(10))
	shadow.shadow = true
	w := newWorld(t, 1, 2, second, engine.Options{Configuration: 5}, shadow, all(fixed(20)).here())
	f, other := w.nodes[0], w.nodes[1]
	first := f.report()
	must.EqualOrEnd(t, first.Digest != 0 && len(first.Told) == 0, true, "the first report has a digest, %x, and no rules", first.Digest)
	silent := len(f.reports)
	often(20, f.advance, time.Second)
	must.Equal(t, len(f.reports), silent, "%d reports of a node without requests", len(f.reports)-silent)
	ask := func(f *fakeNode) { f.Answered(engine.Ticket{}, link.PushAnswered, []byte(wire.TellRules)) }
	f.Answered(engine.Ticket{}, link.PushAnswered, nil)
	f.Answered(engine.Ticket{}, link.PushLost, []byte(wire.TellRules))
	ask(f)
	f.advance(time.Millisecond)
	r, err := wire.DecodeReport(f.reports[len(f.reports)-1])
	if err != nil || len(f.reports) != silent+1 || r.Digest != first.Digest || wire.DigestOf(r.Told) != r.Digest {
		t.Fatalf("%d reports: %+v, error %v", len(f.reports)-silent, r, err)
	}
	configuration, rules, err := wire.DecodeTold(r.Told)
	want := []wire.RuleShape{
		{Name: "rule-0", Flags: wire.IsShadow, Key: []byte{24, 48}, Limits: []wire.ToldLimit{{Limit: fixed(10)}}},
		{Name: "rule-1", Flags: wire.Local | wire.Varies, Key: []byte{}, Limits: []wire.ToldLimit{{Limit: fixed(20)}}},
	}
	if err != nil || configuration != 5 || !reflect.DeepEqual(rules, want) {
		t.Errorf("told are %d %+v, error %v", configuration, rules, err)
	}
	// The next report, without rules, lets the backend ask again; a second time it is not answered at once.
	told := len(f.reports)
	often(20, f.advance, time.Second)
	if r, err := wire.DecodeReport(f.reports[len(f.reports)-1]); err != nil || len(f.reports) != told+1 || r.Digest != first.Digest || len(r.Told) > 0 {
		t.Fatalf("%d reports, %v", len(f.reports)-told, err)
	}
	for range 2 { // a backend that always asks is told no more often than others
		ask(f)
		f.advance(time.Millisecond)
	}
	must.AtMost(t, len(f.reports), told+2, "reports, with two at once")
	other.options.Rules[0].Shadow = false // moved at run time
	must.Equal(t, other.report().Digest, first.Digest, "another worker has the digest")
}

// A rule that becomes a shadow rule is reported as one, with a sample of its keys from then on, and
// without it when it is enforced again.
func TestReportOfMovedRule(t *testing.T) {
	_, f := alone(t, second, engine.Options{}, users(fixed(10)))
	for _, shadow := range []bool{false, true, false, true} {
		f.options.Rules[0].Shadow = shadow
		for i := range 200 {
			f.send(fmt.Sprint("user", i%20))
		}
		f.report()
		for i := range 200 {
			f.send(fmt.Sprint("user", i%20))
		}
		p := &f.report().Rules[0]
		if p.Shadow != shadow || (len(p.Limits) == 1 && len(p.Sample.Keys) > 0) != shadow {
			t.Errorf("shadow %v: reported as %v, with %d limits and a sample of %d keys", shadow, p.Shadow, len(p.Limits), len(p.Sample.Keys))
		}
	}
}

// A report tells what of a key's hits is leased and not used.
func TestLeasesAreReported(t *testing.T) {
	_, f := alone(t, second, engine.Options{}, users(fixed(1000)))
	const requests = 101
	for range requests {
		f.send("ann")
		f.advance(10 * time.Millisecond)
	}
	if k := f.report().Rules[0].Used.Keys[0]; k.Hits != requests || k.Leased == 0 || k.Leased > 1000-requests {
		t.Errorf("told are %+v", k)
	}
}

// A report tells which hits of a key have passed and are not pushed, and how long they wait for that at most.
// What was seen before that time is pushed.
func TestPendingHitsAreReported(t *testing.T) {
	w := fleetOf(t, 2, users(fixed(1000)))
	w.interval()
	f := w.nodes[0]
	f.reports = nil
	for i := 0; len(f.reports) == 0; i++ {
		f.ask(fmt.Sprint("user", i))
		w.advance(100 * time.Millisecond)
	}
	told := must.Get(wire.DecodeReport(f.reports[0]))(t).Rules[0]
	pending := 0
	for _, k := range told.Used.Keys {
		pending += int(k.Pending)
	}
	if n := len(told.Used.Keys); told.SyncMillis != 1000 || n < 20 || pending < 8 || pending > 10 {
		t.Errorf("of %d keys %d hits are pending, for %d ms, want those of the last second", n, pending, told.SyncMillis)
	}
}

// After a node was idle, what it has seen is told a second after its first request.
func TestFirstReportAfterIdling(t *testing.T) {
	_, f := alone(t, second, engine.Options{}, users(fixed(1000)))
	often(200, f.advance, time.Second)
	f.reports = nil
	for i := range 15 {
		f.send("ann")
		f.advance(100 * time.Millisecond)
		must.EqualOrEnd(t, len(f.reports) > 0, i > 9, "reported after %d requests in as many tenths of a second", i+1)
	}
}
