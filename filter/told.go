package filter

import "weir/internal/jsonpath"

// told has the costs that a request's body tells.
type told struct {
	// numbers has the body's numbers that the applying rules read. missing of them are still of use
	// to read.
	numbers []bodyNumber
	missing int
	size    int  // of what has come
	whole   bool // that is all
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

// bodyNumber reads the numbers of a rule.
type bodyNumber struct {
	_ [0]func() // or else Go makes a function that compares values

	reader jsonpath.Reader
	path   *jsonpath.Path
	broken bool // the body can't be read on
}

// feed reads a piece of the body.
func (b *told) feed(piece []byte) {
	for i := range b.numbers {
		if n := &b.numbers[i]; !n.broken && n.reader.Feed(piece) {
			n.broken = true
			b.missing--
		}
	}
}

// find returns the numbers that the body has at a path. A request that has none says nothing.
func (b *told) find(path *jsonpath.Path) jsonpath.Numbers {
	none := jsonpath.Numbers{Lacking: true, Sound: true}
	if b == nil {
		return none
	}
	for i := range b.numbers {
		if n := &b.numbers[i]; n.path == path {
			numbers := n.reader.Numbers()
			numbers.Sound = numbers.Sound && b.whole
			return numbers
		}
	}
	return none
}
