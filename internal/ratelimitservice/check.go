package ratelimitservice

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// IsConfiguration reports whether a text is a file of the rate limit service: its first document
// has a domain and descriptors.
func IsConfiguration(text []byte) bool {
	var document struct {
		Domain      yaml.Node `yaml:"domain"`
		Descriptors yaml.Node `yaml:"descriptors"`
	}
	// A document that is broken further on is reported when it is read.
	_ = yaml.Unmarshal(text, &document)
	return !document.Domain.IsZero() && !document.Descriptors.IsZero()
}

// Check reads files as [Read] does. It returns their mistakes, and the fields that have no effect.
func Check(files []File, o Options) (mistakes, ignored []Mistake) {
	c, err := Read(files, o)
	if err == nil {
		return nil, c.Ignored
	}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, err := range joined.Unwrap() {
			var m *Mistake
			if errors.As(err, &m) {
				mistakes = append(mistakes, *m)
			}
		}
	}
	slices.SortStableFunc(mistakes, func(a, b Mistake) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return mistakes, nil
}
