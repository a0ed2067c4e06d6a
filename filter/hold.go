package filter

import (
	"weir/internal/engine"
	"weir/window"
)

// renewedPerTick bounds the requests whose places are renewed in one tick.
const renewedPerTick = 4096

// holder is a request that holds places.
type holder interface {
	// renewPlaces keeps its places counted. It gives back those that were held for too long, and
	// returns their number.
	renewPlaces(now int64) (lost uint64)
	// eachCharge calls visit with each charge that holds places, until visit returns false.
	eachCharge(visit func(c *engine.Charge, since int64) (more bool)) (more bool)
}

// holding is a holder's element in the list of its plugin context. It lives in the holder's own
// memory.
type holding struct {
	_ [0]func() // keeps Go from generating an equality function

	holder        holder
	holders       *holders // nil while it holds nothing
	before, after *holding
	renewed       int64
	since         int64 // when it was first added, by the host's clock
}

// holders are the requests of a plugin context that hold places, in the order of their last
// renewal.
type holders struct {
	_ [0]func() // keeps Go from generating an equality function

	first, last *holding
	// lost counts the places that were held for too long and given back.
	lost uint64
	// places is how many are held now.
	places uint64
}

// eachCharge calls visit with each charge that holds places, until visit returns false.
func (h *holders) eachCharge(visit func(c *engine.Charge, since int64) (more bool)) {
	for at := h.first; at != nil && at.holder.eachCharge(visit); at = at.after {
	}
}

// add adds a request that holds places, or adds it again.
func (h *holders) add(added *holding, now int64) {
	h.remove(added)
	added.holders, added.renewed, added.before, added.after = h, now, h.last, nil
	if h.last == nil {
		h.first = added
	} else {
		h.last.after = added
	}
	h.last = added
}

// remove removes a request, if it is in the list.
func (h *holders) remove(gone *holding) {
	if gone.holders == nil {
		return
	}
	if gone.before == nil {
		h.first = gone.after
	} else {
		gone.before.after = gone.after
	}
	if gone.after == nil {
		h.last = gone.before
	} else {
		gone.after.before = gone.before
	}
	gone.holders, gone.before, gone.after = nil, nil, nil
}

// renewPlaces renews the places that are due, and reports whether there were any.
func (h *holders) renewPlaces(now int64) (renewed bool) {
	for range renewedPerTick {
		first := h.first
		if first == nil || now >= first.renewed && now-first.renewed < window.RenewEvery {
			break
		}
		h.add(first, now)
		h.lost += first.holder.renewPlaces(now)
		renewed = true
	}
	return renewed
}
