package filter

import (
	"math"
	"math/bits"

	"weir/config"
	"weir/internal/proxywasm"
	"weir/internal/usage"
)

// cost is where the number of hits comes from that a request, or its response, takes.
type cost struct {
	_ [0]func() // or else Go makes a function that compares values

	fixed uint64
	// selected takes the number from a property of the request, or if body is not nil, from its body. A
	// request's cost is within least and most. A body that does not say it costs fixed.
	selected    bool
	property    int
	body        *config.BodyCost
	least, most uint64
	// responseHeader takes it from a header of the response.
	responseHeader string
}

// cost returns how many hits the current request takes. A value that is no number counts as 1.
func (r *request) cost(c *cost) uint64 {
	if !c.selected {
		return c.fixed
	}
	if c.body != nil {
		hits := r.bodyCost(c)
		if prompt := r.promptTokens(c.body.BytesPerToken); hits < refusedCost-1-prompt {
			hits += prompt
		}
		return hits
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
	n := r.told.findAll(c.body)
	if n.Found {
		hits = min(max(n.Largest, c.least), c.most)
	}
	times := uint64(1)
	if c.body.Times != nil {
		t := r.told.find(c.body.Times)
		times, n.Sound = max(1, t.Largest), n.Sound && t.Sound
	}
	if !n.Sound {
		r.told.unread = true
		switch c.body.Unread {
		case config.UnreadMost:
			return c.most
		case config.UnreadRefuse:
			return refusedCost
		}
	}
	if n.Lacking || !n.Sound {
		hits = max(hits, c.fixed)
	}
	if above, low := bits.Mul64(hits, times); above == 0 {
		return min(low, refusedCost-1)
	}
	return refusedCost - 1
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

// promptTokens estimates how many tokens the current request's body has, by its length.
func (r *request) promptTokens(bytesPerToken uint64) uint64 {
	if bytesPerToken == 0 || r.told == nil {
		return 0
	}
	size := uint64(r.told.size)
	if value, ok := proxywasm.RequestHeader("content-length"); ok {
		if length, ok := parseHits(value); ok {
			size = max(size, min(length, math.MaxInt64))
		}
	}
	return (size + bytesPerToken - 1) / bytesPerToken
}
