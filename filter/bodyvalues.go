package filter

import (
	"math"

	"weir/config"
	"weir/internal/jsonpath"
	"weir/internal/proxywasm"
)

// bodyValues has the values that the rules read from a request's body.
type bodyValues struct {
	// parts read the body, each for one value of the rules. missing is how many of them still need
	// more of it.
	parts   []bodyPart
	missing int
	size    int  // bytes read so far
	whole   bool // the whole body was read
	// sizes means that a rule needs the body's size, which only its end can tell.
	sizes bool
	// unread is set if a rule did not get its part of a body that may have it.
	unread bool
	ask    asking
	// limits means that a rule may limit the tokens, and most is how many the request may ask for at
	// most; 0 if it may ask for any number.
	limits bool
	most   uint64
	// closed means that the JSON has come to its end.
	closed bool
	// at is the request's place in the list of those that wait, until the time until.
	at    int
	until int64
	// headers is the size of the request before any of its body reached the proxy; sized says that
	// it is known. least is how much of its body must have reached the proxy before it counts as kept.
	headers, least uint64
	sized          bool
}

// bodyPart reads the numbers for a rule, or a text for any number of rules.
type bodyPart struct {
	_ [0]func() // keeps Go from generating an equality function

	reader jsonpath.Reader
	path   *jsonpath.Path
	text   string // the path of a text; empty for numbers
	broken bool   // the body can't be read on
}

// addPart returns a further part, reusing memory.
func (v *bodyValues) addPart() *bodyPart {
	if len(v.parts) == cap(v.parts) {
		v.parts = append(v.parts, bodyPart{})
	} else {
		v.parts = v.parts[:len(v.parts)+1] // with the memory that its reader has
	}
	p := &v.parts[len(v.parts)-1]
	p.broken = false
	return p
}

// feed reads a piece of the body.
func (v *bodyValues) feed(piece []byte) {
	for i := range v.parts {
		if p := &v.parts[i]; !p.broken && p.reader.Feed(piece) {
			p.broken = true
			v.missing--
		}
	}
}

// complete reports whether the JSON has come to its end. Only white space may follow.
func (v *bodyValues) complete() bool {
	for i := range v.parts {
		if v.parts[i].reader.Complete() {
			return true
		}
	}
	return false
}

// numbersOf returns the cost that the body tells: the largest of the numbers at its paths, or their
// sum.
func (v *bodyValues) numbersOf(from *config.BodyCost) (all jsonpath.Numbers) {
	all.Lacking, all.Sound = true, true
	for _, path := range from.Paths {
		n := v.numbersAt(path)
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

// numbersAt returns the numbers at a path of the body. A request without a body has none.
func (v *bodyValues) numbersAt(path *jsonpath.Path) jsonpath.Numbers {
	if p := v.numbersPart(path); p != nil {
		numbers := p.reader.Numbers()
		numbers.Sound = numbers.Sound && v.whole
		return numbers
	}
	return jsonpath.Numbers{Lacking: true, Sound: true}
}

// numbersPart returns the part that reads the numbers at a path, or nil.
func (v *bodyValues) numbersPart(path *jsonpath.Path) *bodyPart {
	for i := 0; v != nil && i < len(v.parts); i++ {
		if p := &v.parts[i]; p.path == path && p.text == "" {
			return p
		}
	}
	return nil
}

// textAt returns the index of the part with the text at a path, or -1.
func (v *bodyValues) textAt(path string) int {
	for i := range v.parts {
		if v.parts[i].text == path {
			return i
		}
	}
	return -1
}

// text returns the body's text at a path. sound reports whether no parser could find another value
// there.
func (v *bodyValues) text(path string) (text []byte, found, sound bool) {
	i := v.textAt(path)
	if i < 0 {
		return nil, false, true
	}
	text, found, sound = v.parts[i].reader.Only()
	if !v.whole {
		return nil, false, false
	}
	return text, found, sound
}

// isCompressed reports whether the current request's body is compressed, by any line of the header.
func isCompressed() bool {
	if _, ok := proxywasm.RequestHeader("content-encoding"); !ok {
		return false
	}
	encoding, _ := proxywasm.RequestLines("content-encoding", ",")
	return string(encoding) != "identity"
}

// isTunnel reports whether the current request asks for a tunnel: by CONNECT or, as a WebSocket, by an
// upgrade. Its client waits for the answer before it sends anything. An upgrade that the proxy does not
// allow comes without that header. With only, a request that may have a body besides is none.
func isTunnel(only bool) bool {
	_, upgrades := proxywasm.RequestHeader("upgrade")
	method, _ := proxywasm.RequestHeader(":method")
	return string(method) == "CONNECT" || upgrades && (!only || string(method) == "GET")
}
