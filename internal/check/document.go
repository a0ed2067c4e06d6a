package check

import (
	"bytes"
	"encoding/json"
	"slices"
	"sort"
)

const (
	// maxDocument is where writing ends: the plugin reads a mebibyte.
	maxDocument = 1<<20 + 1
	// maxDepth is more than the plugin reads.
	maxDepth = 100
	// maxMistakes is how many values that JSON does not have are told of.
	maxMistakes = 100
)

// document is the JSON that the plugin would get, and where in the file it comes from.
type document struct {
	text []byte
	// from returns the offset in the file that an offset in the text comes from.
	from func(offset int) int
	// mistakes are values that JSON does not have.
	mistakes []mistake
	// envoys are the places in the file of scalars that Envoy makes something else of.
	envoys map[int]bool
}

// mistake tells what is wrong at an offset of the file.
type mistake struct {
	at            int
	path, problem string
}

// asFile returns a document that is a part of the file as it stands.
func asFile(file []byte, start, end int) *document {
	return &document{text: file[start:end], from: func(offset int) int { return start + offset }}
}

// asString returns a document that a string of the file has.
func asString(file []byte, n *node) *document {
	places := align(file, n)
	return &document{text: []byte(n.text), from: func(offset int) int { return places[min(offset, len(places)-1)] }}
}

// asText returns a document that somebody has made of a string of the file.
func asText(text []byte, n *node) *document {
	return &document{text: text, from: func(int) int { return n.at }}
}

// asJSON returns a document that is written from a value, as Envoy reads its YAML or as others do.
func asJSON(n *node, envoy bool) *document {
	w := writer{document: &document{envoys: map[int]bool{}}, envoy: envoy}
	w.write(n, 0)
	origins := w.origins
	w.from = func(offset int) int {
		i := sort.Search(len(origins), func(i int) bool { return origins[i].to > offset })
		return origins[max(0, i-1)].from
	}
	return w.document
}

type writer struct {
	*document
	envoy bool
	// origins lead from offsets in the text, in their order, to offsets in the file. Text between
	// two origins comes from the first.
	origins []origin
}

type origin struct{ to, from int }

func (w *writer) write(n *node, depth int) {
	w.origin(n.at)
	if n.problem != "" {
		w.mistake(n.at, n.problem)
	}
	if n.merge > 0 && w.envoy {
		w.mistake(n.merge-len(mergeKey), "want no merge key, which Envoy takes for a field of the name "+mergeKey)
	}
	switch {
	case len(w.text) > maxDocument || depth > maxDepth:
		w.text = append(w.text, "null"...)
	case n.kind == kindArray:
		w.list('[', n, depth)
	case n.kind == kindObject:
		w.list('{', n, depth)
	case n.envoys != "" && w.envoy:
		w.envoys[n.at] = true
		w.text = append(w.text, n.envoys...)
	case n.kind == kindString:
		w.string(n.text)
	default:
		w.text = append(w.text, n.text...)
	}
}

// mistake adds what is wrong at a place, once.
func (w *writer) mistake(at int, problem string) {
	if len(w.mistakes) < maxMistakes && !slices.ContainsFunc(w.mistakes, func(m mistake) bool { return m.at == at }) {
		w.mistakes = append(w.mistakes, mistake{at: at, problem: problem})
	}
}

func (w *writer) origin(from int) { w.origins = append(w.origins, origin{len(w.text), from}) }

// list writes an array or object. ASCII has one letter between a bracket and the closing one.
func (w *writer) list(bracket byte, n *node, depth int) {
	w.text = append(w.text, bracket)
	for i, child := range n.children {
		if len(w.text) > maxDocument {
			break
		}
		if i > 0 {
			w.text = append(w.text, ',')
		}
		if n.kind == kindObject {
			w.origin(n.names[i].at)
			w.string(n.names[i].text)
			w.text = append(w.text, ':')
		}
		w.write(child, depth+1)
	}
	w.text = append(w.text, bracket+2)
}

func (w *writer) string(text string) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // strings always have a form
	w.text = append(w.text, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
