package node

import "math/bits"

// Random gives 64 random bits with each call.
type Random func() uint64

// below is a random number from 0 to n-1. n is so far below 2^64 that all of them are as good as
// equally likely.
func (r Random) below(n int64) int64 {
	below, _ := bits.Mul64(r(), uint64(n))
	return int64(below)
}

// around is a random time that is as long as the one given on average, and at least half as long.
//
//go:noinline
func (r Random) around(nanos int64) int64 { return nanos/2 + r.below(nanos) }

// fraction is a random number from 0 up to, but not, 1.
func (r Random) fraction() float64 { return float64(r()<<11>>11) / (1 << 53) }
