package ratelimitservice

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// IsConfiguration reports whether a text is a file of the rate limit service: its first document
// has a domain or descriptors. In a file that was found, which may belong to another program, it
// has both, or nothing but the domain.
func IsConfiguration(text []byte, found bool) bool {
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	for err == nil {
		var document yaml.Node
		if err = loader.Load(&document); err != nil || len(document.Content) == 0 || isNull(document.Content[0]) {
			continue
		}
		root := place{node: document.Content[0]}.resolved().node
		if root.Kind != yaml.MappingNode {
			return false
		}
		has := map[string]bool{}
		for i := 0; i+1 < len(root.Content); i += 2 {
			has[root.Content[i].Value] = true
		}
		switch domain, descriptors := has["domain"], has["descriptors"]; {
		case has["rules"] || has["@type"] || has["rate_limit_service"]:
			return false // the plugin's, or Envoy's filter
		case found && (!domain || !descriptors):
			return domain && len(has) == 1
		default:
			return domain || descriptors
		}
	}
	// It is broken, which is reported when it is read. Templates that make files are no files.
	return !errors.Is(err, io.EOF) && domainLine.Match(text) && descriptorsLine.Match(text) && (!found || !bytes.Contains(text, []byte("{{")))
}

var domainLine, descriptorsLine = regexp.MustCompile(`(?m)^domain:`), regexp.MustCompile(`(?m)^descriptors:`)

// Check reads files as [Read] does. It returns their mistakes, and warnings: fields that have no
// effect, and what takes requests by surprise.
func Check(files []File, o Options) (mistakes, warnings []Mistake) {
	c, err := Read(files, o)
	if err == nil {
		return nil, slices.Concat(c.Ignored, c.Surprises)
	}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, err := range joined.Unwrap() {
			if m, ok := errors.AsType[*Mistake](err); ok {
				mistakes = append(mistakes, *m)
			}
		}
	}
	slices.SortStableFunc(mistakes, func(a, b Mistake) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return mistakes, nil
}
