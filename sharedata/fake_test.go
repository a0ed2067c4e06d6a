package sharedata

import "sync"

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
