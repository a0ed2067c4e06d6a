package main

import (
	"fmt"
	"time"

	"weir/bench/page"
)

// hits are the figures of a workload. Lists have an entry for each round.
type hits struct {
	workload
	perSecond []float64
	// serverMicros is the server's processor time of each, and ownMicros that of senders and handler.
	serverMicros, ownMicros []float64
	waits                   []float64 // milliseconds, of pushes
}

func (h *hits) add(b block, server time.Duration) {
	sent := float64(len(b.waits) * h.hits())
	h.perSecond = append(h.perSecond, sent/b.elapsed.Seconds())
	h.serverMicros = append(h.serverMicros, float64(server.Microseconds())/sent)
	h.ownMicros = append(h.ownMicros, float64(b.cpu.Microseconds())/sent)
	for _, took := range b.waits {
		h.waits = append(h.waits, took.Seconds()*1000)
	}
}

// String returns a store's figures as a table.
func (s *subject) String() string {
	rows := []string{"push of\tpushes/s\thits/s\tp50 ms\tp99 ms\tserver µs/hit\town µs/hit"}
	for _, w := range s.workloads {
		perSecond, server := page.Quantile(w.perSecond, 0.5), "-"
		if len(s.pids) > 0 {
			server = fmt.Sprintf("%.2f", page.Quantile(w.serverMicros, 0.5))
		}
		rows = append(rows, fmt.Sprintf("%s\t%.0f\t%.0f\t%.2f\t%.2f\t%s\t%.2f", w.name, perSecond/float64(w.hits()), perSecond,
			page.Quantile(w.waits, 0.5), page.Quantile(w.waits, 0.99), server, page.Quantile(w.ownMicros, 0.5)))
	}
	return fmt.Sprintf("%s (%s)\n%s", s.name, s.server, page.Table(rows...))
}
