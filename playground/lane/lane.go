// Package lane runs an algorithm for the playground: requests in, decisions and data for pictures
// out.
//
// A lane is a rule with one limit and one key. It keeps its counter in the bytes of package window,
// as a proxy does, and describes responses with package fields, as the plugin does. So a lane
// decides and answers as the plugin does.
package lane

import (
	"weir/internal/fields"
	"weir/window"
)

// Kind is the kind of counter that a lane has.
type Kind struct {
	// Name is the rule's name in the header fields.
	Name string
	// Holds says that a request holds a place until [Lane.Release]. Waits says that a request waits
	// for room; the limit is then also the most requests that wait.
	Holds, Waits bool
	// limit returns a limit of hits per window.
	limit func(hits uint64, width int64, buckets int64) window.Limit
}

// Kinds are all kinds of lanes, in the order of the page.
var Kinds = [...]Kind{
	{Name: "fixed-window", limit: of(window.FixedWindow)},
	{Name: "first-hit", limit: of(window.FirstHitWindow)},
	{Name: "sliding-window", limit: of(window.SlidingWindow)},
	{Name: "sub-buckets", limit: func(hits uint64, width, buckets int64) window.Limit {
		return window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: width, Precision: width / max(buckets, 1)}, Max: hits}
	}},
	{Name: "sliding-log", limit: func(hits uint64, width, _ int64) window.Limit {
		return window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: width, Precision: window.LogPrecision}, Max: hits}
	}},
	{Name: "token-bucket", limit: func(hits uint64, width, _ int64) window.Limit {
		return window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: width}, Max: hits, Burst: hits}
	}},
	{Name: "in-flight", Holds: true, limit: func(hits uint64, _, _ int64) window.Limit { return window.NewInFlight(hits) }},
	{Name: "queue", Waits: true, limit: func(hits uint64, width, _ int64) window.Limit {
		return window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: width}, Max: hits, Burst: 1}
	}},
}

func of(kind window.Kind) func(uint64, int64, int64) window.Limit {
	return func(hits uint64, width, _ int64) window.Limit {
		return window.Limit{Shape: window.Shape{Kind: kind, Width: width}, Max: hits}
	}
}

// Lane is a rule with one limit, and the counter of one key. It is not safe for concurrent use. The
// zero value is not usable: see [New].
type Lane struct {
	kind  Kind
	limit window.Limit
	rule  fields.Rule
	kept  []byte // the counter, as in shared data; empty before the first hit
	state window.State
	list  fields.List
	// held has the buckets of the places that requests hold, oldest first.
	held []uint64
	// lets are the times at which waiting requests continue, and ahead is the counter at the last
	// of them.
	lets  []int64
	ahead []byte
}

// Outcome is the decision on a request.
type Outcome struct {
	Allowed bool
	// Wait is how long an allowed request waits, in nanoseconds.
	Wait int64
	// Response has the fields of the response. They are valid until the next call.
	Response []fields.Field
}

// New returns a lane without hits. The limit is hits per window, and width is the window's, in
// nanoseconds. buckets is the number of sub-buckets in a window, for the kind that has some. Unless
// the fault is [window.Sound], the lane is nil.
func New(kind Kind, hits uint64, width, buckets int64) (*Lane, window.Fault) {
	l := &Lane{kind: kind, limit: kind.limit(hits, width, buckets)}
	if fault := l.limit.Fault(); fault != window.Sound {
		return nil, fault
	}
	unit := fields.Requests
	if kind.Holds {
		unit = fields.ConcurrentRequests
	}
	l.rule = fields.NewRule(kind.Name, []window.Limit{l.limit}, unit)
	return l, window.Sound
}

