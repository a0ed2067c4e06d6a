package proxywasm

import "encoding/binary"

// Pairs is a list of headers in the ABI's format. Its memory is reused after Reset.
type Pairs struct {
	sizes   []byte
	data    []byte
	encoded []byte
}

// Reset empties the list.
func (p *Pairs) Reset() { p.sizes, p.data = p.sizes[:0], p.data[:0] }

// Add appends a header. The name must be in lower case.
//
//go:noinline
func (p *Pairs) Add(name, value string) {
	p.begin(name, len(value))
	p.data = append(append(p.data, value...), 0)
}

// AddBytes is Add for a value in bytes, which it copies.
//
//go:noinline
func (p *Pairs) AddBytes(name string, value []byte) {
	p.begin(name, len(value))
	p.data = append(append(p.data, value...), 0)
}

// begin appends the part before a header's value.
//
//go:noinline
func (p *Pairs) begin(name string, valueLength int) {
	p.sizes = binary.LittleEndian.AppendUint32(p.sizes, uint32(len(name)))
	p.sizes = binary.LittleEndian.AppendUint32(p.sizes, uint32(valueLength))
	p.data = append(append(p.data, name...), 0)
}

// Len returns the number of headers.
func (p *Pairs) Len() int { return len(p.sizes) / 8 }

// encode returns the list in the ABI's format: the number of pairs, the sizes of all names and
// values, then the names and values, each with a zero byte behind it. All numbers are 32 bits,
// little endian.
//
//go:noinline
func (p *Pairs) encode() []byte {
	p.encoded = binary.LittleEndian.AppendUint32(p.encoded[:0], uint32(p.Len()))
	p.encoded = append(p.encoded, p.sizes...)
	p.encoded = append(p.encoded, p.data...)
	return p.encoded
}

// linesOf returns all values of a header in a list of the ABI's format, and how many there are. The
// separator goes between values, and must not be longer than the header's name. The result is in
// the list's own memory.
func linesOf(pairs []byte, name, separator string) (values []byte, lines int) {
	const numberSize = 4
	if len(pairs) < numberSize {
		return nil, 0
	}
	count := int(binary.LittleEndian.Uint32(pairs))
	sizes := pairs[numberSize:]
	if count > len(sizes)/(2*numberSize) {
		return nil, 0
	}
	data := sizes[2*numberSize*count:]
	sizes = sizes[:2*numberSize*count]
	end, rest := 0, data
	for ; len(sizes) > 0; sizes = sizes[2*numberSize:] {
		nameSize, valueSize := int(binary.LittleEndian.Uint32(sizes)), int(binary.LittleEndian.Uint32(sizes[numberSize:]))
		if nameSize+valueSize+2 > len(rest) {
			break
		}
		if string(rest[:nameSize]) == name {
			if lines++; lines > 1 {
				end += copy(data[end:], separator)
			}
			end += copy(data[end:], rest[nameSize+1:][:valueSize])
		}
		rest = rest[nameSize+valueSize+2:]
	}
	return data[:end], lines
}

// Visit calls f with each header, in order.
func (p *Pairs) Visit(f func(name, value string)) {
	at := 0
	for i := 0; i < len(p.sizes); i += 8 {
		name := int(binary.LittleEndian.Uint32(p.sizes[i:]))
		value := int(binary.LittleEndian.Uint32(p.sizes[i+4:]))
		f(string(p.data[at:at+name]), string(p.data[at+name+1:at+name+1+value]))
		at += name + value + 2
	}
}
