package jsonpath

// Place is where a text has the value of a name. Its zero value is a name that the text lacks.
type Place struct {
	_ [0]func() // keeps Go from generating an equality function

	// At is how many bytes of the text precede the value, and First is its first byte.
	At    int
	First byte
	// Once says that the text has the name exactly once, and in no other capitals besides.
	Once bool
	// Given says that the text has the name, perhaps in other capitals.
	Given bool
}

func (p *Place) note(at int, first byte, exact bool) {
	p.At, p.First, p.Once, p.Given = at, first, exact && !p.Given, true
}

// Place returns where the value of the path's name with an index lies, after [Reader.ResetAll] or
// [Reader.ResetOnly] and in the object that the text has had last there.
func (r *Reader) Place(index int) Place { return r.levels[index].place }

// Complete reports whether all of the text that [Reader.ResetAll] or [Reader.ResetOnly] reads has
// come. Only white space may follow.
func (r *Reader) Complete() bool { return r.state == afterText }
