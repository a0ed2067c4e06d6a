package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor time that Linux shows to programs (USER_HZ).
const tick = 10 * time.Millisecond

// serverCPU returns the processor time of processes and their children, including children that
// have ended; 0 if there is no /proc.
func serverCPU(pids []int) (used time.Duration) {
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0
	}
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		parent, own, ended, err := processStat(pid)
		switch {
		case err != nil:
			// The process has ended.
		case slices.Contains(pids, pid):
			used += own + ended
		case slices.Contains(pids, parent):
			used += own
		}
	}
	return used
}

// processStat returns a process's parent, its processor time, and that of its children that have
// ended.
func processStat(pid int) (parent int, own, ended time.Duration, err error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, 0, 0, err
	}
	return parseStat(string(stat))
}

// parseStat parses stat of proc(5).
func parseStat(stat string) (parent int, own, ended time.Duration, err error) {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:]) // after the program's name
	if len(fields) < 15 {
		return 0, 0, 0, fmt.Errorf("want 17 fields of a process, got %.100q", stat)
	}
	var numbers [15]int
	for _, i := range []int{1, 11, 12, 13, 14} {
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			return 0, 0, 0, err
		}
		numbers[i] = n
	}
	return numbers[1], time.Duration(numbers[11]+numbers[12]) * tick, time.Duration(numbers[13]+numbers[14]) * tick, nil
}
