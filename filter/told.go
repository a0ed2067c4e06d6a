package filter

import (
	"math"

	"weir/config"
	"weir/internal/jsonpath"
)

// told has what a request's body tells.
type told struct {
	// parts has what the applying rules read of the body. missing of them are still of use to read.
	parts   []bodyPart
	missing int
	size    int  // of what has come
	whole   bool // that is all
	// unread is set if a rule has not got its part of a body that may have it.
	unread bool
	// at is the request's place among those that wait, until then.
	at    int
	until int64
	// headers is the size of the request while nothing of its body has come to the proxy, if that is
	// known.
	headers uint64
	sized   bool
}

// bodyPart reads the numbers of a rule, or a text that any number of rules read.
type bodyPart struct {
	_ [0]func() // or else Go makes a function that compares values

	reader jsonpath.Reader
	path   *jsonpath.Path
	text   string // the path of a text; empty for numbers
	broken bool   // the body can't be read on
}

// another is a further part.
func (b *told) another() *bodyPart {
	if len(b.parts) == cap(b.parts) {
		b.parts = append(b.parts, bodyPart{})
	} else {
		b.parts = b.parts[:len(b.parts)+1] // with the memory that its reader has
	}
	p := &b.parts[len(b.parts)-1]
	p.broken = false
	return p
}

// feed reads a piece of the body.
func (b *told) feed(piece []byte) {
	for i := range b.parts {
		if p := &b.parts[i]; !p.broken && p.reader.Feed(piece) {
			p.broken = true
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
	for i := range b.parts {
		if p := &b.parts[i]; p.path == path && p.text == "" {
			numbers := p.reader.Numbers()
			numbers.Sound = numbers.Sound && b.whole
			return numbers
		}
	}
	return none
}

// textAt is where the text of a path is among the parts, or -1.
func (b *told) textAt(path string) int {
	for i := range b.parts {
		if b.parts[i].text == path {
			return i
		}
	}
	return -1
}

// text returns what the body has at a path, if it has anything, and whether no parser can find anything
// else.
func (b *told) text(path string) (text []byte, found, sound bool) {
	i := b.textAt(path)
	if i < 0 {
		return nil, false, true
	}
	text, found, sound = b.parts[i].reader.Only()
	if !b.whole {
		return nil, false, false
	}
	return text, found, sound
}
