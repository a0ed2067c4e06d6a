package ratelimitservice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/must"
)

// TestReloadUnderLoad reads 1,000 files again and again while requests come: each is answered, and each of
// their hits is counted. The files are written where they are, or another folder gets the place of theirs,
// whose files have the same size and time.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	for name, replaced := range map[string]bool{"files are written": false, "the folder is replaced": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reloadUnderLoad(t, replaced)
		})
	}
}

func reloadUnderLoad(t *testing.T, replaced bool) {
	const files, clients, reloads = 1000, 4, 3
	dir := filepath.Join(t.TempDir(), "limits")
	texts := func(dir string, limit int) {
		for i := range files {
			file := filepath.Join(dir, fmt.Sprint(i, ".yaml"))
			write(t, file, fmt.Sprintf("domain: d%d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: %d}}]", i, limit))
			if replaced {
				must.Report(t, os.Chtimes(file, time.Unix(0, 0), time.Unix(0, 0)))
			}
		}
	}
	change := func(limit int) {
		if !replaced {
			texts(dir, limit)
			return
		}
		texts(dir+"-next", limit)
		must.Report(t, errors.Join(os.Rename(dir, fmt.Sprint(dir, limit)), os.Rename(dir+"-next", dir)))
	}
	texts(dir, 1e6)
	s := NewService(ServiceOptions{Counters: NewCounters(CounterOptions{})})
	source := &Source{Path: dir, Log: slog.New(slog.DiscardHandler)}
	must.OK(t, source.Load(s))
	for range 2 {
		source.look(s) // at rest, the files are not read
	}
	ctx, cancel := context.WithCancel(t.Context())
	var asking, reading sync.WaitGroup
	var answered atomic.Int64
	reading.Go(func() {
		defer cancel()
		for i := range reloads {
			change(2_000_000 + i)
			// The first look sees them, and the second that nobody is writing them.
			if source.look(s); !source.look(s) {
				t.Error("the change has not been noticed")
			}
		}
	})
	for c := range clients {
		asking.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				r := request(fmt.Sprint("d", (i+c)%files), "k=v")
				if answer, err := s.ShouldRateLimit(t.Context(), r); err != nil || answer.Statuses[0].CurrentLimit == nil {
					t.Errorf("answered %v, %v", answer, err)
				} else {
					answered.Add(1)
				}
			}
		})
	}
	reading.Wait()
	asking.Wait()
	left := int64(0)
	for i := range files {
		answer := must.Get(s.ShouldRateLimit(t.Context(), request(fmt.Sprint("d", i), "k=v")))(t)
		must.Equal(t, answer.Statuses[0].CurrentLimit.RequestsPerUnit, 2_000_000+reloads-1, "d%d has a limit of", i)
		left += int64(answer.Statuses[0].CurrentLimit.RequestsPerUnit - answer.Statuses[0].LimitRemaining)
	}
	must.Equal(t, left, answered.Load()+files, "%d were answered, and %d hits are counted", answered.Load(), left-files)
}

// A configuration with too many shapes is refused when it is read. One that needs too many namespaces beside those of the last
// takes none, so that the next may have them.
func TestTooManyNamespaces(t *testing.T) {
	t.Parallel()
	windows := func(from, to int) []File {
		text := "domain: d\ndescriptors:\n- {key: unit, rate_limit: {unit: day, requests_per_unit: 1}}\n- {key: other, rate_limit: {unit: hour, requests_per_unit: 1}}"
		for i := from; i < to; i++ {
			text += fmt.Sprintf("\n- {key: k%d, rate_limit: {window: %ds, requests_per_unit: 1}}", i, 1000+i)
		}
		return []File{{"a.yaml", []byte(text)}}
	}
	mistakes, _ := Check(windows(0, maxNamespaces), Options{})
	must.Same(t, mistakes, []Mistake{{"a.yaml", 4 + maxNamespaces, 26, fmt.Sprintf("descriptors[%d].rate_limit", maxNamespaces+1), manyNamespaces}}, "mistakes")
	counters := NewCounters(CounterOptions{MaxMemory: 1 << 20})
	s := NewService(ServiceOptions{Counters: counters})
	for i, step := range []struct {
		from, to int
		want     error
	}{{0, 40, nil}, {20, 80, errManyNamespaces}, {0, maxNamespaces - 1, nil}, {0, 1, nil}, {100, 101, errManyNamespaces}} {
		must.Is(t, s.Use(must.Get(Read(windows(step.from, step.to), Options{}))(t)), step.want, "step %d", i)
	}
	must.Report(t, counters.Close(t.Context()))
}
