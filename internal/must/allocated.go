package must

import "runtime"

// Allocated returns how often a function allocates, and how many bytes.
func Allocated(f func()) (times, bytes int) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.Mallocs - before.Mallocs), int(after.TotalAlloc - before.TotalAlloc)
}
