package filter

import (
	"math"

	"weir/config"
	"weir/internal/jsonpath"
)

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

// findAll returns what the body says that the request may cost: the largest of the numbers that its paths
// lead to, or their sum.
func (b *told) findAll(from *config.BodyCost) (all jsonpath.Numbers) {
	all.Lacking, all.Sound = true, true
	for _, path := range from.Paths {
		n := b.find(path)
		if from.Sum && n.Largest > math.MaxUint64-all.Largest {
			all.Largest = math.MaxUint64
		} else if from.Sum {
			all.Largest += n.Largest
		} else {
			all.Largest = max(all.Largest, n.Largest)
		}
		all.Found = all.Found || n.Found
		all.Lacking = all.Lacking && n.Lacking
		all.Sound = all.Sound && n.Sound
	}
	return all
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

// text returns the text that the body has at a path, and whether it has any, and whether that is certain: a
// request without a body has none.
func (b *told) text(path *jsonpath.Path) (text []byte, found, sure bool) {
	if b == nil {
		return nil, false, true
	}
	for i := range b.numbers {
		if n := &b.numbers[i]; n.path == path {
			text, found, sure = n.reader.Only()
			return text, found, sure && b.whole
		}
	}
	return nil, false, true
}
