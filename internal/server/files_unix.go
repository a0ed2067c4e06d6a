//go:build unix

package server

import (
	"math"
	"syscall"
)

// mostFiles is the most files that the process may have open.
func mostFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return unknownFiles
	}
	return int(min(limit.Cur, math.MaxInt32))
}
