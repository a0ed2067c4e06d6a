package memory

import (
	"bytes"
	"context"

	"weir/internal/store"
)

const (
	// maxReportBytes bounds the reports of all namespaces. Beyond it those make room that would be
	// forgotten first.
	maxReportBytes = 64 << 20
	// rowBytes is what a report takes beside its own bytes, at most.
	rowBytes = 256
)

// reports are what senders have reported, by namespace and sender.
type reports struct {
	kept  *table[senderKey, []byte]
	count map[string]int
	// bytes are what the rows take, most the most that they may.
	bytes, most int
}

func newReports(most int) *reports {
	return &reports{kept: newTable[senderKey, []byte](most/rowBytes + 1), count: map[string]int{}, most: most}
}

// Report implements [store.Store].
func (s *Store) Report(ctx context.Context, namespace string, sender uint64, report []byte) error {
	if err := store.CheckReport(namespace, report); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, now := s.reports, uint64(s.now().UnixNano())
	r.sweep(now)
	key := senderKey{namespace, sender}
	if r.kept.rows[key] == nil {
		if r.count[namespace] >= store.MaxReports {
			return nil
		}
		r.count[namespace]++
		r.bytes += rowBytes
	}
	row := r.kept.add(key, now, now+uint64(store.ReportLife))
	r.bytes += len(report) - len(row.value)
	row.value = bytes.Clone(report)
	for r.bytes > r.most {
		r.forget()
	}
	return nil
}

// Reports implements [store.Store].
func (s *Store) Reports(ctx context.Context, namespace string) (all [][]byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports.sweep(uint64(s.now().UnixNano()))
	for key, row := range s.reports.kept.rows {
		if key.namespace == namespace {
			all = append(all, bytes.Clone(row.value))
		}
	}
	return all, nil
}

func (r *reports) sweep(now uint64) {
	for len(r.kept.queue) > 0 && r.kept.queue[0].expires <= now {
		r.forget()
	}
}

// forget forgets the report that is to be forgotten first.
func (r *reports) forget() {
	row := r.kept.queue[0]
	r.bytes -= len(row.value) + rowBytes
	r.kept.removeFirst()
	if r.count[row.key.namespace]--; r.count[row.key.namespace] == 0 {
		delete(r.count, row.key.namespace)
	}
}
