package engine_test

import (
	"slices"
	"testing"

	"weir/internal/engine"
	"weir/internal/engine/rule"
	"weir/internal/must"
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
		answers := engine.NewAsk(r).AnswerSize()
		for i := range r.Limits {
			pending := wire.Item{LimitCounter: rule.CounterOf([16]byte{}, &r.Limits[i], width), Limit: r.Limits[i].Max}
			answers += pending.AnswerSize()
		}
		must.AtMost(t, engine.AnswerBytes+answers, wire.MaxAnswer, "bytes of an answer, with a window of %d ns", width)
	}
}

// Takes of requests that wait together share a batch only if its answer has room for all of them.
func TestLargeTakesShareNoBatch(t *testing.T) {
	r := log(60e9)
	for i := range r.Limits {
		r.Limits[i].Max = 505 // of the largest, a take has half as many
	}
	takeOf := func(rules int) *engine.Ask { return engine.NewAsk(slices.Repeat([]*rule.Rule{r}, rules)...) }
	shared := 0
	for first := 1; first <= 12; first++ {
		for rules := 1; rules <= 12; rules++ {
			n := newProcess(t).start(second, fixed(5))
			b, more := n.NewBatch(), takeOf(rules)
			b.Add(takeOf(first))
			for b.Fits(more) {
				before := b.AnswerSize()
				b.Add(more)
				must.EqualOrEnd(t, b.AnswerSize()-before, more.AnswerSize(), "%d rules: bytes that an answer grows by", rules)
				shared++
			}
			body := b.Body()
			if _, err := wire.DecodePush(body); err != nil || len(body) > wire.MaxBody || b.AnswerSize() > wire.MaxAnswer {
				t.Errorf("takes of %d and %d rules: %d bytes, %v, whose answer has %d, want at most %d", first, rules, len(body), err, b.AnswerSize(), wire.MaxAnswer)
			}
		}
	}
	must.Equal(t, shared > 0, true, "takes share a batch")
}
