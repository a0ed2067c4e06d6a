package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
)

// reports wants a namespace's reports.
func (b *bench) reports(namespace string, want ...string) {
	b.t.Helper()
	found, err := b.store.Reports(b.t.Context(), namespace)
	if err != nil {
		b.t.Fatal(err)
	}
	got := make([]string, len(found))
	for i := range found {
		got[i] = string(found[i])
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		b.t.Errorf("reports %.300q, want %.300q", got, want)
	}
}

// A sender's report replaces its last, and is not kept for long.
func testReports(t *testing.T, b *bench) {
	report := func(namespace string, sender uint64, report string) {
		t.Helper()
		if err := b.store.Report(t.Context(), namespace, sender, []byte(report)); err != nil {
			t.Fatal(err)
		}
	}
	b.reports("ns")
	report("ns", 1, "a")
	report("ns", 1<<64-1, "\x00\xff\r\n b")
	report("other", 1, "c")
	b.reports("ns", "\x00\xff\r\n b", "a")
	b.clock.advance(store.ReportLife - time.Second)
	large := string(bytes.Repeat([]byte("x"), wire.MaxReport))
	report("ns", 1, large)
	report("ns", 2, "")
	b.reports("ns", "", "\x00\xff\r\n b", large)
	b.reports("other", "c")
	b.clock.advance(time.Second)
	b.reports("ns", "", large)
	b.reports("other")
	b.clock.advance(store.ReportLife)
	b.reports("ns")
	if err := b.store.Report(t.Context(), "a*", 1, nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a namespace that is none: %v", err)
	}
	// Invented senders are bounded, and don't prevent known senders from reporting.
	var want []string
	for sender := range uint64(store.MaxReports) {
		want = append(want, fmt.Sprintf("%03d", sender))
		report("ns", sender, want[sender])
	}
	report("ns", store.MaxReports, "too many")
	want[0] = "000 again"
	report("ns", 0, want[0])
	b.reports("ns", want...)
	b.list()
}
