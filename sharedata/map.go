package sharedata

import "sync"

// Map is shared data within one process, with Envoy's rules of compare-and-set. The zero Map is
// empty and ready to use. Get and Set allocate nothing for existing keys. It is not safe for
// concurrent use, but for pages that are lent.
type Map struct {
	// Numbers is where the map's writes get their numbers. Several maps may share Numbers, as those
	// of one Envoy do. If it is nil, the map makes its own.
	Numbers *Numbers

	values map[string]*versioned
	lent   lent
}

type versioned struct {
	mu    sync.Mutex // of a lent page
	cas   uint32     // 0 if it was never written
	value []byte
}

// Numbers is the last number given to a write. The next write gets the next number, and after the
// greatest they start again. Nobody notices, unless 2^32 writes come between a get and its set.
type Numbers uint32

// next skips 0, which would overwrite, and CreateOnly, which Envoy does not know.
func (n *Numbers) next() uint32 {
	*n++
	if *n == 0 || *n == CreateOnly {
		*n++
	}
	return uint32(*n)
}

// Get implements Data: it appends the value to buffer[:0].
func (m *Map) Get(key, buffer []byte) (value []byte, cas uint32, found bool) {
	v, _ := m.find(key)
	if v == nil {
		return buffer[:0], 0, false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return append(buffer[:0], v.value...), v.cas, v.cas != 0
}

// Set implements Data. A cas of 0 always writes. Any other cas must be the number of the key's last
// write. A missing key is created with any cas. The map keeps a copy of the value.
func (m *Map) Set(key, value []byte, cas uint32) (written bool) {
	v, numbers := m.find(key)
	if v == nil {
		v = m.add(key)
		numbers = m.Numbers
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if cas != 0 && v.cas != 0 && cas != v.cas {
		return false
	}
	v.value = append(v.value[:0], value...)
	v.cas = numbers.next()
	return true
}

// find returns a key's value, and where its writes get their numbers. The value is nil if there is none.
func (m *Map) find(key []byte) (*versioned, *Numbers) {
	if v := m.lent.page(key); v != nil {
		return v, v.numbers()
	}
	return m.values[string(key)], m.Numbers
}

func (m *Map) add(key []byte) *versioned {
	if m.values == nil {
		m.values = map[string]*versioned{}
	}
	if m.Numbers == nil {
		m.Numbers = new(Numbers)
	}
	v := &versioned{}
	m.values[string(key)] = v
	return v
}

// Len returns the number of keys.
func (m *Map) Len() int { return len(m.values) }

// Bytes returns the sum of the lengths of all keys and values.
func (m *Map) Bytes() (bytes int) {
	for name, v := range m.values {
		bytes += len(name) + len(v.value)
	}
	for i := range m.lent.pages {
		if v := &m.lent.pages[i]; v.cas != 0 {
			bytes += len(m.lent.name) + numberSize + len(v.value)
		}
	}
	return bytes
}
