package wait

import (
	"testing"
	"time"

	"weir/sharedata"
)

// A worker that has read the clock just before another has written its entry does not take that entry out.
func TestEntriesOfTheMoment(t *testing.T) {
	t.Parallel()
	data, address, now := &memory{}, sharedata.Address{}, int64(time.Hour)
	before := now - int64(time.Microsecond)
	a, b := newOrder(data, "default", 1), newOrder(data, "default", 2)
	ticket, joined := a.join(address, entry{until: now + entryHolds}, now, 1)
	if !joined {
		t.Fatal("a line that is empty has no place")
	}
	if seen := b.read(address, before); seen.waiting != 1 || seen.first != ticket || seen.told {
		t.Errorf("another worker sees %+v", seen)
	}
	if _, joined := b.join(address, entry{until: before + entryHolds}, before, 1); joined {
		t.Error("more join than may wait")
	}
}

// memory is shared data of one value.
type memory struct {
	value []byte
	cas   uint32
}

func (m *memory) Get(_, buffer []byte) ([]byte, uint32, bool) {
	return append(buffer[:0], m.value...), m.cas, m.value != nil
}

func (m *memory) Set(_, value []byte, cas uint32) bool {
	if m.value != nil && cas != m.cas {
		return false
	}
	m.value, m.cas = append([]byte(nil), value...), m.cas+1
	return true
}
