package filter

// Bounds of the memory that is kept.
const (
	// maxIdle bounds the streams, and what else is of one request, that are kept to be used again.
	maxIdle = 1024
	// maxIdleReaders bounds the readers of bodies that are kept for later streams.
	maxIdleReaders = 256
	// maxIdleKeys bounds the bytes that are kept for the keys of the next request: those of four rules, if
	// a client sends as long a header as Envoy takes by default.
	maxIdleKeys = 256 << 10
	// bodyPiece is how much of a body is read at once: a VM keeps the memory.
	bodyPiece = 16 << 10
)

// reuse takes something that is kept to be used again, if anything is.
//
//go:noinline
func reuse[P any](idle *[]P) (kept P, ok bool) {
	last := len(*idle) - 1
	if last < 0 {
		return kept, false
	}
	kept, *idle = (*idle)[last], (*idle)[:last]
	return kept, true
}

// keep keeps something to be used again, unless there is enough of it.
//
//go:noinline
func keep[P any](idle *[]P, used P, most int) {
	if len(*idle) < most {
		*idle = append(*idle, used)
	}
}

// leave takes something out of a list. The last one gets its place, and is returned.
//
//go:noinline
func leave[P any](list *[]P, at int) (moved P) {
	var none P
	last := len(*list) - 1
	moved = (*list)[last]
	(*list)[at], (*list)[last] = moved, none
	*list = (*list)[:last]
	return moved
}
