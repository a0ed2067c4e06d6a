package filter

import "weir/internal/jsonpath"

// told is what a request's body tells of its costs.
type told struct {
	// numbers are what the rules read that apply. missing of them are not known yet.
	numbers []bodyNumber
	missing int
	size    int // of what has come
	// unread is set if a rule has not got its number of a body that may have it.
	unread bool
	// at is the request's place among those that wait, until then.
	at    int
	until int64
	// headers is the size of the request while nothing of its body has come to the proxy, if that is
	// known.
	headers uint64
	sized   bool
}

// bodyNumber reads the number of a rule.
type bodyNumber struct {
	_ [0]func() // or else Go makes a function that compares values

	reader jsonpath.Reader
	path   *jsonpath.Path
	known  bool
}

// feed reads a piece of the body.
func (b *told) feed(piece []byte) {
	for i := range b.numbers {
		if n := &b.numbers[i]; !n.known && n.reader.Feed(piece) {
			n.known = true
			b.missing--
		}
	}
}

// find is the text of the number that a path leads to. Before the body has told, there is none.
func (b *told) find(path *jsonpath.Path) (number []byte, found bool) {
	if b == nil {
		return nil, false
	}
	for i := range b.numbers {
		n := &b.numbers[i]
		if n.path != path {
			continue
		}
		value, kind := n.reader.Value()
		switch {
		case kind == jsonpath.Number || kind == jsonpath.String:
			return value, true
		case !n.known || kind != jsonpath.Missing && kind != jsonpath.Null:
			b.unread = true
		}
	}
	return nil, false
}
