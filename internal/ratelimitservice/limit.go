package ratelimitservice

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"weir/config"
	"weir/ratelimit"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// mostPerUnit is the largest limit of the protocol.
const mostPerUnit = math.MaxUint32

const day = 24 * time.Hour

// units are the units of the rate limit service. Their windows start at multiples of the unit since
// the Unix epoch, and months have 30 days.
var units = map[pb.RateLimitResponse_RateLimit_Unit]time.Duration{
	pb.RateLimitResponse_RateLimit_SECOND: time.Second,
	pb.RateLimitResponse_RateLimit_MINUTE: time.Minute,
	pb.RateLimitResponse_RateLimit_HOUR:   time.Hour,
	pb.RateLimitResponse_RateLimit_DAY:    day,
	pb.RateLimitResponse_RateLimit_WEEK:   7 * day,
	pb.RateLimitResponse_RateLimit_MONTH:  30 * day,
	pb.RateLimitResponse_RateLimit_YEAR:   365 * day,
}

// periods are the windows of a calendar.
var periods = map[string]ratelimit.Period{"day": ratelimit.Day, "week": ratelimit.Week, "month": ratelimit.Month}

const (
	fixedWindow   = "fixed_window"
	slidingWindow = "sliding_window"
	slidingLog    = "sliding_log"
	tokenBucket   = "token_bucket"
)

// shape is a limit without its number of hits. One rule of the engine counts all limits of a shape.
type shape struct {
	algorithm string
	window    time.Duration
	firstHit  bool
	precision time.Duration // of a sliding_window; 0 for none
	// calendar says that windows are those of a period in a zone.
	calendar bool
	period   ratelimit.Period
	zone     string
	// log is the number of hits of a sliding_log, because a counter has room for no more.
	log uint64

	pace
}

// pace says how the rules of a namespace are decided.
type pace struct {
	// exact makes the store decide every request. Otherwise counters are pushed at syncRate; 0 is
	// the default.
	exact    bool
	syncRate time.Duration
	// countRejected makes refused hits count too.
	countRejected bool
}

// shapeOf returns the shape of a unit's windows.
func shapeOf(unit pb.RateLimitResponse_RateLimit_Unit, p pace) (s shape, ok bool) {
	window, ok := units[unit]
	return shape{algorithm: fixedWindow, window: window, pace: p}, ok
}

func (s shape) limit(hits, burst uint64) ratelimit.Limit {
	switch {
	case s.algorithm == tokenBucket:
		return ratelimit.TokenBucket(hits, s.window, cmp.Or(burst, hits, 1))
	case s.algorithm == slidingLog:
		return ratelimit.SlidingLog(hits, s.window)
	case s.algorithm == slidingWindow && s.precision != 0:
		return ratelimit.SlidingBuckets(hits, s.window, s.precision)
	case s.algorithm == slidingWindow:
		return ratelimit.SlidingWindow(hits, s.window)
	case s.calendar:
		return ratelimit.CalendarWindow(hits, s.period, s.zone, ratelimit.Anchor{})
	case s.firstHit:
		return ratelimit.FirstHitWindow(hits, s.window)
	}
	return ratelimit.FixedWindow(hits, s.window)
}

// rule returns the name of the rule that counts. A counter's identity contains the name, so the
// name has neither the limit nor the pace.
func (s shape) rule() string {
	if s.onClock() {
		if unit := s.unit(); unit != pb.RateLimitResponse_RateLimit_UNKNOWN {
			return strings.ToLower(unit.String())
		}
	}
	name := s.algorithm
	switch {
	case s.firstHit:
		name = "first_hit_window"
	case s.calendar:
		return name + "-" + periodName(s.period) + "-" + strings.NewReplacer("/", "-", "+", "p").Replace(s.zone)
	}
	name += "-" + millis(s.window)
	if s.precision != 0 {
		name += "-" + millis(s.precision)
	}
	return name
}

func millis(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

func periodName(p ratelimit.Period) string {
	for name, period := range periods {
		if period == p {
			return name
		}
	}
	return ""
}

// onClock reports whether windows start at multiples of their length, and all hits come back at
// their end.
func (s shape) onClock() bool { return s.algorithm == fixedWindow && !s.firstHit && !s.calendar }

// unit returns the protocol's unit that is as long as the window.
func (s shape) unit() pb.RateLimitResponse_RateLimit_Unit {
	for unit, window := range units {
		if window == s.window && !s.calendar {
			return unit
		}
	}
	return pb.RateLimitResponse_RateLimit_UNKNOWN
}

// shape reads the shape of a rate_limit.
func (r *reader) shape(l *RateLimit) (s shape) {
	s = shape{algorithm: cmp.Or(l.algorithm, fixedWindow), pace: pace{countRejected: l.CountRejected}}
	fail := func(field, format string, args ...any) {
		r.fail(l.at.has(field), format, args...)
	}
	if s.algorithm == "in_flight" {
		fail("algorithm", "want another algorithm than in_flight: only Weir's plugin learns when a request has ended")
		return s
	}
	if algorithms := []string{fixedWindow, slidingWindow, slidingLog, tokenBucket}; !slices.Contains(algorithms, s.algorithm) {
		fail("algorithm", "want %s, got %.80q", strings.Join(algorithms, ", "), l.algorithm)
		return s
	}
	if l.SyncRate != nil {
		s.exact, s.syncRate = *l.SyncRate == 0, *l.SyncRate
	}
	period, ofCalendar := periods[l.window]
	unit, known := pb.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(l.unit)]
	known = known && unit != 0
	switch {
	case l.window == "" && known:
		s.window = units[pb.RateLimitResponse_RateLimit_Unit(unit)]
	case l.window == "":
		names := []string{}
		for _, unit := range slices.Sorted(maps.Keys(pb.RateLimitResponse_RateLimit_Unit_name))[1:] {
			names = append(names, strings.ToLower(pb.RateLimitResponse_RateLimit_Unit_name[unit]))
		}
		fail("unit", "want %s, got %.80q", strings.Join(names, ", "), l.unit)
	case l.unit != "":
		fail("unit", "want a unit or a window, not both")
	case ofCalendar && s.algorithm == fixedWindow:
		s.calendar, s.period, s.zone = true, period, cmp.Or(l.zone, "UTC")
	default:
		s.window = r.span(l.window, func() {
			fail("window", "want a duration such as 90s, or for a fixed_window day, week or month, got %.80q", l.window)
		})
	}
	if l.zone != "" && !s.calendar {
		fail("zone", "want a zone only with the window day, week or month")
	}
	switch {
	case l.start == "" || l.start == "clock" && s.algorithm == fixedWindow:
	case l.start == "first_hit" && s.algorithm == fixedWindow && !s.calendar:
		s.firstHit = true
	default:
		fail("start", "want clock or first_hit, for a fixed_window outside of the calendar, got %.80q", l.start)
	}
	if l.precision != "" {
		s.precision = r.span(l.precision, func() { fail("precision", "want a duration such as 10s, got %.80q", l.precision) })
		if s.algorithm != slidingWindow {
			fail("precision", "want a precision only for a sliding_window")
		}
	}
	if l.Burst != 0 && s.algorithm != tokenBucket {
		fail("burst", "want a burst only for a token_bucket")
	}
	if s.algorithm == slidingLog {
		s.log = l.Hits
	}
	return s
}

// span reads a duration.
func (*reader) span(text string, fail func()) time.Duration {
	d, ok := config.ParseDuration(text)
	if !ok {
		fail()
	}
	return time.Duration(d)
}
