package engine_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/link"
	"weir/internal/must"
)

// A process tells once, whichever of its workers finds out, that its backend is lost, why, and that it
// is back.
func TestTurns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// each says what becomes of pushes, and for how long.
		each []turnOf
		want []link.Outcome
	}{
		{"away", []turnOf{{arrives, 5}, {link.PushLost, 60}, {arrives, 20}}, []link.Outcome{link.PushLost, link.PushAnswered}},
		{"another reason", []turnOf{{503, 30}, {401, 30}, {arrives, 20}}, []link.Outcome{503, 401, link.PushAnswered}},
		{"refused connections and lost answers", []turnOf{{503, 30}, {504, 30}, {link.PushLost, 30}, {arrives, 20}}, []link.Outcome{503, link.PushAnswered}},
		{"what is no answer", []turnOf{{link.PushGarbled, 30}, {arrives, 20}}, []link.Outcome{link.PushGarbled, link.PushAnswered}},
		{"no cluster", []turnOf{{link.PushUnsent, 60}, {arrives, 20}}, []link.Outcome{link.PushUnsent, link.PushAnswered}},
		{"a single failure", []turnOf{{arrives, 5}, {503, 0}, {arrives, 20}}, nil},
		{"refused pushes", []turnOf{{link.PushRefused, 10}}, []link.Outcome{link.PushRefused}}, // which the backend will never take
		{"twice", []turnOf{{403, 30}, {arrives, 20}, {403, 30}, {arrives, 20}}, []link.Outcome{403, link.PushAnswered, 403, link.PushAnswered}},
	} {
		var told []link.Outcome
		w := newWorld(t, 1, 3, second, engine.Options{Turned: func(why link.Outcome) { told = append(told, why) }}, users(fixed(5)))
		for _, turn := range test.each {
			for i := range max(1, turn.seconds*10) {
				w.pass(100 * time.Millisecond)
				for j, f := range w.nodes {
					f.refuse = turn.outcome == link.PushUnsent
					if turn.seconds > 0 || i+j == 0 {
						f.charge(fmt.Sprint("key", i))
					}
					f.tick()
				}
				for _, f := range w.nodes {
					f.come(turn.outcome)
				}
			}
		}
		must.Same(t, told, test.want, "%s: told", test.name)
	}
}

// arrives stands for pushes that are answered as they should be.
const arrives = link.Outcome(1 << 15)

type turnOf struct {
	outcome link.Outcome
	seconds int
}

// come has all pushes of a node come to something.
func (f *fakeNode) come(outcome link.Outcome) {
	switch outcome {
	case arrives:
		f.process.deliver(f)
		return
	case link.PushGarbled:
		outcome = link.PushAnswered
	}
	for _, p := range f.taken() {
		f.Answered(p.ticket, outcome, []byte("<html>"))
	}
}

// A backend that comes and goes is told of twice in ten seconds, at most.
func TestTurnsAreBounded(t *testing.T) {
	t.Parallel()
	told := 0
	w := newWorld(t, 1, 2, second/10, engine.Options{Turned: func(link.Outcome) { told++ }}, users(fixed(5)))
	outcomes := []link.Outcome{503, arrives, 401, 403, arrives}
	const seconds = 100
	for i := range seconds * 20 {
		w.pass(50 * time.Millisecond)
		for _, f := range w.nodes {
			f.charge(fmt.Sprint(i))
			f.tick()
			f.come(outcomes[i/20%len(outcomes)])
		}
	}
	must.Between(t, told, 4, 2*(seconds/10+1), "times told in %d s", seconds)
}
