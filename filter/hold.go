package filter

import (
	"weir/internal/node"
	"weir/window"
)

// renewedPerTick bounds the requests whose places are renewed in a tick.
const renewedPerTick = 4096

// holder is a request that holds something.
type holder interface {
	// renew has the places that it holds count on, and returns how many it has held for too long. These
	// are given back.
	renew(now int64) (lost uint64)
	// held calls visit with each charge that it holds, as long as that wants more.
	held(visit func(c *node.Charge, since int64) (more bool)) (more bool)
}

// holding is the place of a holder among those of its plugin context. It is part of the holder's own
// memory.
type holding struct {
	_ [0]func() // or else Go makes a function that compares values

	holder        holder
	holders       *holders // nil if it holds nothing
	before, after *holding
	renewed       int64
	since         int64 // when it was added first, by the host's clock
}

// holders are the requests of a plugin context that hold places, those first that were renewed longest ago.
type holders struct {
	_ [0]func() // or else Go makes a function that compares values

	first, last *holding
	// lost are places that were held for too long, and are taken for lost.
	lost uint64
	// places are held now.
	places uint64
}

// each calls visit with what the requests hold, as long as that wants more.
func (h *holders) each(visit func(c *node.Charge, since int64) (more bool)) {
	for at := h.first; at != nil && at.holder.held(visit); at = at.after {
	}
}

// add adds a request that holds something from now on, or once more.
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

// remove removes a request, if it is there.
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

// renew renews what is due, and reports whether that was anything.
func (h *holders) renew(now int64) (renewed bool) {
	for range renewedPerTick {
		first := h.first
		if first == nil || now >= first.renewed && now-first.renewed < window.RenewEvery {
			break
		}
		h.add(first, now)
		h.lost += first.holder.renew(now)
		renewed = true
	}
	return renewed
}
