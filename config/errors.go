package config

// Error is one mistake in a configuration.
type Error struct {
	// Path leads to the value, such as rules[2].limits[0].window. It is empty for the document as a
	// whole.
	Path string
	// Problem says what would be right, and what was found.
	Problem string
	// At is the offset in the document, in bytes, of the value, of the name of a wrong field, or of
	// the object that lacks a field. If the document is a serialized Struct, it is the offset in
	// the JSON that was made of it.
	At int
}

// Error returns "path: problem".
//
//go:noinline
func (e Error) Error() string {
	if e.Path == "" {
		return e.Problem
	}
	return e.Path + ": " + e.Problem
}

// Errors are all mistakes of a document, in document order. A missing field comes before other
// mistakes in the object that lacks it.
type Errors []Error

// Error returns one line for each mistake.
//
//go:noinline
func (e Errors) Error() string {
	var lines []byte
	for i := range e {
		if i > 0 {
			lines = append(lines, '\n')
		}
		lines = append(lines, e[i].Error()...)
	}
	return string(lines)
}

// maxErrors bounds the list of mistakes in a hostile document.
const maxErrors = 1000

// report collects mistakes while a document is read.
type report struct {
	document string
	found    []*Error
	more     bool
	shares   shares
}

func (r *report) add(at int, path, problem string) {
	if len(r.found) == maxErrors {
		r.more = true
		return
	}
	r.found = append(r.found, &Error{Path: path, Problem: problem, At: at})
}

// errors returns the mistakes in document order. They are found in another order, because checks
// across several fields run after the fields were read.
func (r *report) errors() Errors {
	found := r.found
	for i := range found {
		for j := i; j > 0 && found[j].At < found[j-1].At; j-- {
			found[j], found[j-1] = found[j-1], found[j]
		}
	}
	var errs Errors
	for _, f := range found {
		errs = append(errs, *f)
	}
	if r.more {
		errs = append(errs, Error{Problem: "too many errors, the rest are left out"})
	}
	return errs
}
