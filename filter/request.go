package filter

import (
	"weir/internal/jsonpath"
	"weir/internal/proxywasm"
)

// request reads what the rules ask of a request, each part once.
type request struct {
	properties []property
	shared     bool   // whether any of them is
	values     []byte // of the properties read so far
	badCosts   uint64 // costs that were no numbers, or none to believe
	// absentCosts are those that were not there.
	absentCosts uint64
	// unreadCosts are of responses that have not told what they cost.
	unreadCosts uint64
	// told is the body's word on a request that has waited for it; unreadBodies are those that
	// could not tell. awaited reports whether a body may follow, so that its conditions are open.
	told         *told
	awaited      bool
	unreadBodies uint64
	cutStreams   uint64
	// unknownModels are requests for models that a price list lacks.
	unknownModels uint64
	scratch       scratch
}

// property is one thing that the host is asked for, a header or a property, or a part of one.
type property struct {
	_ [0]func() // or else Go makes a function that compares values

	header string // or empty
	lines  lines  // of the header that count
	path   string // of an Envoy attribute, with zero bytes between its parts
	// part, unless it is the whole, is the part that is taken of another property, which is at of.
	part   part
	of     int
	shared bool // more than one place asks for it

	state      readState
	start, end int // of the value, in request.values
}

// lines are those of a header that count if it comes in several. Filters and services disagree:
// they take the first line, the last line, or all.
type lines uint8

const (
	// firstLine is taken by Envoy's own rate limits and its filter for API keys.
	firstLine lines = iota
	// onlyLine passes over a header of several lines, as if it were absent: a client may have sent
	// the first line, and a filter may have added another.
	onlyLine
	// joinedLines are all with commas, as Envoy's matchers have them, and cookieLines with semicolons.
	joinedLines
	cookieLines
)

type readState uint8

const (
	unread readState = iota
	absent
	present
)

var (
	methodProperty = property{header: ":method"}
	pathProperty   = property{header: ":path"}
	hostProperty   = property{header: ":authority"}
	sourceProperty = property{path: "source\x00address"}
)

// use gives a property its place. Rules that ask for the same share it.
//
//go:noinline
func (r *request) use(wanted property) int {
	for i := range r.properties {
		if p := &r.properties[i]; p.header == wanted.header && p.lines == wanted.lines && p.path == wanted.path && p.of == wanted.of && p.part.equal(&wanted.part) {
			p.shared, r.shared = true, true
			return i
		}
	}
	r.properties = append(r.properties, wanted)
	return len(r.properties) - 1
}

// usePart is use of a part of another property.
//
//go:noinline
func (r *request) usePart(of property, p part) int {
	whole := r.use(of)
	if p.kind == wholeValue {
		return whole
	}
	return r.use(property{of: whole, part: p})
}

// useBody is use of a text of the body.
//
//go:noinline
func (r *request) useBody(path, otherwise string, longest int) int {
	compiled, _ := jsonpath.Compile(path) // the configuration was checked
	return r.use(property{part: part{kind: bodyText, name: path, literal: []byte(otherwise), segment: longest, claim: compiled}})
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
		return r.read(p)
	}
	if p.state == unread {
		r.keep(p)
	}
	return r.values[p.start:p.end], p.state == present
}

func (r *request) read(p *property) (value []byte, ok bool) {
	switch {
	case p.header != "":
		return headerOf(p.header, p.lines)
	case p.path != "":
		return proxywasm.Property(p.path)
	}
	return r.readPart(p)
}

func headerOf(name string, counts lines) (value []byte, ok bool) {
	if counts == firstLine || name[0] == ':' {
		return proxywasm.RequestHeader(name)
	}
	separator := ","
	if counts == cookieLines {
		separator = "; "
	}
	value, all := proxywasm.RequestLines(name, separator)
	if all == 0 || all > 1 && counts == onlyLine {
		return nil, false
	}
	return value, true
}

// readPart takes a part of a property.
//
//go:noinline
func (r *request) readPart(p *property) (value []byte, ok bool) {
	switch p.part.kind {
	case literal:
		return p.part.literal, true
	case bodyText:
		return r.bodyText(&p.part)
	}
	whole, ok := r.value(p.of)
	if !ok && p.part.kind == inNetworks {
		whole = nil // which is in none
	} else if !ok {
		return nil, false
	}
	return p.part.of(whole, &r.scratch)
}

// bodyText is what the current request's body says, or the value of those that don't say it.
//
//go:noinline
func (r *request) bodyText(p *part) (text []byte, ok bool) {
	if r.told == nil {
		return p.literal, false
	}
	text, ok, sound := r.told.text(p.name)
	if len(text) > p.segment {
		ok, sound = false, false
	}
	if !sound {
		r.told.unread = true
	}
	if !ok {
		text = p.literal
	}
	return text, ok
}

// keep reads a property that is asked for again.
func (r *request) keep(p *property) {
	value, ok := r.read(p)
	p.state = absent
	if ok {
		p.state = present
	}
	p.start = len(r.values)
	r.values = append(r.values, value...)
	p.end = len(r.values)
}
