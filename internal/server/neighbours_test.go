package server_test

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/internal/commandtest"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

// neighbours are the handler of a store in memory of so many counters, for which victim and evil have
// a token each.
type neighbours struct {
	*testing.T
	handler http.Handler
	log     *commandtest.Output
	now     time.Time
	senders uint64
}

func startNeighbours(t *testing.T, most int) *neighbours {
	t.Helper()
	tokens := tokensOf(t, "victim for-victim\nevil for-evil\nother for-other\n")
	n := &neighbours{T: t, now: epoch, log: &commandtest.Output{}}
	counters := memory.New(memory.Options{MaxCounters: most, Now: func() time.Time { return n.now }})
	n.handler = server.Handler(counters, server.Options{Tokens: tokens, Logger: slog.New(slog.NewTextHandler(n.log, nil))})
	return n
}

// push pushes as a namespace, and returns the answer, or none with the status and what the problem is.
func (n *neighbours) push(namespace string, p *wire.Push) (answer *wire.Answer, status int, problem string) {
	n.Helper()
	p.Namespace = namespace
	r := httptest.NewRequestWithContext(n.Context(), "POST", wire.PushPath, bytes.NewReader(wire.AppendPush(nil, p)))
	r.Header.Set("Content-Type", wire.ContentType)
	r.Header.Set("Authorization", "Bearer for-"+namespace)
	w := httptest.NewRecorder()
	n.handler.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		return nil, w.Code, w.Body.String()
	}
	return must.Get(wire.DecodeAnswer(w.Body.Bytes()))(n), w.Code, ""
}

// pushed wants a push to be taken. It is the first of a sender of its own, unless it has one.
func (n *neighbours) pushed(namespace string, p *wire.Push) *wire.Answer {
	n.Helper()
	if p.Sender == 0 {
		n.senders++
		p.Sender, p.Node, p.Sequence, p.Floor = n.senders, n.senders, 1, 1
	}
	answer, status, problem := n.push(namespace, p)
	must.EqualOrEnd(n, status, http.StatusOK, "a push of %s: status: %s", namespace, problem)
	return answer
}

// takes are of one hit each, of the counters from first on, in limits of one a window.
func takes(first, most int, width time.Duration) (all []wire.Take) {
	for id := first; id < first+most; id++ {
		room := wire.Room{Limit: 1, Cost: 1, LimitCounter: wire.LimitCounter{
			Kind: uint8(window.FixedWindow), WidthMillis: uint64(width.Milliseconds()),
		}}
		binary.BigEndian.PutUint64(room.ID[:], uint64(id))
		all = append(all, wire.Take{Least: 1, Most: 1, Rooms: []wire.Room{room}})
	}
	return all
}

// A neighbour does not reset counters of a namespace that has less than its part of a full store,
// however many limits it spreads over.
func TestANeighbourResetsNoCounters(t *testing.T) {
	const counters, full, batch = 16_384, 5000, 500
	n := startNeighbours(t, counters)
	for first := 0; first < full; first += batch {
		n.pushed("victim", &wire.Push{Takes: takes(first, batch, time.Hour)})
	}
	for i := range 2 * counters / batch {
		var spread []wire.Take
		for j := range batch {
			at := i*batch + j
			spread = append(spread, takes(at, 1, time.Hour+time.Duration(at%900)*time.Second)...)
		}
		n.pushed("evil", &wire.Push{Takes: spread})
	}
	reset := 0
	for first := 0; first < full; first += batch {
		for _, g := range n.pushed("victim", &wire.Push{Takes: takes(first, batch, time.Hour)}).Grants {
			reset += int(g.Units)
		}
	}
	must.Equal(t, reset, 0, "of %d full counters, those that the neighbour has reset", full)
}

// A push that is sent again counts once, whatever other senders push meanwhile: those of a neighbour,
// or of its own namespace.
func TestOtherSendersMakeNoPushCountTwice(t *testing.T) {
	for _, others := range []string{"evil", "victim"} {
		t.Run(others, func(t *testing.T) {
			const pushes = 20_000
			n := startNeighbours(t, 16_384)
			item := wire.Item{
				LimitCounter: wire.LimitCounter{ID: wire.ID{7}, Kind: uint8(window.FixedWindow), WidthMillis: 3_600_000},
				Newest:       uint64(n.now.UnixMilli()) / 3_600_000, Hits: []int64{7},
			}
			push := &wire.Push{Sender: 1 << 32, Sequence: 1, Floor: 1, Items: []wire.Item{item}}
			n.pushed("victim", push)
			taken, refused := 0, ""
			item.ID, item.Hits = wire.ID{8}, []int64{1}
			for id := range uint64(pushes) {
				p := &wire.Push{Sender: id + 1, Sequence: 1, Floor: 1, Items: []wire.Item{item}}
				if _, status, problem := n.push(others, p); status == http.StatusOK {
					taken++
				} else if refused = problem; status != http.StatusServiceUnavailable {
					t.Fatalf("status %d: %s", status, problem)
				}
			}
			must.Equal(t, n.pushed("victim", push).Totals[0].Hits[0], 7, "a push of 7 hits, sent again after %d of %d others, counts", taken, pushes)
			must.Contains(t, refused, "no room for another sender's record: 16384 are kept, and namespace "+others+" has most of them", "after %d pushes a new sender is told", taken)
			must.Equal(t, strings.Count(n.log.String(), "refuses pushes of new senders"), 1, "lines of refusals in\n%s", n.log)
			must.Lacks(t, n.log.String(), "fails", "log")
			// The neighbour that is full takes nothing from who is not, nor does it keep anybody out.
			n.pushed("other", &wire.Push{Items: []wire.Item{item}})
			n.now = n.now.Add(store.SenderLife)
			n.pushed(others, &wire.Push{Items: []wire.Item{item}})
		})
	}
}
