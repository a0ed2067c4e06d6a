package usage

import "bytes"

// MayBeIn and HintIn say whether a text may have any of the fields: the search, and the same by the
// standard library.

func (f *Fields) MayBeIn(text []byte) bool { return f.mayBeIn(text) }

func (f *Fields) HintIn(text []byte) bool {
	for _, hint := range f.Hints() {
		if bytes.Contains(text, hint) {
			return true
		}
	}
	return false
}

// Hints returns everything that is searched for.
func (f *Fields) Hints() [][]byte { return append(f.hints[:len(f.hints):len(f.hints)], escape) }

// Passes is how often a text is searched.
func (f *Fields) Passes() int { return len(f.searches) }

// Passed checks the place to which a search of each pass comes: the same on every processor.
func (f *Fields) Passed(text []byte, wrong func(pass, got, want int)) {
	for i := range f.searches {
		b := &f.searches[i].beginning
		if got, want := pass(text, b), passPortably(text, b); got != want {
			wrong(i, got, want)
		}
	}
}
