package memory

import (
	"fmt"
	"testing"
	"time"
)

// Reports of any size and of any namespace use at most the bound of memory. The oldest make room.
func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	const most = 64 << 10
	for _, size := range []int{0, 100, 4 << 10} {
		now := time.Unix(1_800_000_000, 0)
		s := New(Options{Now: func() time.Time { return now }})
		s.reports.most = most
		fit := most / (size + rowBytes)
		namespace := func(i int) string { return fmt.Sprint("ns", i) }
		for i := range 3 * fit {
			now = now.Add(time.Millisecond)
			if err := s.Report(t.Context(), namespace(i), 1, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			if r := s.reports; r.size > most || len(r.rows) > fit || r.count(namespace(i)) != 1 {
				t.Fatalf("%d reports of %d bytes take %d", len(r.rows), size, r.size)
			}
		}
		for i := range 3 * fit {
			found, err := s.Reports(t.Context(), namespace(i))
			if err != nil || len(found) > 0 != (i >= 2*fit) {
				t.Errorf("of %d bytes: %d reports of namespace %d of %d, %v", size, len(found), i, 3*fit, err)
			}
		}
	}
}
