package filter

import (
	"math"
	"math/bits"

	"weir/config"
	"weir/internal/proxywasm"
	"weir/internal/usage"
)

// cost says where the cost of a request or of its response comes from.
type cost struct {
	_ [0]func() // keeps Go from generating an equality function

	fixed uint64
	// selected takes the cost from a property of the request or, if body is not nil, from its body.
	// A request's cost lies within least and most. A body that does not say it costs fixed.
	selected    bool
	property    int
	body        *config.BodyCost
	asks        bool // see rule
	absent      []absentNumber
	least, most uint64
	// responseHeader takes the cost from a header of the response.
	responseHeader string
}

// cost returns the number of hits that the current request takes. A value that is not a number
// counts as 1.
func (r *request) cost(c *cost) uint64 {
	if !c.selected {
		return c.fixed
	}
	if c.body != nil {
		hits, prompt := r.bodyCost(c)
		if hits < refusedCost-1-prompt {
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

// refusedCost is the cost of a request that is refused because its body hides its cost. It is above
// any cost in a body.
const refusedCost = math.MaxUint64

// tooLargeCost is the cost of a request above its rule's bound. No limit has room for it.
const tooLargeCost = refusedCost - 1

// bodyCost returns the cost in the current request's body, or the cost for bodies without one, and
// that of its prompt. Clients write the body, so if the upstream might read it differently, the highest
// possible cost counts.
func (r *request) bodyCost(c *cost) (hits, prompt uint64) {
	unread := c.body.Unread
	if c.body.BytesPerToken != 0 {
		size, known := r.body.bodySize()
		prompt = min((size+c.body.BytesPerToken-1)/c.body.BytesPerToken, c.body.PromptMost)
		if !known {
			if unread = c.body.Unsized; unread != config.UnreadDefault {
				prompt = c.body.PromptMost
			}
		}
	}
	n := r.body.numbersOf(c.body)
	if most := r.body.mostTokens(c); n.Largest > most || !n.Found && c.fixed > most {
		n.Largest, n.Found, n.Lacking = most, true, false
	}
	if n.Found {
		hits = min(max(n.Largest, c.least), c.most)
	}
	times := uint64(1)
	if c.body.Times != nil {
		t := r.body.numbersAt(c.body.Times)
		times, n.Sound = max(1, t.Largest), n.Sound && t.Sound
	}
	if c.asks && r.body.isUnasked() {
		n.Sound = false
	}
	if !n.Sound {
		r.body.unread = true
		switch unread {
		case config.UnreadMost:
			hits = c.most
		case config.UnreadRefuse:
			return refusedCost, prompt
		}
	}
	if n.Lacking || !n.Sound {
		hits = max(hits, c.fixed)
	}
	if above, low := bits.Mul64(hits, times); above == 0 {
		return min(low, refusedCost-1), prompt
	}
	return refusedCost - 1, prompt
}

// selectedCost returns the cost in a property of the current request.
func (r *request) selectedCost(c *cost, most uint64) (hits uint64, ok bool) {
	value, there := r.value(c.property)
	return r.readNumber(value, there, most)
}

// responseCost returns the cost in a header of the response.
func (r *request) responseCost(header string) (hits uint64, ok bool) {
	value, there := proxywasm.ResponseHeader(header)
	return r.readNumber(value, there, usage.Most)
}

// readNumber reads a number if there is one, and rejects numbers above most. The cost of a response
// is charged whether or not there is room, so too large a number would use up the limit for as long
// as it counts.
func (r *request) readNumber(value []byte, there bool, most uint64) (hits uint64, ok bool) {
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

// parseHits reads ASCII digits. For a number too large to represent it returns another number that
// is above every limit.
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

// statusOf returns the status that a header has, 0 if there is none.
func statusOf(header []byte, there bool) int {
	if status, ok := parseHits(header); there && ok && len(header) == 3 {
		return int(status)
	}
	return 0
}

// bodySize returns the size of the current request's body, as far as it is known, and whether it is
// known.
func (v *bodyValues) bodySize() (bytes uint64, known bool) {
	if v == nil {
		return 0, true // there is no body
	}
	bytes = uint64(v.size)
	if v.whole {
		return bytes, true
	}
	value, _ := proxywasm.RequestHeader("content-length")
	if length, sized := parseHits(value); sized {
		return max(bytes, min(length, math.MaxInt64)), !isCompressed()
	}
	return bytes, isTunnel(true)
}
