package file_test

import (
	"context"
	"path/filepath"
	"testing"

	"weir/internal/must"
	"weir/internal/store/file"
	"weir/internal/wire"
	"weir/window"
)

// A sender that advances hits keeps its part of a limit after the process was killed: the next
// process grants nobody those hits before it has an answer from the sender.
func TestPartsOutliveTheProcess(t *testing.T) { testParts(t, false) }
func TestPartsAreSaved(t *testing.T)          { testParts(t, true) }

func testParts(t *testing.T, cut bool) {
	path := filepath.Join(t.TempDir(), "weir.db")
	s := &crashing{Store: openAt(t, path, file.Options{Now: atEpoch, NoSync: true}), t: t, path: path, now: atEpoch, pushes: -100, cut: cut}
	defer func() { closed(t, s.Store) }()
	sequence := uint64(0)
	push := func(sender uint64, word wire.Advance, takes ...wire.Take) wire.Answer {
		t.Helper()
		sequence++
		out := must.Get(s.Store.Push(context.Background(), &wire.Push{
			Namespace: "default", Sender: sender, Sequence: sequence, Floor: sequence, Advance: word, Takes: takes,
		}, 1))(t)
		return out.Answer
	}
	take := func(key byte, most uint64) wire.Take {
		return wire.Take{Least: most, Most: most, Rooms: []wire.Room{{
			LimitCounter: wire.LimitCounter{ID: wire.ID{key}, Kind: uint8(window.FixedWindow), WidthMillis: 3600_000}, Limit: 1000, Cost: 1, Tag: 7,
		}}}
	}
	push(2, wire.Advance{}, take(1, 1))
	word := wire.Advance{Present: true, Wants: true, Settled: true}
	says := func() {
		near := push(1, word).Near
		word.Epoch, word.Version, word.Divisor = near.Epoch, near.Version, near.Divisor
	}
	push(1, word, take(1, 1))
	for range 3 {
		says() // its last push is a read
	}
	must.EqualOrEnd(t, word.Divisor > 0, true, "the sender has a part")
	s.crash()
	must.Equal(t, push(2, wire.Advance{}, take(2, 1000)).Grants[0].Units, 0, "hits of which the sender may have let some pass")
	for range 3 {
		says()
	}
	must.EqualOrEnd(t, word.Divisor > 0, true, "the sender has a part")
	word = wire.Advance{Present: true, Settled: true}
	says() // the sender gives the part back
	s.crash()
	must.Equal(t, push(2, wire.Advance{}, take(2, 1000)).Grants[0].Units, 1000, "hits of 1,000 that nobody else has")
}
