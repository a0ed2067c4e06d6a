package filter_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/wire"
)

func TestPushRequest(t *testing.T) {
	w := newWorld(t, 1, 1, `{"namespace": "shop", "backend": {"cluster": "c", "authority": "weir.example", "token": "s3cret"},
		"rules": [{"name": "all", "cost": 0, "cost_on_response": {"response_header": "x-cost"}, "limits": [{"limit": 50, "window": "1m"}]}]}`)
	v := w.vms[0]
	v.upstream = map[string]string{"x-cost": "1"}
	v.tick() // it asks how many nodes there are
	w.deliver(v)
	w.pass(1)
	v.send() // it asks what is left
	v.tick()
	must.EqualOrEnd(t, len(v.callouts), 1, "callouts")
	c := v.callouts[0]
	want(t, c.headers, `
		:method: POST
		:path: /v1/push
		:authority: weir.example
		content-type: application/x-weir
		authorization: Bearer s3cret
	`)
	push, err := wire.DecodePush(c.body)
	if err != nil || c.cluster != "c" || push.Namespace != "shop" || push.Sequence != 3 || push.Floor != 3 || len(push.Items) != 1 {
		t.Fatalf("got %s %+v, %v", c.cluster, push, err)
	}
	item := push.Items[0]
	if item.WidthMillis != 60_000 || item.Newest != uint64(monday/minute) || len(item.Hits) != 2 || item.Hits[0] != 1 {
		t.Errorf("got %+v", item)
	}
	must.Between(t, v.tickMillis, 1, 125, "ms between ticks")
}

// A cluster that does not exist is a backend that is away.
func TestMissingCluster(t *testing.T) {
	v := newProxy(t).start(`{"backend": {"cluster": "missing"}, "rules": [{"name": "all", "limits": [{"limit": 5, "window": "1m"}]}]}`)
	for range 6 {
		v.send()
		v.now += second
		v.tick()
	}
	must.Equal(t, v.reply != nil, true, "the last request is refused")
	must.Equal(t, v.count("failed_pushes_total") > 0, true, "pushes have failed")
}

// questions takes out the callouts that only ask what is new.
func (v *fakeVM) questions() (asked []callout) {
	kept := v.callouts[:0]
	for _, c := range v.callouts {
		if push, err := wire.DecodePush(c.body); err != nil || !push.Known.Asks {
			kept = append(kept, c)
		} else {
			asked = append(asked, c)
		}
	}
	v.callouts = kept
	return asked
}

// Answers that no backend gives are failures: the push is sent again, and nothing of the answer is
// believed.
func TestOddAnswers(t *testing.T) {
	w := newWorld(t, 1, 1, synced("0.05", `{"name": "all", "cost": 0, "cost_on_response": {"response_header": "x-cost"},
		"limits": [{"limit": 50, "window": "1h"}]}`))
	v := w.vms[0]
	v.upstream = map[string]string{"x-cost": "1"}
	v.foreign = true
	w.advance(time.Second)
	v.send()
	v.tick()
	unanswered := v.questions()
	good := w.apply(v.callouts[0].body)
	for i, odd := range []struct {
		status int
		body   []byte
	}{
		{200, nil}, {200, good[:len(good)-1]}, {200, append(good[:len(good):len(good)], 0)}, {200, []byte("<html>")}, {204, good[:1]}, {199, good}, {300, good}, {400, good},
		{401, good}, {500, good}, {0, nil}, {200, wire.AppendAnswer(nil, &wire.Answer{NowNanos: 1})},
	} {
		must.EqualOrEnd(t, len(v.callouts), 1, "answer %d: callouts are out", i)
		c := v.callouts[0]
		v.callouts = nil
		v.answer(c, odd.status, odd.body)
		v.answer(c, 200, good) // a second end of the same callout does nothing
		for n := 0; n < 1000 && len(v.callouts) == 0; n++ {
			w.now += 100e6
			w.proxies[0].now = w.now
			v.tick()
			unanswered = append(unanswered, v.questions()...)
		}
		if len(v.callouts) == 1 && string(v.callouts[0].body) != string(c.body) {
			t.Fatalf("answer %d: the push was changed", i)
		}
	}
	v.answer(v.callouts[0], 200, good)
	v.callouts = nil
	for _, c := range unanswered {
		v.answer(c, 200, w.apply(c.body))
	}
	v.send()
	want(t, v.response, `x-ratelimit-remaining: 49`)
	must.Equal(t, v.plugin.Node().Backlog().Pushes, 0, "batches are left")
}

