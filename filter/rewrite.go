package filter

import (
	"bytes"
	"strconv"

	"weir/internal/jsonpath"
	"weir/internal/proxywasm"
)

// A paused request's JSON can be changed in the piece that ends it, before the proxy lets that piece
// on. A change in a former piece is impossible.

// rewriting changes a piece of a body.
type rewriting struct {
	piece  []byte // empty until there is a change
	size   int    // of the piece as it came
	edits  []jsonpath.Edit
	texts  []byte // of the edits
	number []byte
}

// rewrite changes the current request's JSON as rules want, which ends in the present piece of size
// bytes.
func (all *streams) rewrite(v *bodyValues, size int) {
	b := &all.bodies
	b.piece, b.size, b.edits, b.texts = b.piece[:0], size, b.edits[:0], b.texts[:0]
	if (v.ask.wanted || v.limits) && signed() {
		return // by its client, so the upstream would refuse another body
	}
	if v.ask.wanted {
		b.askForUsage(v)
	}
	if v.limits {
		all.limitTokens(v)
	}
	if len(b.edits) > 0 {
		b.replace()
	}
}

// signed reports whether the current request says what its body has to be.
func signed() bool {
	for _, name := range [...]string{"x-amz-content-sha256", "content-digest", "digest", "content-md5", "signature"} {
		if _, found := proxywasm.RequestHeader(name); found {
			return true
		}
	}
	authorization, _ := proxywasm.RequestHeader("authorization")
	return bytes.HasPrefix(authorization, []byte("AWS4-"))
}

// set gives the place that a reader of the body has read a value, if all parsers find it there.
func (w *rewriting) set(v *bodyValues, r *jsonpath.Reader, value []byte) (ok bool) {
	if len(w.piece) == 0 {
		w.piece = appendBody(w.piece, w.size, proxywasm.RequestBody)
	}
	texts, e, ok := r.Set(w.texts, value, w.piece, v.size-w.size)
	if !ok {
		return false
	}
	for i := range w.edits {
		other := &w.edits[i]
		switch {
		case other.At != e.At:
		case other.Size == e.Size && string(other.Text) == string(e.Text):
			return true // of another rule
		case other.Size+e.Size > 0 || e.Text[0] != ',' && e.Text[len(e.Text)-1] != ',' || bytes.EqualFold(memberOf(other.Text), memberOf(e.Text)):
			return false // two values at a place, two first members of an object, or two of a name
		}
	}
	w.texts, w.edits = texts, append(w.edits, e)
	return true
}

// memberOf is the name of the member that a text adds, between its first quotes.
func memberOf(text []byte) []byte {
	_, text, _ = bytes.Cut(text, []byte{'"'})
	name, _, _ := bytes.Cut(text, []byte{'"'})
	return name
}

// replace makes the changes in the current piece, and mends the body's length.
func (w *rewriting) replace() {
	for len(w.edits) > 0 {
		last := 0 // in the text: the places before it stay
		for i := range w.edits {
			if w.edits[i].At > w.edits[last].At {
				last = i
			}
		}
		e := w.edits[last]
		n := len(w.piece) + len(e.Text) - e.Size
		w.piece = append(w.piece, e.Text...) // for its room
		copy(w.piece[e.At+len(e.Text):], w.piece[e.At+e.Size:len(w.piece)-len(e.Text)])
		copy(w.piece[e.At:], e.Text)
		w.piece = w.piece[:n]
		w.edits[last] = w.edits[len(w.edits)-1]
		w.edits = w.edits[:len(w.edits)-1]
	}
	proxywasm.ReplaceRequestBody(w.size, w.piece)
	length, _ := proxywasm.RequestHeader("content-length")
	if n, ok := parseHits(length); ok {
		w.number = strconv.AppendUint(w.number[:0], n+uint64(len(w.piece)-w.size), 10)
		proxywasm.ReplaceRequestHeader("content-length", w.number)
	}
}
