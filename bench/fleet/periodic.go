package main

import (
	"math/rand/v2"
	"sort"

	"weir/bench/sim"
)

// periodic is how Kong's library keeps nodes in step: every sync_rate a node pushes what it has counted, and gets the totals of all
// keys. In between it decides on these and its own hits, and nobody waits. Nodes are not in step with each other, and the way to
// the backend takes no time, which flatters it.
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
	// A node without requests syncs all the same.
	j.out.calls = max(syncs, int(int64(f.nodes)*f.span/f.rate))
	return j.out
}

// sharing has the nodes, and the totals that they have told.
type sharing struct {
	totals []history // of keys
	nodes  []sharer
}

type sharer struct {
	nextSync, synced int64
	own              map[int]own // of keys, since the last sync
}

// own are a node's hits of a key that it has yet to push.
type own struct {
	window  int64
	pending uint64
}

// history is how the total of a key has grown of late.
type history []grown

type grown struct {
	at, window int64
	total      uint64
}

// at returns the total by a node that has heard of all totals at a time. Later changes are those of nodes whose syncs were brought up to
// date later, for as long as a sync takes to come.
func (h history) at(heard, window int64) uint64 {
	i := sort.Search(len(h), func(i int) bool { return h[i].at > heard })
	if i == 0 || h[i-1].window != window {
		return 0
	}
	return h[i-1].total
}

// sync adds a node's hits to the totals as of a time, and has it hear those of then.
func (p *sharing) sync(n *sharer, at, rate int64) {
	for key, o := range n.own {
		h := p.totals[key]
		if keep := sort.Search(len(h), func(i int) bool { return h[i].at > at-2*rate }); keep > 64 {
			h = append(h[:0], h[keep-1:]...)
		}
		// Nodes are brought up to date at their next request, which may be out of order.
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
