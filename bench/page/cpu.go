package page

import (
	"slices"
	"time"

	"github.com/prometheus/procfs"
)

// Processes returns the processes of this machine by their numbers; none without a /proc.
func Processes() map[int]procfs.ProcStat {
	all := map[int]procfs.ProcStat{}
	found, err := procfs.AllProcs()
	if err != nil {
		return nil
	}
	for _, p := range found {
		if s, err := p.Stat(); err == nil { // else it has ended
			all[p.PID] = s
		}
	}
	return all
}

// Used returns the processor time of processes and their descendants, also of those that have ended.
func Used(pids ...int) (used time.Duration) {
	const tick = 10 * time.Millisecond // USER_HZ
	all := Processes()
	for pid, p := range all {
		for of := pid; of != 0; of = all[of].PPID {
			if slices.Contains(pids, of) {
				used += tick * time.Duration(int(p.UTime+p.STime)+p.CUTime+p.CSTime)
				break
			}
		}
	}
	return used
}
