package filter

import (
	"math"

	"weir/config"
	"weir/internal/jsonpath"
	"weir/internal/proxywasm"
	"weir/internal/usage"
)

// cost is where the number of hits comes from that a request, or its response, takes.
type cost struct {
	_ [0]func() // or else Go makes a function that compares values

	fixed uint64
	// selected takes the number from a property of the request, or if there is a path, from its body. A
	// request's cost is within least and most. A body that does not say it costs fixed, and unread says
	// what one costs that can't be read.
	selected    bool
	property    int
	path        *jsonpath.Path
	unread      config.Unread
	least, most uint64
	// responseHeader takes it from a header of the response.
	responseHeader string
}

// cost returns how many hits the current request takes. A value that is no number counts as 1.
func (r *request) cost(c *cost) uint64 {
	if !c.selected {
		return c.fixed
	}
	if c.path != nil {
		return r.bodyCost(c)
	}
	hits, ok := r.selectedCost(c, math.MaxUint64)
	if !ok {
		hits = 1
	}
	return min(max(hits, c.least), c.most)
}

// refusedCost is that of a request that is refused for what its body hides. None that a body says is as
// large.
const refusedCost = math.MaxUint64

// tooLargeCost is that of a request that takes more than its rule allows any. No limit has room for it.
const tooLargeCost = refusedCost - 1

// bodyCost returns the cost that the current request's body says, or its cost if the body says
// nothing. The client has written the body: where its upstream may read it otherwise, the most
// counts.
//
//go:noinline
func (r *request) bodyCost(c *cost) (hits uint64) {
	n := r.told.find(c.path)
	if n.Found {
		hits = min(max(n.Largest, c.least), c.most)
	}
	if !n.Sound {
		r.told.unread = true
		switch c.unread {
		case config.UnreadMost:
			return c.most
		case config.UnreadRefuse:
			return refusedCost
		}
	}
	if n.Lacking || !n.Sound {
		hits = max(hits, c.fixed)
	}
	return hits
}

// selectedCost returns the cost that a property of the current request says.
func (r *request) selectedCost(c *cost, most uint64) (hits uint64, ok bool) {
	value, there := r.value(c.property)
	return r.number(value, there, most)
}

// responseCost returns the cost that a header of the response says.
func (r *request) responseCost(header string) (hits uint64, ok bool) {
	value, there := proxywasm.ResponseHeader(header)
	return r.number(value, there, usage.Most)
}

// number reads a number that is there. One above most is not believed: as the cost of a response, which is
// taken whether or not there is room, it would use up a limit for as long as it counts.
func (r *request) number(value []byte, there bool, most uint64) (hits uint64, ok bool) {
	if !there {
		r.absentCosts++
		return 0, false
	}
	if hits, ok = parseHits(value); !ok || hits > most {
		r.badCosts++
		return 0, false
	}
	return hits, true
}

// parseHits reads ASCII digits. If a number is too large to represent, any other that is above
// every limit does as well.
func parseHits(digits []byte) (hits uint64, ok bool) {
	for _, d := range digits {
		switch d -= '0'; {
		case d > 9:
			return 0, false
		case hits > (math.MaxUint64-uint64(d))/10:
			hits = math.MaxUint64
		default:
			hits = 10*hits + uint64(d)
		}
	}
	return hits, len(digits) > 0
}
