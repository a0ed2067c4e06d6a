package ratelimit

import "sync"

// data is shared data within one process: a map under a mutex, with Envoy's rules of compare-and-set. Other than Envoy's, a
// key's numbers are its own: one number for all keys would come round within minutes at the speed of a process.
type data struct {
	mu     sync.RWMutex
	values map[string]versioned
}

type versioned struct {
	value []byte // never modified: readers use it without the lock
	cas   uint32
}

// maxNumber keeps clear of 0x7fffffff, with which the table creates missing keys, and of 0, which would overwrite.
const maxNumber = 0x7ffffffe

func newData() *data { return &data{values: map[string]versioned{}} }

// Get implements sharedata.Data.
func (d *data) Get(key, buffer []byte) (value []byte, cas uint32, found bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	v, found := d.values[string(key)]
	return append(buffer[:0], v.value...), v.cas, found
}

// Set implements sharedata.Data.
func (d *data) Set(key, value []byte, cas uint32) (written bool) {
	value = append(make([]byte, 0, len(value)), value...)
	d.mu.Lock()
	defer d.mu.Unlock()
	old, found := d.values[string(key)]
	if found && cas != 0 && cas != old.cas {
		return false
	}
	d.values[string(key)] = versioned{value: value, cas: old.cas%maxNumber + 1}
	return true
}