// Hit decides a request of one hit at a time in Unix nanoseconds, and counts the hit if it is
// allowed. Times must not go back.
func (l *Lane) Hit(now int64) Outcome {
	l.advance(now)
	s := &l.state
	o := Outcome{Allowed: len(l.lets) == 0 && l.limit.Allows(s, 1)}
	if o.Allowed {
		l.limit.Count(s, 1)
		l.kept = window.AppendState(l.kept[:0], &l.limit, s, false)
		l.ahead = append(l.ahead[:0], l.kept...)
		if l.kind.Holds {
			l.held = append(l.held, l.limit.Number(s))
		}
	} else if l.kind.Waits && uint64(len(l.lets)) < l.limit.Max {
		o.Allowed, o.Wait = true, l.wait()-now
	}
	l.list.Begin(fields.Seconds, now+o.Wait)
	l.list.Rule(&l.rule, fields.All)
	l.list.Limit(l.limit.Standing(s, now+o.Wait))
	l.list.End()
	switch {
	case !o.Allowed:
		at, ok := l.limit.FitsAt(s, 1)
		l.list.Refuse(fields.All, at, ok)
	case o.Wait > 0:
		l.list.Delayed(o.Wait)
	}
	o.Response = l.list.Fields()
	return o
}

// wait puts a request behind the others that wait, and returns the time at which it continues. The
// state is that of this time.
func (l *Lane) wait() (at int64) {
	s := &l.state
	window.DecodeState(l.ahead, s)
	at, _ = l.limit.FitsAt(s, 1)
	l.limit.Advance(s, at)
	l.limit.Count(s, 1)
	l.ahead = window.AppendState(l.ahead[:0], &l.limit, s, false)
	l.lets = append(l.lets, at)
	return at
}

// Release gives back the place that a request has held for longest.
func (l *Lane) Release(now int64) {
	if len(l.held) == 0 {
		return
	}
	l.advance(now)
	l.limit.GiveBack(&l.state, l.held[0], 1)
	l.kept = window.AppendState(l.kept[:0], &l.limit, &l.state, false)
	l.held = append(l.held[:0], l.held[1:]...)
}

// advance reads the counter, and brings it to the present. Waiting requests that have room by then
// continue.
func (l *Lane) advance(now int64) {
	s := &l.state
	if window.DecodeState(l.kept, s) == 0 {
		s.Reset()
	}
	for len(l.lets) > 0 && l.lets[0] <= now {
		l.limit.Advance(s, l.lets[0])
		l.limit.Count(s, 1)
		l.kept = window.AppendState(l.kept[:0], &l.limit, s, false)
		l.lets = append(l.lets[:0], l.lets[1:]...)
	}
	l.limit.Advance(s, now)
}

// View is the state of a lane at a time, for a picture of it. Ages are in nanoseconds before that
// time.
type View struct {
	window.Standing
	// Quota is the most hits that pass at once. In a lane that waits, Quota is the most requests
	// that wait, Remaining is how many more may wait, and Next is how long the first still waits.
	Quota uint64
	// Used is the used part of the quota. For a sliding window it is the rate, which has fractions.
	Used float64
	// Age is the age of the window that counts now. For a token bucket it is the time since the
	// bucket was last full, less whole windows. It is negative if no hit has started a window.
	Age int64
	// Current and Previous are the hits of that window and of the window before.
	Current, Previous uint64
	// Buckets are the buckets that count, oldest first, for kinds with buckets.
	Buckets []Bucket
	// Size is the size of the counter in a proxy, in bytes.
	Size int
}

// Bucket is a number of hits that are counted together.
type Bucket struct {
	// Age is that of the bucket's beginning.
	Age  int64
	Hits uint64
}

// Look fills v with the state of the lane at a time, and reuses the memory of v.Buckets. The lane
// does not change.
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
	if l.kind.Waits {
		v.Quota = l.limit.Max
		v.Remaining = v.Quota - uint64(len(l.lets))
		if len(l.lets) > 0 {
			v.Next = l.lets[0] - now
		}
	}
	v.Used = float64(v.Quota - v.Remaining)
	switch kind := l.limit.Kind; {
	case kind.Clocked():
		v.Age = s.Newest % l.limit.Width
		if kind == window.SlidingWindow {
			v.Used = window.Rate(&l.limit, s)
		}
	case kind.Started() && v.Current > 0 && !l.kind.Waits:
		v.Age = s.Newest - s.Start
	}
	for i := range s.Buckets {
		v.Buckets = append(v.Buckets, Bucket{now - s.Buckets[i].Number*l.limit.Precision, s.Buckets[i].Sum()})
	}
}
