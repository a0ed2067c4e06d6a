//go:build wasip1

// Command engine is the playground's lanes as WebAssembly, for `site/engine.js`. It is a reactor:
// the page calls its functions on numbers, and reads what they leave in memory. Go's runtime asks 40
// lines of WASI for. With GOOS=js it would need Go's wasm_exec.js and a call of syscall/js for each value,
// and be larger. The algorithms are those of package window, so no second set could differ.
package main

import (
	"unsafe"

	"weir/playground/lane"
	"weir/window"
)

func main() {}

// A lane must be set before other calls name it.
var (
	lanes [len(lane.Kinds)]*lane.Lane
	view  lane.View
	// numbers and text are the results of the last call, for the page to read.
	numbers []float64
	text    []byte
	waits   int64
)

// count returns the number of lanes.
//
//go:wasmexport count
func count() uint32 { return uint32(len(lanes)) }

// set gives a lane a limit, and forgets its hits. It returns a [window.Fault]. Unless that is
// [window.Sound], the lane is unchanged.
//
//go:wasmexport set
func set(i uint32, hits, width, buckets int64) uint32 {
	l, fault := lane.New(lane.Kinds[i], uint64(hits), width, buckets)
	if fault == window.Sound {
		lanes[i] = l
	}
	return uint32(fault)
}

// holds returns 1 if requests of a lane hold places until release, and 0 if not.
//
//go:wasmexport holds
func holds(i uint32) uint32 { return number(lane.Kinds[i].Holds) }

// release ends the request that has held a place in a lane for longest.
//
//go:wasmexport release
func release(i uint32, now int64) { lanes[i].Release(now) }

// waitNanos returns how long the last request that was sent waits, in nanoseconds.
//
//go:wasmexport wait_nanos
func waitNanos() int64 { return waits }

// hit sends a request to a lane. It returns 1 if the request is allowed, at once or later, and 0 if
// not. It leaves the fields of the response in text, a line for each.
//
//go:wasmexport hit
func hit(i uint32, now int64) uint32 {
	o := lanes[i].Hit(now)
	text, waits = text[:0], o.Wait
	for _, f := range o.Response {
		text = append(append(append(append(text, f.Name...), ": "...), f.Value...), '\n')
	}
	return number(o.Allowed)
}

func number(is bool) uint32 {
	if is {
		return 1
	}
	return 0
}

// look leaves the state of a lane in numbers, and returns how many they are.
//
//go:wasmexport look
func look(i uint32, now int64) uint32 {
	lanes[i].Look(now, &view)
	numbers = append(numbers[:0], float64(view.Quota), float64(view.Remaining), view.Used, float64(view.Next), float64(view.Reset),
		float64(view.Age), float64(view.Current), float64(view.Previous), float64(view.Size))
	for _, b := range view.Buckets {
		numbers = append(numbers, float64(b.Age), float64(b.Hits))
	}
	return uint32(len(numbers))
}

//go:wasmexport numbers_at
func numbersAt() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(numbers)) }

//go:wasmexport text_at
func textAt() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(text)) }

//go:wasmexport text_length
func textLength() uint32 { return uint32(len(text)) }
