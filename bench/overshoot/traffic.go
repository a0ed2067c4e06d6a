package main

import (
	"iter"
	"math/rand/v2"
	"slices"
)

// arrival is a request to a worker of a node.
type arrival struct {
	at     int64
	place  int
	worker int
}

// traffic decides when requests come, and to which node.
type traffic struct {
	name string
	// hot is the share of a node that gets more than the others; 0 if none does.
	hot float64
	// moves means that the hot node changes from time to time.
	moves bool
	// bursts means that requests come in bursts, to all nodes at the same time, with silence in
	// between.
	bursts bool
}

// hotShare is the share of the hot node: with ten nodes, each of the others has 1 %.
const hotShare = 0.91

var kinds = []traffic{
	{name: "even"},
	{name: "skewed", hot: hotShare},
	{name: "moving", hot: hotShare, moves: true},
	{name: "on/off", bursts: true},
}

const (
	// A burst takes a tenth of a window on average, and a silence three tenths. Both vary by up to
	// a half.
	burstShare, silenceShare = 0.1, 0.3
	// hotStays is how long a node stays hot, or half a window if that is shorter.
	hotStays = 7 * second
)

// change is a change of a node's state.
type change struct {
	at    int64
	place int
	what  membership
}

type membership uint8

const (
	joins   membership = iota // a node starts
	leaves                    // a node is drained, and ends
	crashes                   // a node ends at once
)

// flow is traffic at a rate.
type flow struct {
	traffic
	seed           uint64
	nodes, workers int
	width          int64   // of the limit's window
	rate           float64 // requests per window, on average
	start, end     int64
	changes        []change
}

// arrivals yields Poisson arrivals at a rate that is steady outside of silences. They are the same
// every time.
func (f *flow) arrivals() iter.Seq[arrival] {
	return func(yield func(arrival) bool) {
		random := rand.New(rand.NewPCG(f.seed, 2))
		alive := make([]int, f.nodes)
		for place := range alive {
			alive[place] = place
		}
		changes := f.changes
		gap, edge, silent := float64(f.width)/f.rate, f.end, false
		if f.bursts {
			gap *= burstShare / (burstShare + silenceShare)
			edge, silent = f.start, false
		}
		for at := f.start; ; {
			if next := at + int64(random.ExpFloat64()*gap); silent || next >= edge {
				// The rest of the gap can be dropped: an exponential gap has no memory.
				if at = edge; at >= f.end {
					return
				}
				silent = !silent
				share := burstShare
				if silent {
					share = silenceShare
				}
				edge = min(f.end, at+int64(share*float64(f.width)*(0.5+random.Float64())))
				continue
			} else {
				at = next
			}
			for ; len(changes) > 0 && changes[0].at <= at; changes = changes[1:] {
				place := changes[0].place
				if alive = slices.DeleteFunc(alive, func(p int) bool { return p == place }); changes[0].what == joins {
					alive = append(alive, place)
				}
			}
			if !yield(arrival{at: at, place: f.place(random, at, alive), worker: random.IntN(f.workers)}) {
				return
			}
		}
	}
}

// place draws the node for a request. If the hot node is not there, any node gets its requests.
func (f *flow) place(random *rand.Rand, at int64, alive []int) int {
	other := alive[random.IntN(len(alive))]
	if f.hot == 0 {
		return other
	}
	hot := 0
	if f.moves {
		hot = int((at-f.start)/min(hotStays, f.width/2)) % f.nodes
	}
	switch {
	case !slices.Contains(alive, hot):
		return other
	case random.Float64() < f.hot:
		return hot
	}
	for other == hot {
		other = alive[random.IntN(len(alive))]
	}
	return other
}
