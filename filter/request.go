package filter

import (
	"weir/internal/jsonpath"
	"weir/internal/pattern"
	"weir/internal/proxywasm"
)

// request reads the parts of a request that rules ask for, each part once.
type request struct {
	properties []property
	shared     bool   // some property is shared
	values     []byte // of the properties read so far
	badCosts   uint64 // costs that were not numbers, or were too large
	// absentCosts are costs that were missing.
	absentCosts uint64
	// unreadCosts are costs that responses did not tell.
	unreadCosts uint64
	// body has the values in the current request's body; nil if it was not read. unreadBodies
	// counts bodies that could not tell.
	body         *bodyValues
	unreadBodies uint64
	cutStreams   uint64
	// upstreamHolds counts keys that were held back because the upstream said so.
	upstreamHolds uint64
	// unknownModels counts requests for models that a price list lacks.
	unknownModels uint64
	scratch       scratch
}

// property is one thing to ask the host for: a header, an attribute, or a part of one.
type property struct {
	_ [0]func() // keeps Go from generating an equality function

	header string // or empty
	lines  lines  // which lines of the header count
	path   string // path of an Envoy attribute, with zero bytes between its parts
	// part, unless it is the whole, is taken from another property, with the index of.
	part   part
	of     int
	shared bool // several rules ask for it

	state      readState
	start, end int // position of the value in request.values
}

// lines says which lines count of a header that comes several times. Filters and services disagree:
// they take the first line, the last line, or all.
type lines uint8

const (
	// firstLine is also the choice of Envoy's own rate limits and of its API key filter.
	firstLine lines = iota
	// onlyLine treats a header of several lines as absent: a client may have sent the first line,
	// and a filter may have added another.
	onlyLine
	// joinedLines joins all lines with commas, as Envoy's matchers do; cookieLines joins with
	// semicolons.
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

// ofProxy returns a property of the proxy as text, or "". While Envoy configures a plugin, it has node
// under xds alone, whatever its reference says.
func (r *request) ofProxy(path string) string {
	value, ok := proxywasm.Property(path)
	if !ok {
		value, _ = proxywasm.Property("xds\x00" + path)
	}
	text, _ := r.scratch.verified(value, true)
	return string(text)
}

// useProperty returns the index of a property. Rules that ask for the same property share it.
func (r *request) useProperty(wanted property) int {
	if wanted.header == "host" { // Envoy keeps it under this name
		wanted.header = hostProperty.header
	}
	for i := range r.properties {
		if p := &r.properties[i]; p.header == wanted.header && p.lines == wanted.lines && p.path == wanted.path && p.of == wanted.of && p.part.equal(&wanted.part) {
			p.shared, r.shared = true, true
			return i
		}
	}
	r.properties = append(r.properties, wanted)
	return len(r.properties) - 1
}

// usePart is useProperty for a part of another property.
func (r *request) usePart(of property, p part) int {
	whole := r.useProperty(of)
	if p.kind == wholeValue {
		return whole
	}
	return r.useProperty(property{of: whole, part: p})
}

// useGroup is useProperty for what an expression's group, if there is one, matches of another property.
func (r *request) useGroup(whole int, expression string) int {
	if expression == "" {
		return whole
	}
	compiled, _ := pattern.CompileGroup(expression) // the configuration was checked
	return r.useProperty(property{of: whole, part: part{kind: group, name: expression, group: compiled}})
}

// useBody is useProperty for a text of the body.
func (r *request) useBody(path, otherwise string, longest int) int {
	compiled, _ := jsonpath.Compile(path) // the configuration was checked
	return r.useProperty(property{part: part{kind: bodyText, name: path, literal: []byte(otherwise), segment: longest, claim: compiled}})
}

// beginRequest drops the values of the previous request. body has what the next one's body says; nil if
// nothing was to be read of it.
func (r *request) beginRequest(body *bodyValues) {
	r.body = body
	if !r.shared {
		return // nothing was kept
	}
	r.values = r.values[:0]
	for i := range r.properties {
		r.properties[i].state = unread
	}
}

// value returns a property of the current request. It is valid until the next call of value or of
// the host.
func (r *request) value(i int) (value []byte, ok bool) {
	p := &r.properties[i]
	switch {
	case p.shared:
	case p.header != "" && p.lines == firstLine:
		return proxywasm.RequestHeader(p.header) // as readProperty would
	default:
		return r.readProperty(p)
	}
	if p.state == unread {
		r.keepProperty(p)
	}
	return r.values[p.start:p.end], p.state == present
}

func (r *request) readProperty(p *property) (value []byte, ok bool) {
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

func (r *request) readPart(p *property) (value []byte, ok bool) {
	switch p.part.kind {
	case literal:
		return p.part.literal, true
	case bodyText:
		return r.bodyText(&p.part)
	}
	whole, ok := r.value(p.of)
	if !ok && p.part.kind == inNetworks {
		whole = nil // the address is in no network
	} else if !ok && p.part.kind == group {
		return whole, false // a default
	} else if !ok {
		return nil, false
	}
	return p.part.of(whole, &r.scratch)
}

// bodyText returns the text in the current request's body, or the default if there is none.
func (r *request) bodyText(p *part) (text []byte, ok bool) {
	if r.body == nil {
		return p.literal, false
	}
	text, ok, sound := r.body.text(p.name)
	if len(text) > p.segment {
		ok, sound = false, false
	}
	if !sound {
		r.body.unread = true
	}
	if !ok {
		text = p.literal
	}
	return text, ok
}

// keepProperty reads a property and keeps it, because others will ask for it.
func (r *request) keepProperty(p *property) {
	value, ok := r.readProperty(p)
	p.state = absent
	if ok {
		p.state = present
	}
	p.start = len(r.values)
	r.values = append(r.values, value...)
	p.end = len(r.values)
}
