package config

// Error is one mistake in a configuration.
type Error struct {
	// Path leads to the value, as in rules[2].limits[0].window; empty for the document as a whole.
	Path string
	// Problem says what would be right, and what was found.
	Problem string
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

// Errors are all mistakes of a document, in its order; what is missing comes before what else is
// wrong in the object that lacks it.
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

// maxErrors bounds what a hostile document can make of itself.
const maxErrors = 1000

// report collects mistakes while a document is read.
type report struct {
	document string
	found    []*finding
	more     bool
}

// finding is a mistake and the offset in the document that it belongs to.
type finding struct {
	_ [0]func() // or else Go makes a function that compares values

	Error
	at int
}

func (r *report) add(at int, path, problem string) {
	if len(r.found) == maxErrors {
		r.more = true
		return
	}
	r.found = append(r.found, &finding{Error: Error{path, problem}, at: at})
}

// errors returns what was found in document order: checks that span several fields run after these
// were read.
func (r *report) errors() Errors {
	found := r.found
	for i := range found {
		for j := i; j > 0 && found[j].at < found[j-1].at; j-- {
			found[j], found[j-1] = found[j-1], found[j]
		}
	}
	var errs Errors
	for _, f := range found {
		errs = append(errs, f.Error)
	}
	if r.more {
		errs = append(errs, Error{Problem: "too many errors, the rest is left out"})
	}
	return errs
}
