package node

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A process tells once, whichever of its workers finds out, that its backend is lost, why, and that it
// is back.
func TestTurns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// each says what becomes of pushes, and for how long.
		each []turnOf
		want []Outcome
	}{
		{"away", []turnOf{{arrives, 5}, {PushLost, 60}, {arrives, 20}}, []Outcome{PushLost, PushAnswered}},
		{"another reason", []turnOf{{503, 30}, {401, 30}, {arrives, 20}}, []Outcome{503, 401, PushAnswered}},
		{"refused connections and lost answers", []turnOf{{503, 30}, {504, 30}, {PushLost, 30}, {arrives, 20}}, []Outcome{503, PushAnswered}},
		{"what is no answer", []turnOf{{PushGarbled, 30}, {arrives, 20}}, []Outcome{PushGarbled, PushAnswered}},
		{"no cluster", []turnOf{{PushUnsent, 60}, {arrives, 20}}, []Outcome{PushUnsent, PushAnswered}},
		{"a single failure", []turnOf{{arrives, 5}, {503, 0}, {arrives, 20}}, nil},
		{"twice", []turnOf{{403, 30}, {arrives, 20}, {403, 30}, {arrives, 20}}, []Outcome{403, PushAnswered, 403, PushAnswered}},
	} {
		var told []Outcome
		w := newWorld(t, 1, 3, second, Options{Turned: func(why Outcome) { told = append(told, why) }}, users(fixed(5)))
		for _, turn := range test.each {
			for i := range max(1, turn.seconds*10) {
				w.pass(100 * time.Millisecond)
				for j, f := range w.nodes {
					f.refuse = turn.outcome == PushUnsent
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
		if !slices.Equal(told, test.want) {
			t.Errorf("%s: told %v, want %v", test.name, told, test.want)
		}
	}
}

// arrives stands for pushes that are answered as they should be.
const arrives = Outcome(1 << 15)

type turnOf struct {
	outcome Outcome
	seconds int
}

// come has all pushes of a node come to something.
func (f *fakeNode) come(outcome Outcome) {
	switch outcome {
	case arrives:
		f.process.deliver(f)
		return
	case PushGarbled:
		outcome = PushAnswered
	}
	for _, p := range f.taken() {
		f.Answered(p.ticket, outcome, []byte("<html>"))
	}
}

// A backend that comes and goes is told of twice in ten seconds, at most.
func TestTurnsAreBounded(t *testing.T) {
	t.Parallel()
	told := 0
	w := newWorld(t, 1, 2, second/10, Options{Turned: func(Outcome) { told++ }}, users(fixed(5)))
	outcomes := []Outcome{503, arrives, 401, 403, arrives}
	const seconds = 100
	for i := range seconds * 20 {
		w.pass(50 * time.Millisecond)
		for _, f := range w.nodes {
			f.charge(fmt.Sprint(i))
			f.tick()
			f.come(outcomes[i/20%len(outcomes)])
		}
	}
	if most := 2 * (seconds/10 + 1); told > most || told < 4 {
		t.Errorf("told %d times in %d s, want 4 to %d", told, seconds, most)
	}
}

// Pushes that the backend will never take are told of, once.
func TestTurnOfRefusedPushes(t *testing.T) {
	t.Parallel()
	var told []Outcome
	w := newWorld(t, 1, 2, second, Options{Turned: func(why Outcome) { told = append(told, why) }}, users(fixed(5)))
	for i := range 100 {
		w.pass(100 * time.Millisecond)
		for _, f := range w.nodes {
			f.charge(fmt.Sprint(i))
			f.tick()
			f.come(PushRefused)
		}
	}
	if !slices.Equal(told, []Outcome{PushRefused}) {
		t.Errorf("told %v, want once that pushes are refused", told)
	}
}
