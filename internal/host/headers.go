package host

import (
	"encoding/binary"
	"iter"
	"net/http"
	"slices"
	"strings"
)

// Headers are header fields in their order. Names are stored in lower case; pseudo headers such as
// ":path" are fields like others. The zero value is empty and ready to use.
type Headers struct{ fields []field }

type field struct{ name, value string }

// NewHeaders makes headers from alternating names and values. A last name without a value gets the
// empty value.
func NewHeaders(namesAndValues ...string) *Headers {
	h := &Headers{fields: make([]field, 0, (len(namesAndValues)+1)/2)}
	for pair := range slices.Chunk(namesAndValues, 2) {
		h.Add(pair[0], strings.Join(pair[1:], ""))
	}
	return h
}

// Get returns the first value of a name.
func (h *Headers) Get(name string) (value string, ok bool) { return lookup(h, name) }

// Value returns the first value of a name, or the empty string.
func (h *Headers) Value(name string) string {
	v, _ := lookup(h, name)
	return v
}

// Values returns all values of a name.
func (h *Headers) Values(name string) []string {
	var vs []string
	for _, f := range h.fields {
		if sameName(f.name, name) {
			vs = append(vs, f.value)
		}
	}
	return vs
}

// Add appends a field.
func (h *Headers) Add(name, value string) {
	h.fields = append(h.fields, field{strings.ToLower(name), value})
}

func (h *Headers) addAll(from http.Header) {
	for name, values := range from {
		for _, v := range values {
			h.Add(name, v)
		}
	}
}

// Set replaces all fields of a name by a single field, which takes the place of the first.
func (h *Headers) Set(name, value string) {
	i := slices.IndexFunc(h.fields, func(f field) bool { return sameName(f.name, name) })
	if i < 0 {
		h.Add(name, value)
		return
	}
	h.fields[i].value = value
	rest := slices.DeleteFunc(h.fields[i+1:], func(f field) bool { return sameName(f.name, name) })
	h.fields = h.fields[:i+1+len(rest)]
}

// Del removes all fields of a name.
func (h *Headers) Del(name string) {
	h.fields = slices.DeleteFunc(h.fields, func(f field) bool { return sameName(f.name, name) })
}

// Len returns the number of fields.
func (h *Headers) Len() int {
	if h == nil {
		return 0
	}
	return len(h.fields)
}

// All yields names and values in their order.
func (h *Headers) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		if h == nil {
			return
		}
		for _, f := range h.fields {
			if !yield(f.name, f.value) {
				return
			}
		}
	}
}

// lookup also takes the name as bytes of the guest's memory, so that a read allocates nothing.
func lookup[N ~string | ~[]byte](h *Headers, name N) (string, bool) {
	if h == nil {
		return "", false
	}
	for i := range h.fields {
		if sameName(h.fields[i].name, name) {
			return h.fields[i].value, true
		}
	}
	return "", false
}

// sameName compares a name in lower case with a name in any case.
func sameName[N ~string | ~[]byte](lower string, name N) bool {
	if len(lower) != len(name) {
		return false
	}
	for i := range len(lower) {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if lower[i] != c {
			return false
		}
	}
	return true
}

// appendPairs appends a header map in the ABI's format: the number of fields, the sizes of each
// name and value, then the names and values, each ended by a zero byte. An empty map has no bytes.
func appendPairs(b []byte, h *Headers) []byte {
	if h.Len() == 0 {
		return b
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(h.fields)))
	for _, f := range h.fields {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(f.name)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(f.value)))
	}
	for _, f := range h.fields {
		b = append(append(b, f.name...), 0)
		b = append(append(b, f.value...), 0)
	}
	return b
}

// parsePairs reads and copies a header map in the format of appendPairs. It checks every size,
// because the guest may have written anything.
func parsePairs(b []byte) (*Headers, bool) {
	h := &Headers{}
	if len(b) == 0 {
		return h, true
	}
	if len(b) < 4 {
		return nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	if 4+8*n > uint64(len(b)) {
		return nil, false
	}
	sizes, data := b[4:4+8*n], b[4+8*n:]
	next := func() (string, bool) {
		size := uint64(binary.LittleEndian.Uint32(sizes))
		sizes = sizes[4:]
		if size+1 > uint64(len(data)) {
			return "", false
		}
		s := string(data[:size])
		data = data[size+1:]
		return s, true
	}
	for range n {
		name, ok := next()
		value, fine := next()
		if !ok || !fine {
			return nil, false
		}
		h.Add(name, value)
	}
	return h, true
}
