package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// Ran returns how long the threads of a process have run so far. It reads schedstat, which counts
// nanoseconds. stat counts hundredths of a second, and includes threads that have ended; a ready
// Envoy ends none.
func Ran(pid int) (sum time.Duration, err error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, fmt.Errorf("processor time, which /proc tells on Linux: %w", err)
	}
	threads, err := fs.AllThreads(pid)
	if err != nil {
		return 0, err
	}
	if len(threads) == 0 {
		return 0, fmt.Errorf("process %d has no threads", pid)
	}
	for _, t := range threads {
		s, err := t.Schedstat()
		if err != nil {
			return 0, fmt.Errorf("thread %d: %w", t.PID, err)
		}
		sum += time.Duration(s.RunningNanoseconds)
	}
	return sum, nil
}

// Micros returns the processor time that processes take while do runs, in µs for each of n: a value for each
// process.
func Micros(n int, pids []int, do func() error) ([]float64, error) {
	values := make([]float64, len(pids))
	add := func(times float64) error {
		for i, pid := range pids {
			used, err := Ran(pid)
			if err != nil {
				return err
			}
			values[i] += times * float64(used.Nanoseconds()) / 1000 / float64(n)
		}
		return nil
	}
	return values, errors.Join(add(-1), do(), add(1))
}

// Memory is a process's memory in MiB. Own counts the pages that it has written, which no other
// process has. Pages of its program and libraries that it has only read are in Resident alone.
type Memory struct{ Resident, Own float64 }

// MemoryOf returns the memory of a process.
func MemoryOf(pid int) (m Memory, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return m, err
	}
	s, err := p.ProcSMapsRollup()
	const mebibyte = 1 << 20
	return Memory{Resident: float64(s.Rss) / mebibyte, Own: float64(s.PrivateDirty) / mebibyte}, err
}

// Pin assigns a processor to Envoy, and the others to this process and the processes that it
// starts. It returns Envoy's processor for taskset.
func Pin(ctx context.Context) (envoy string, err error) {
	self, err := procfs.Self()
	if err != nil {
		return "", err
	}
	status, err := self.NewStatus()
	if err != nil {
		return "", err
	}
	allowed := status.CpusAllowedList
	if len(allowed) < 2 {
		return "", fmt.Errorf("want two processors, one for Envoy and one for what asks it, got %v", allowed)
	}
	var rest []string
	for _, n := range allowed[:len(allowed)-1] {
		rest = append(rest, strconv.FormatUint(n, 10))
	}
	// -a includes all threads of this process. Processes that they start inherit the setting.
	command := exec.CommandContext(ctx, "taskset", "-a", "-c", "-p", strings.Join(rest, ","), strconv.Itoa(os.Getpid()))
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("taskset: %w: install util-linux\n%s", err, output)
	}
	return strconv.FormatUint(allowed[len(allowed)-1], 10), nil
}

// Machine describes the machine.
func Machine() string {
	model := "unknown"
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if all, err := fs.CPUInfo(); err == nil && len(all) > 0 {
			model = all[0].ModelName
		}
	}
	return fmt.Sprintf("%s, %d processors", model, runtime.NumCPU())
}
