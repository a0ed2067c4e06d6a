package sharedata

import (
	"encoding/binary"
	"sync"
	"testing"
)

// fakeData is shared data of several workers. Before each call it runs what a test wants to happen
// just then.
type fakeData struct {
	mutex sync.Mutex
	Map
	before func(op string)
}

func (f *fakeData) Get(key, buffer []byte) ([]byte, uint32, bool) {
	f.run("get")
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.Map.Get(key, buffer)
}

func (f *fakeData) Set(key, value []byte, cas uint32) bool {
	f.run("set")
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.Map.Set(key, value, cas)
}

func (f *fakeData) run(op string) {
	if f.before != nil {
		f.before(op)
	}
}

// counting is a worker that counts one hit of a key after the other, in eight bytes.
type counting struct {
	table *Table
	slot  Slot
}

// newCounting makes a worker that remembers what it writes, if it has a memory.
func newCounting(t *testing.T, data Data, memory *Recent) *counting {
	return &counting{table: open(t, data, 40), slot: Slot{Recent: memory}}
}

// hit recalls the key's page if it can, or reads it, and counts until no other worker was faster.
func (c *counting) hit(key string) (recalled bool) {
	a := c.table.Address(0, []byte(key))
	found := c.table.Recall(&c.slot, a)
	for recalled = found; ; recalled = false {
		if !found {
			found = c.table.Read(&c.slot, a)
		}
		var written bool
		meta := Meta{ExpiresNanos: now + second}
		if found {
			count := c.slot.Payload()
			binary.LittleEndian.PutUint64(count, binary.LittleEndian.Uint64(count)+1)
			written = c.table.Rewrite(&c.slot, meta, now)
		} else {
			written = c.table.Write(&c.slot, binary.LittleEndian.AppendUint64(nil, 1), meta, now)
		}
		if written {
			return recalled
		}
		found = false
	}
}

// wantCount wants so many hits of a key.
func (c *counting) wantCount(t *testing.T, key string, want uint64) {
	t.Helper()
	if !c.table.Read(&c.slot, c.table.Address(0, []byte(key))) || binary.LittleEndian.Uint64(c.slot.Payload()) != want {
		t.Errorf("key %s: got %x, want %d hits", key, c.slot.Payload(), want)
	}
}
