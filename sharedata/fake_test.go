package sharedata

import "sync"

// fakeData behaves as Envoy's shared data does. Before each call it runs what a test wants to happen just then.
type fakeData struct {
	mutex  sync.Mutex
	values map[string]fakeValue
	number uint32
	before func(op string)
}

type fakeValue struct {
	data []byte
	cas  uint32
}

func newFakeData() *fakeData { return &fakeData{values: map[string]fakeValue{}} }

func (f *fakeData) Get(key, buffer []byte) ([]byte, uint32, bool) {
	f.run("get")
	f.mutex.Lock()
	defer f.mutex.Unlock()
	v, ok := f.values[string(key)]
	return append(buffer[:0], v.data...), v.cas, ok
}

func (f *fakeData) Set(key, value []byte, cas uint32) bool {
	f.run("set")
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if v, ok := f.values[string(key)]; ok && cas != 0 && v.cas != cas {
		return false
	}
	f.number++
	f.values[string(key)] = fakeValue{data: append([]byte(nil), value...), cas: f.number}
	return true
}

func (f *fakeData) run(op string) {
	if f.before != nil {
		f.before(op)
	}
}

// bytes is all that the fake holds, names included.
func (f *fakeData) bytes() int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	sum := 0
	for key, v := range f.values {
		sum += len(key) + len(v.data)
	}
	return sum
}
