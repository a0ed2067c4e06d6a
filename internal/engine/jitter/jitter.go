// Package jitter spreads what workers and processes do, so that they do not all do it at once.
package jitter

import "math/bits"

const (
	// shortestPause is the first pause for which what fails is left alone, in nanoseconds.
	shortestPause = int64(50e6)
	// LongestPause bounds the pauses, which double.
	LongestPause = int64(5e9)
)

// Random returns 64 random bits at each call.
type Random func() uint64

// Below returns a random number from 0 to n-1. n is so far below 2^64 that the bias is negligible.
func (r Random) Below(n int64) int64 {
	below, _ := bits.Mul64(r(), uint64(n))
	return int64(below)
}

// Around returns a random time, half to one and a half times as long as the given.
//
//go:noinline
func (r Random) Around(nanos int64) int64 { return nanos/2 + r.Below(nanos) }

// Fraction returns a random number of [0, 1).
func (r Random) Fraction() float64 { return float64(r()<<11>>11) / (1 << 53) }

// Pause is how long to leave alone what has failed before, in nanoseconds.
//
//go:noinline
func (r Random) Pause(failures int) int64 {
	return r.Around(min(shortestPause<<min(failures, 10), LongestPause))
}
