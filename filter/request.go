package filter

import (
	"bytes"

	"weir/internal/proxywasm"
)

// request reads what the rules ask of a request, each part once.
type request struct {
	properties []property
	shared     bool   // whether any of them is
	values     []byte // of the properties read so far
	badCosts   uint64 // costs that were no numbers
	network    [16]byte
}

// property is one thing that the host is asked for: a header, or a property.
type property struct {
	_ [0]func() // or else Go makes a function that compares values

	header string // or empty
	path   string // of an Envoy attribute, with zero bytes between its parts
	cut    byte   // the value ends before this byte, if not 0
	shared bool   // more than one place asks for it

	state      readState
	start, end int // of the value, in request.values
}

type readState uint8

const (
	unread readState = iota
	absent
	present
)

var (
	methodProperty = property{header: ":method"}
	pathProperty   = property{header: ":path", cut: '?'}
	sourceProperty = property{path: "source\x00address"}
)

// use gives a property its place. Rules that ask for the same share it.
//
//go:noinline
func (r *request) use(wanted property) int {
	for i := range r.properties {
		if p := &r.properties[i]; p.header == wanted.header && p.path == wanted.path && p.cut == wanted.cut {
			p.shared, r.shared = true, true
			return i
		}
	}
	r.properties = append(r.properties, wanted)
	return len(r.properties) - 1
}

// begin forgets the request before.
func (r *request) begin() {
	if !r.shared {
		return // nothing was kept
	}
	r.values = r.values[:0]
	for i := range r.properties {
		r.properties[i].state = unread
	}
}

// value is a property of the current request. It is valid until the next call of this, or of the
// host.
func (r *request) value(i int) (value []byte, ok bool) {
	p := &r.properties[i]
	if !p.shared {
		return p.read()
	}
	if p.state == unread {
		r.keep(p)
	}
	return r.values[p.start:p.end], p.state == present
}

func (p *property) read() (value []byte, ok bool) {
	if p.header != "" {
		value, ok = proxywasm.RequestHeader(p.header)
	} else {
		value, ok = proxywasm.Property(p.path)
	}
	if p.cut != 0 {
		if i := bytes.IndexByte(value, p.cut); i >= 0 {
			value = value[:i]
		}
	}
	return value, ok
}

// keep reads a property that is asked for again.
func (r *request) keep(p *property) {
	value, ok := p.read()
	p.state = absent
	if ok {
		p.state = present
	}
	p.start = len(r.values)
	r.values = append(r.values, value...)
	p.end = len(r.values)
}
