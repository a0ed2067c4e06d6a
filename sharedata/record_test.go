package sharedata

import (
	"encoding/binary"
	"sync"
	"testing"
)

func counted(value []byte) uint64 {
	if len(value) != 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(value)
}

func oneMore(value []byte) ([]byte, bool) {
	return binary.LittleEndian.AppendUint64(nil, counted(value)+1), true
}

// Whatever other workers write between a read and its write, each update counts once.
func TestRecord_hammer(t *testing.T) {
	t.Parallel()
	const workers, updates = 8, 2000
	data := &fakeData{}
	var written [workers]uint64
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			r := NewRecord(data, "shop", "sum")
			for range updates {
				if r.Update(nil, oneMore) {
					written[i]++
				}
			}
		})
	}
	all.Wait()
	sum := uint64(0)
	for _, n := range written {
		sum += n
	}
	r := NewRecord(data, "shop", "sum")
	if value, _ := r.Read(nil); counted(value) != sum || sum == 0 {
		t.Errorf("the record has %d of %d updates", counted(value), sum)
	}
}

// An update that loses every race gives up, and says so. It writes nothing if it changes nothing.
func TestRecordGivesUp(t *testing.T) {
	t.Parallel()
	data := &fakeData{}
	r, other := NewRecord(data, "shop", "sum"), NewRecord(&data.Map, "shop", "sum")
	races := 0
	data.before = func(op string) {
		if op == "set" {
			races++
			other.Update(nil, oneMore)
		}
	}
	if r.Update(nil, oneMore) || races != recordAttempts {
		t.Errorf("wrote after %d lost races, want none after %d", races, recordAttempts)
	}
	if r.Update(nil, func([]byte) ([]byte, bool) { return nil, false }) || races != recordAttempts {
		t.Error("wrote what it was told to leave")
	}
	if value, cas := r.Read(nil); counted(value) != recordAttempts || cas == CreateOnly {
		t.Errorf("the other worker's updates: got %d", counted(value))
	}
	none := NewRecord(data, "shop", "other")
	if value, cas := none.Read(nil); value != nil || cas != CreateOnly {
		t.Errorf("got %v of a record that nobody wrote", value)
	}
}
