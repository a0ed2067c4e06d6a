//go:build unix

package listen

import (
	"math"
	"syscall"
)

// MostFiles is the most files that the process may have open.
func MostFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return unknownFiles
	}
	return int(min(limit.Cur, math.MaxInt32))
}
