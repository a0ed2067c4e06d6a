package main

import (
	"math/rand/v2"
	"sort"

	"weir/bench/sim"
)

// periodic synchronises nodes as Kong's library does: every sync_rate a node pushes its hits, and
// gets the totals of all keys. In between it decides by these and its own hits, and no request
// waits. Nodes synchronise at different times. The simulated network takes no time, which favours
// this way.
func (f *fleet) periodic() outcome {
	j := f.judge()
	p := &sharing{totals: make([]history, f.keys), nodes: make([]sharer, f.nodes)}
	random := rand.New(rand.NewPCG(seed, 3))
	for i := range p.nodes {
		p.nodes[i] = sharer{nextSync: sim.Monday + random.Int64N(f.rate), own: map[int]own{}}
	}
	syncs := 0
	f.requests(func(at int64, node, _, key int) {
		n := &p.nodes[node]
		for n.nextSync <= at {
			p.sync(n, n.nextSync, f.rate)
			if n.nextSync >= f.from() {
				syncs++
			}
			n.nextSync += f.rate
		}
		window := (at - sim.Monday) / f.width
		o := n.own[key]
		if o.window != window {
			o = own{window: window}
		}
		passed := p.totals[key].at(n.synced, window)+o.pending < f.limit
		if passed {
			o.pending++
			n.own[key] = o
		}
		j.decided(key, at, at, passed)
	})
	// A node without requests synchronises too.
	j.out.calls = max(syncs, int(int64(f.nodes)*f.span/f.rate))
	return j.out
}

// sharing has the hits that nodes have and have pushed.
type sharing struct {
	totals []history // of keys
	nodes  []sharer
}

type sharer struct {
	nextSync, synced int64
	own              map[int]own // of keys, since the last sync
}

// own is a node's hits of a key that it has yet to push.
type own struct {
	window  int64
	pending uint64
}

// history is the recent growth of a key's total.
type history []grown

type grown struct {
	at, window int64
	total      uint64
}

// at returns the total known to a node that synchronised at heard. Later entries may come from
// nodes whose syncs are simulated late, for as long as the next sync of a node may be away.
func (h history) at(heard, window int64) uint64 {
	i := sort.Search(len(h), func(i int) bool { return h[i].at > heard })
	if i == 0 || h[i-1].window != window {
		return 0
	}
	return h[i-1].total
}

// sync adds a node's hits to the totals as of a time, and gives it the totals of that time.
func (p *sharing) sync(n *sharer, at, rate int64) {
	for key, o := range n.own {
		h := p.totals[key]
		if keep := sort.Search(len(h), func(i int) bool { return h[i].at > at-2*rate }); keep > 64 {
			h = append(h[:0], h[keep-1:]...)
		}
		// A node's syncs are simulated at its next request, so they may be out of order.
		i := sort.Search(len(h), func(i int) bool { return h[i].at > at })
		g := grown{at: at, window: o.window, total: o.pending}
		if i > 0 && h[i-1].window == o.window {
			g.total += h[i-1].total
		}
		h = append(h, grown{})
		copy(h[i+1:], h[i:])
		h[i] = g
		for k := i + 1; k < len(h) && h[k].window == o.window; k++ {
			h[k].total += o.pending
		}
		p.totals[key] = h
	}
	clear(n.own)
	n.synced = at
}
