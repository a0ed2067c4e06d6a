package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/postgres/postgrestest"
	"weir/internal/wire"
	"weir/window"
)

// hit returns a push of a hit to a counter of a namespace.
func hit(namespace string, sender, sequence uint64) *wire.Push {
	c := counter(window.FixedWindow, 1, 24*time.Hour)
	return &wire.Push{Namespace: namespace, Sender: sender, Sequence: sequence, Floor: sequence,
		Items: []wire.Item{{LimitCounter: c, Newest: uint64(epoch.UnixMilli()) / c.WidthMillis, Hits: []int64{1}}}}
}

func push(t *testing.T, s store.Store, p *wire.Push) {
	t.Helper()
	_, err := s.Push(t.Context(), p, 1)
	must.OKf(t, err, "a push of %s", p.Namespace)
}

// lock locks the counters of a namespace in another session, and returns the function that unlocks
// them.
func lock(t *testing.T, url, namespace string) (unlock func()) {
	t.Helper()
	c := connect(t, url)
	exec(t, c, "BEGIN", "SELECT FROM weir.counters WHERE namespace = '"+namespace+"' FOR UPDATE")
	return func() { exec(t, c, "ROLLBACK") }
}

const waiting = `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'weir' AND datname = current_database() AND wait_event_type = 'Lock'`

// TestLockedCounter locks a namespace's counter in another session. Many pushes wait for it, and
// none of them ends while a neighbour pushes.
func TestLockedCounter(t *testing.T) {
	url := postgrestest.Database(t)
	s, watch := open(t, url, atEpoch), connect(t, url)
	push(t, s, hit("locked", 1, 1))
	unlock := lock(t, url, "locked")
	var ended atomic.Int64
	var pushes sync.WaitGroup
	for sender := range uint64(20) {
		pushes.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			p := hit("locked", 2+sender, 1)
			_, err := s.Push(ctx, p, 1)
			for err != nil && strings.Contains(err.Error(), "lock timeout") && ctx.Err() == nil {
				_, err = s.Push(ctx, p, 1) // a node's push comes again, too
			}
			ended.Add(1)
			must.Reportf(t, err, "a push that waited")
		})
	}
	for number(t, watch, waiting) < 2 { // the first waits for the row, and the others behind it
	}
	for sequence := uint64(1); sequence <= 50; sequence++ {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := s.Push(ctx, hit("neighbour", 1, sequence), 1)
		if cancel(); err != nil {
			t.Errorf("push %d of a neighbour: %v", sequence, err)
			break
		}
	}
	must.Equal(t, ended.Load(), 0, "pushes that wait for a lock and have ended")
	unlock()
	pushes.Wait()
}

// TestGivenUp lets pushes wait for a lock longer than their senders do. They end before, without
// closing a connection.
func TestGivenUp(t *testing.T) {
	url := postgrestest.Database(t)
	s, watch := open(t, url, atEpoch), connect(t, url)
	push(t, s, hit("locked", 1, 1))
	const connections = `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'weir' AND datname = current_database()`
	const oldest = `SELECT min(pid) FROM pg_stat_activity WHERE application_name = 'weir' AND datname = current_database()`
	before := number(t, watch, oldest)
	unlock := lock(t, url, "locked")
	for sequence := uint64(2); sequence < 4; sequence++ {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := s.Push(ctx, hit("locked", 1, sequence), 1)
		if err == nil || !strings.Contains(err.Error(), "lock timeout") || ctx.Err() != nil {
			t.Errorf("error %v, and of the context %v; want a lock timeout before it ends", err, ctx.Err())
		}
		cancel()
	}
	// A caller that gives up while it waits closes no connection either.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // longer than locks are waited for
	gone := make(chan error, 1)
	go func() {
		_, err := s.Push(ctx, hit("locked", 1, 4), 1)
		gone <- err
	}()
	for number(t, watch, waiting) == 0 && len(gone) == 0 {
	}
	cancel()
	must.Is(t, <-gone, context.Canceled, "a push that nobody waits for")
	unlock()
	for sequence := uint64(2); sequence < 5; sequence++ {
		push(t, s, hit("locked", 1, sequence))
	}
	must.Equal(t, number(t, watch, connections), 1, "connections")
	must.Equal(t, number(t, watch, oldest), before, "the oldest connection, as before")
	must.Equal(t, must.Get(s.Push(t.Context(), hit("locked", 1, 5), 1))(t).Answer.Totals[0].Hits[0], 5, "each of 5 hits once")
}

// TestFewConnections lets three backends share a server with seven connections for them. Each gets
// enough to answer, although the first could use all.
func TestFewConnections(t *testing.T) {
	server := postgrestest.Start(t, "max_connections=10")
	admin := connect(t, server.URL())
	exec(t, admin, "CREATE ROLE backend LOGIN PASSWORD 'x'", "CREATE SCHEMA weir AUTHORIZATION backend")
	u := must.Get(url.Parse(server.URL()))(t)
	u.User = url.UserPassword("backend", "x")
	for backend := range uint64(3) {
		s := open(t, u.String(), atEpoch)
		var pushes sync.WaitGroup
		for sender := range uint64(12) {
			pushes.Go(func() {
				for sequence := uint64(1); sequence <= 5; sequence++ {
					p := hit(fmt.Sprintf("ns%d", sender%6), backend*100+sender, sequence)
					_, err := s.Push(t.Context(), p, 1)
					must.Reportf(t, err, "backend %d", backend)
				}
			})
		}
		pushes.Wait()
		must.Is(t, s.Ping(t.Context()), nil, "backend %d", backend)
	}
}
