package engine

import (
	"testing"
	"weir/internal/engine/rule"
	"weir/internal/wire"
	"weir/window"
)

// log is a rule of eight logs, as large as they may be.
func log(width int64) *rule.Rule {
	limit := window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: width, Precision: window.LogPrecision}}
	limit.Max = limit.LargestLog()
	r := &rule.Rule{}
	for range wire.MaxLimits {
		r.Limits = append(r.Limits, limit)
	}
	return r
}

// A batch has room for one more key of any rule, with what it has pending and what it asks for,
// unless it is full.
func TestAnyRuleFitsABatch(t *testing.T) {
	for _, width := range []int64{window.MinWidth, 1e9, 60e9, 86_400e9, window.MaxWidth} {
		r := log(width)
		lease := &ask{lease: true, parts: []rule.Ref{{Rule: r}}}
		answers := lease.answerSize()
		for i := range r.Limits {
			pending := wire.Item{LimitCounter: rule.CounterOf([16]byte{}, &r.Limits[i], width), Limit: r.Limits[i].Max}
			answers += pending.AnswerSize()
		}
		if answerBytes+answers > wire.MaxAnswer {
			t.Errorf("a window of %d ns: %d bytes more than an answer may have", width, answerBytes+answers-wire.MaxAnswer)
		}
	}
}

// Takes of requests that wait together share a batch only if its answer has room for all of them.
func TestLargeTakesShareNoBatch(t *testing.T) {
	r := log(60e9)
	takeOf := func(rules int) *ask {
		t := &ask{}
		for range rules {
			t.parts = append(t.parts, rule.Ref{Rule: r})
		}
		return t
	}
	shared := 0
	for first := 1; first <= 12; first++ {
		for rules := 1; rules <= 12; rules++ {
			n := newProcess(t).start(second, fixed(5))
			b, more := n.outbox.newBatch(), takeOf(rules)
			n.acquires.encode(b, takeOf(first), n.Now())
			for b.fits(more) {
				before := b.answers
				n.acquires.encode(b, more, n.Now())
				if b.answers-before != more.answerSize() {
					t.Fatalf("%d rules: an answer of %d bytes, want %d", rules, more.answerSize(), b.answers-before)
				}
				shared++
			}
			if b.answers > wire.MaxAnswer || b.rooms > wire.MaxItems || len(b.body) > wire.MaxBody {
				t.Errorf("of %d and %d rules %d takes, whose answer has %d bytes, want at most %d", first, rules, len(b.asks), b.answers, wire.MaxAnswer)
			}
		}
	}
	if shared == 0 {
		t.Error("no take shared a batch")
	}
}
