package sharedata

import (
	"testing"

	"weir/internal/must"
)

// wants fails unless a key has a value, and returns its number.
func wants(t *testing.T, m *Map, key, value string) (cas uint32) {
	t.Helper()
	got, cas, found := m.Get([]byte(key), make([]byte, 8))
	if !found || string(got) != value {
		t.Errorf("%s: got %q, %v, want %q", key, got, found, value)
	}
	return cas
}

func TestMap(t *testing.T) {
	t.Parallel()
	var m Map
	a, b := []byte("a"), []byte("b")
	buffer := []byte("of the caller")
	if value, cas, found := m.Get(a, buffer); found || cas != 0 || len(value) != 0 || cap(value) != cap(buffer) {
		t.Errorf("a key that was never set: got %q, %d, %v", value, cas, found)
	}
	for key, cas := range map[string]uint32{"a": CreateOnly, "b": 0, "c": 7} {
		must.Equal(t, m.Set([]byte(key), []byte("one"), cas), true, "%d does not create", cas)
	}
	first := wants(t, &m, "a", "one")
	if m.Set(a, []byte("two"), CreateOnly) || m.Set(a, []byte("two"), first+1) || m.Set(a, []byte("two"), wants(t, &m, "b", "one")) {
		t.Error("a wrong number writes")
	}
	wants(t, &m, "a", "one")
	must.Equal(t, [2]bool{m.Set(a, []byte("longer than the first"), first), m.Set(a, []byte("two"), first)}, [2]bool{true, false}, "a number writes, if it is that of the last write, and once")
	must.Equal(t, wants(t, &m, "a", "longer than the first"), 4, "the fourth write has the number")
	must.Equal(t, m.Set(b, nil, 0), true, "0 does not write")
	wants(t, &m, "b", "")
	must.Equal(t, [2]int{m.Len(), m.Bytes()}, [2]int{3, len("abc" + "longer than the first" + "one")}, "keys, and bytes")
	value := []byte("mine")
	m.Set(a, value, 0)
	got, _, _ := m.Get(a, nil)
	value[0], got[1] = 'x', 'x'
	wants(t, &m, "a", "mine")
}

// Numbers come round without ever being 0, or the number that creates.
func TestNumbers(t *testing.T) {
	t.Parallel()
	for last, want := range map[Numbers]uint32{0: 1, 1: 2, CreateOnly - 1: CreateOnly + 1, 1<<32 - 1: 1} {
		must.Equal(t, last.next(), want, "after %d", last)
	}
	numbers := new(Numbers)
	one, two := Map{Numbers: numbers}, Map{Numbers: numbers}
	one.Set([]byte("k"), nil, 0)
	two.Set([]byte("k"), nil, 0)
	must.Equal(t, wants(t, &two, "k", ""), 2, "the second of two maps with the same numbers")
}

func TestMapAllocatesNothing(t *testing.T) {
	var m Map
	key, value, buffer := []byte("k"), make([]byte, 100), make([]byte, 0, 100)
	m.Set(key, value, 0)
	must.Equal(t, testing.AllocsPerRun(100, func() {
		var cas uint32
		if buffer, cas, _ = m.Get(key, buffer); !m.Set(key, buffer, cas) {
			t.Error("not written")
		}
	}), 0, "allocations")
}
