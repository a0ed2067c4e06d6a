// Package lane runs one algorithm for the playground: requests in, decisions and pictures out.
//
// A lane is a rule with one limit and one key. It keeps its counter as a proxy does, in the bytes
// of package window, and describes answers with package fields, as the plugin does. So a lane
// decides what the plugin decides, and tells what the plugin tells.
package lane

import (
	"weir/internal/fields"
	"weir/window"
)

// Kind says what a lane counts with.
type Kind struct {
	// Name is the rule's in the header fields.
	Name string
	// limit is of so many hits per window.
	limit func(hits uint64, width int64, buckets int64) window.Limit
}

// Kinds are all lanes, in the order of the page.
var Kinds = [...]Kind{
	{"fixed-window", of(window.FixedWindow)},
	{"first-hit", of(window.FirstHitWindow)},
	{"sliding-window", of(window.SlidingWindow)},
	{"sub-buckets", func(hits uint64, width, buckets int64) window.Limit {
		return window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: width, Precision: width / max(buckets, 1)}, Max: hits}
	}},
	{"sliding-log", func(hits uint64, width, _ int64) window.Limit {
		return window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: width, Precision: window.LogPrecision}, Max: hits}
	}},
	{"token-bucket", func(hits uint64, width, _ int64) window.Limit {
		return window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: width}, Max: hits, Burst: hits}
	}},
}

func of(kind window.Kind) func(uint64, int64, int64) window.Limit {
	return func(hits uint64, width, _ int64) window.Limit {
		return window.Limit{Shape: window.Shape{Kind: kind, Width: width}, Max: hits}
	}
}

// Lane is a rule with one limit, and the counter of one key. It is not safe for concurrent use. The
// zero value is of no use: see [New].
type Lane struct {
	limit window.Limit
	rule  fields.Rule
	kept  []byte // the counter, as in shared data; empty before the first hit
	state window.State
	list  fields.List
}

// New returns a lane of a kind that has seen no hit. The limit is in hits per window, the window's
// width in nanoseconds; buckets is how many sub-buckets a window has, of the kind that has some.
// Unless the fault is [window.Sound], the lane is nil.
func New(kind Kind, hits uint64, width, buckets int64) (*Lane, window.Fault) {
	l := &Lane{limit: kind.limit(hits, width, buckets)}
	if fault := l.limit.Fault(); fault != window.Sound {
		return nil, fault
	}
	l.rule = fields.NewRule(kind.Name, []window.Limit{l.limit})
	return l, window.Sound
}

// Hit decides a request of one hit at a time in Unix nanoseconds, and counts it if it is allowed.
// Times don't go back.
// The fields are those of the response, until the next call.
func (l *Lane) Hit(now int64) (allowed bool, response []fields.Field) {
	l.advance(now)
	s := &l.state
	if allowed = l.limit.Allows(s, 1); allowed {
		l.limit.Count(s, 1)
		l.kept = l.limit.AppendState(l.kept[:0], s, false)
	}
	l.list.Begin(fields.Seconds, now)
	l.list.Rule(&l.rule, fields.All)
	l.list.Limit(l.limit.Standing(s, now))
	l.list.End()
	if !allowed {
		at, ok := l.limit.FitsAt(s, 1)
		l.list.Refuse(fields.All, at, ok)
	}
	return allowed, l.list.Fields()
}

// advance reads the counter, and brings it to the present.
func (l *Lane) advance(now int64) {
	if window.DecodeState(l.kept, &l.state) == 0 {
		l.state.Reset()
	}
	l.limit.Advance(&l.state, now)
}

// View holds what a lane knows at a time, for a picture of it. Ages are in nanoseconds before that
// time.
type View struct {
	window.Standing
	// Quota is the most hits that pass at once.
	Quota uint64
	// Used is how much of the quota is taken; of a sliding window the rate, which has fractions.
	Used float64
	// Age is how long ago the window began that counts now; of a token bucket, how long it has not
	// been full, less whole windows. It is negative if no hit has started one.
	Age int64
	// Current and Previous are the hits of that window and of the one before.
	Current, Previous uint64
	// Buckets are those of a bucketed kind that count, the oldest first.
	Buckets []Bucket
	// Size is how many bytes the counter takes in a proxy.
	Size int
}

// Bucket is hits that are counted together.
type Bucket struct {
	// Age is the beginning's.
	Age  int64
	Hits uint64
}

// Look fills v with what the lane knows at a time. It changes nothing of the lane, and uses the
// memory of v.Buckets.
func (l *Lane) Look(now int64, v *View) {
	l.advance(now)
	s := &l.state
	*v = View{
		Standing: l.limit.Standing(s, now),
		Quota:    l.limit.Quota(),
		Current:  s.Hits[0].Sum(),
		Previous: s.Hits[1].Sum(),
		Age:      -1,
		Buckets:  v.Buckets[:0],
		Size:     len(l.kept),
	}
	v.Used = float64(v.Quota - v.Remaining)
	switch kind := l.limit.Kind; {
	case kind.Clocked():
		v.Age = s.Newest % l.limit.Width
		if kind == window.SlidingWindow {
			v.Used = l.limit.Rate(s)
		}
	case kind.Started() && v.Current > 0:
		v.Age = s.Newest - s.Start
	}
	for i := range s.Buckets {
		v.Buckets = append(v.Buckets, Bucket{now - s.Buckets[i].Number*l.limit.Precision, s.Buckets[i].Sum()})
	}
}
