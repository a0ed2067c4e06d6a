//go:build wasip1

// Command engine is the playground's two proxies as WebAssembly, for `site/pair.js`. It is a module of its own
// because it has the engine, the store and the wire, which a page needs only when somebody reads as far.
package main

import (
	"unsafe"

	"weir/playground/pair"
)

func main() {}

var (
	proxies *pair.Pair
	// numbers are the result of the last look, for the page to read.
	numbers []float64
)

// set starts two proxies with a limit that the page offers, all of which can be.
//
//go:wasmexport set
func set(hits, width int64) { proxies, _ = pair.New(uint64(hits), width) }

// hit sends a request to a proxy.
//
//go:wasmexport hit
func hit(proxy uint32) { proxies.Hit(int(proxy)) }

// away takes the backend away, or brings it back.
//
//go:wasmexport away
func away(away uint32) { proxies.Away(away != 0) }

// look lets time pass, in nanoseconds, leaves the state in numbers, and returns how many they are.
//
//go:wasmexport look
func look(nanos int64) uint32 {
	proxies.Advance(nanos)
	numbers = proxies.AppendView(numbers[:0])
	return uint32(len(numbers))
}

//go:wasmexport numbers_at
func numbersAt() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(numbers)) }