// charged is a rule whose hits are told when a request has passed, and so have to be pushed.
const charged = `{"name": "user", "key": [{"header": "x-user"}], "cost": 0, "cost_on_response": {"response_header": "x-cost"}, ` + long + `}`

// A batch that the backend refuses is given up, and holds up nothing else. A batch that somebody
// else refuses on the way is sent again.
func TestRefusedBatch(t *testing.T) {
	for _, test := range []struct {
		status  int
		foreign bool
	}{{400, false}, {413, false}, {400, true}, {413, true}} {
		foreign := test.foreign
		w := newWorld(t, 1, 1, synced("0.1", charged))
		v := w.vms[0]
		v.upstream = map[string]string{"x-cost": "1"}
		v.foreign = foreign
		refused := uint64(0) // the first batch with hits
		for i := range 600 {
			v.send("x-user", fmt.Sprint(i))
			w.now += 100e6
			w.proxies[0].now = w.now
			v.tick()
			for _, c := range v.dispatched() {
				push, err := wire.DecodePush(c.body)
				if err == nil && refused == 0 && len(push.Items) > 0 {
					refused = push.Sequence
				}
				if err == nil && refused != 0 && push.Sequence == refused && (!foreign || i < 300) {
					v.answer(c, test.status, []byte(`{"title": "bad request"}`))
				} else {
					v.answer(c, 200, w.apply(c.body))
				}
			}
		}
		must.Equal(t, w.sum(), map[bool]int64{false: 599, true: 600}[foreign], "%+v: the backend has of 600", test)
		must.Equal(t, v.count("lost_hits_total"), map[bool]uint64{false: 1, true: 0}[foreign], "%+v: lost hits", test)
	}
}

// The configuration says what decides without the backend: when a callout fails, when it is late,
// and while the breaker is open.
func TestBackendFailureModes(t *testing.T) {
	for _, rate := range []string{"0", "1"} {
		for mode, passes := range map[string]int{"local": 3, "allow": 12, "deny": 0} {
			w := newWorld(t, 1, 1, `{"on_backend_failure": "`+mode+`", `+synced(rate, `{"name": "user", "key": [{"header": "x-user"}],
				"limits": [{"limit": 3, "window": "1h", "algorithm": "fixed_window"}]}`)[1:])
			v := w.vms[0]
			v.settle = nil
			passed := 0
			for i := range 12 {
				s := v.pause("x-user", "ann")
				switch {
				case s != nil && i%2 == 0:
					for _, c := range v.dispatched() {
						v.answer(c, 504, nil)
					}
				case s != nil:
					v.callouts = nil
					w.pass(time.Second)
					v.tick()
				}
				if s != nil && s.Waits() {
					t.Fatalf("%s: request %d waits", mode, i)
				}
				if v.reply == nil {
					passed++
				} else {
					wantRetry := mode == "deny"
					if got := v.reply.headers["retry-after"]; wantRetry && got != "1" || got == "" || got == "0" {
						t.Errorf("%s: retry after %q", mode, got)
					}
				}
				v.reset(v.last)
			}
			must.Equal(t, passed, passes, "sync_rate %s, %s: passed of 12", rate, mode)
			w.quiet()
			w.wantSum(map[bool]int64{true: 3}[mode == "local"], "sync_rate "+rate+", "+mode)
			must.Equal(t, v.left(), "", "sync_rate %s, %s", rate, mode)
		}
	}
}
