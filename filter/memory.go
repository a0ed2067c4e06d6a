package filter

// Bounds of reused memory.
const (
	// maxIdle bounds the streams, and other values of one request each, that are kept for reuse.
	maxIdle = 1024
	// maxIdleReaders bounds the body readers that are kept for reuse.
	maxIdleReaders = 256
	// maxIdleKeys bounds the bytes that are kept for keys. It is enough for four rules if a client
	// sends the longest header that Envoy accepts by default.
	maxIdleKeys = 256 << 10
	// bodyPiece is how much of a body is read at once, in bytes. A VM never returns memory.
	bodyPiece = 64 << 10
)

// The functions below are not inlined: the module would be 4 KB larger.

// takeIdle takes a kept value from the list, if there is any.
//
//go:noinline
func takeIdle[P any](idle *[]P) (kept P, ok bool) {
	last := len(*idle) - 1
	if last < 0 {
		return kept, false
	}
	kept, *idle = (*idle)[last], (*idle)[:last]
	return kept, true
}

// keepIdle puts a value on the list for reuse, unless the list has most values.
//
//go:noinline
func keepIdle[P any](idle *[]P, used P, most int) {
	if len(*idle) < most {
		*idle = append(*idle, used)
	}
}

// removeAt removes a value from a list. The list's last value moves to its place, and is returned.
//
//go:noinline
func removeAt[P any](list *[]P, at int) (moved P) {
	var none P
	last := len(*list) - 1
	moved = (*list)[last]
	(*list)[at], (*list)[last] = moved, none
	*list = (*list)[:last]
	return moved
}
