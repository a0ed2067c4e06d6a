package simulate

import "time"

// mostSteps is the most steps of a timeline.
const mostSteps = 120

// widths are the lengths of steps, in round numbers. Each is a multiple of the width before. Beyond
// the last, lengths double.
var widths = [...]time.Duration{
	time.Second, 2 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// timeline counts requests in steps of time. The steps get longer as the logs span more time.
type timeline struct {
	start, width int64 // in Unix nanoseconds
	longer       int   // the index in widths of the next width
	steps        []step
}

type step struct{ requests, refused uint64 }

// add counts a request. A time before the first counts as the first.
func (t *timeline) add(at int64, refused bool) {
	if t.width == 0 {
		t.start, t.width, t.longer = at, int64(widths[0]), 1
	}
	i := max(0, at-t.start) / t.width
	for ; i >= mostSteps; i = (at - t.start) / t.width {
		t.lengthen()
	}
	for int64(len(t.steps)) <= i {
		t.steps = append(t.steps, step{})
	}
	t.steps[i].requests++
	if refused {
		t.steps[i].refused++
	}
}

// lengthen joins steps to longer steps.
func (t *timeline) lengthen() {
	joined := 2
	if t.longer < len(widths) {
		joined = int(int64(widths[t.longer]) / t.width)
		t.longer++
	}
	t.width *= int64(joined)
	for j := range t.steps {
		s := t.steps[j]
		t.steps[j] = step{}
		t.steps[j/joined].requests += s.requests
		t.steps[j/joined].refused += s.refused
	}
	t.steps = t.steps[:(len(t.steps)+joined-1)/joined]
}

// report returns the timeline in the form of a report.
func (t *timeline) report() []Step {
	steps := make([]Step, len(t.steps))
	for i, s := range t.steps {
		steps[i] = Step{From: time.Unix(0, t.start+int64(i)*t.width).UTC(), Seconds: time.Duration(t.width).Seconds(), Requests: s.requests, Refused: s.refused}
	}
	return steps
}
