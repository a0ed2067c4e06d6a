package check

import (
	"bytes"
	"encoding/json"
	"slices"
	"sort"
	"strconv"
)

const (
	// maxDocument is where writing stops, in bytes: the plugin reads one mebibyte.
	maxDocument = 1<<20 + 1
	// maxDepth is deeper than the plugin reads.
	maxDepth = 100
	// maxMistakes bounds the reports of values that JSON lacks.
	maxMistakes = 100
)

// document is the JSON that the plugin would get, with its origin in the file.
type document struct {
	of   yamlOf
	text []byte
	// from returns the offset in the file of an offset in the text.
	from func(offset int) int
	// mistakes are values that JSON lacks.
	mistakes []mistake
	// written means that the plugin gets the document as the file has it, with its expressions.
	written bool
	// expressed are expressions that the plugin gets in a document as it is written, and does not know.
	expressed []mistake
	// envoys are the offsets in the file of scalars that Envoy, or Kubernetes, reads differently.
	envoys map[int]bool
}

// mistake is a problem at an offset of the file.
type mistake struct {
	at            int
	path, problem string
}

// asFile returns the document that is a part of the file.
func asFile(file []byte, start, end int) *document {
	return &document{text: file[start:end], from: func(offset int) int { return start + offset }}
}

func asString(file []byte, n *node) *document {
	places := align(file, n)
	return &document{text: []byte(n.text), from: func(offset int) int { return places[min(offset, len(places)-1)] }}
}

// asText returns a document that was decoded from a string of the file.
func asText(text []byte, n *node) *document {
	return &document{text: text, from: func(int) int { return n.at }}
}

// yamlOf is whose YAML a value is.
type yamlOf uint8

const (
	ours yamlOf = iota
	envoysYAML
	kubernetesYAML
)

// asJSON returns a document that is a value of the file in JSON, as whoever reads the YAML has it.
func asJSON(n *node, of yamlOf) *document {
	w := writer{document: &document{of: of, envoys: map[int]bool{}}}
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
	// origins map offsets in the text, ascending, to offsets in the file. Text between two origins
	// comes from the first.
	origins []origin
}

type origin struct{ to, from int }

func (w *writer) write(n *node, depth int) {
	w.origin(n.at)
	if n.problem != "" {
		w.mistake(n.at, n.problem)
	}
	if n.merge > 0 && w.of == envoysYAML {
		w.mistake(n.merge-len(mergeKey), "want no merge key, because Envoy treats it as a field named "+mergeKey)
	}
	switch {
	case len(w.text) > maxDocument || depth > maxDepth:
		w.text = append(w.text, "null"...)
	case n.kind == kindArray:
		w.list('[', n, depth)
	case n.kind == kindObject:
		w.list('{', n, depth)
	case n.envoys != "" && (w.of == envoysYAML || w.of == kubernetesYAML && n.kind == kindString):
		w.envoys[n.at] = true
		w.text = append(w.text, n.envoys...)
	case n.kind == kindString:
		w.string(n.text)
	default:
		w.text = append(w.text, n.text...)
	}
}

// mistake adds a problem, once for each place.
func (w *writer) mistake(at int, problem string) {
	if len(w.mistakes) < maxMistakes && !slices.ContainsFunc(w.mistakes, func(m mistake) bool { return m.at == at }) {
		w.mistakes = append(w.mistakes, mistake{at: at, problem: problem})
	}
}

func (w *writer) origin(from int) { w.origins = append(w.origins, origin{len(w.text), from}) }

// list writes an array or object. In ASCII both closing brackets are two places after the opening
// bracket.
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
			if name := n.names[i]; name.reads != "" && w.of == kubernetesYAML {
				w.mistake(name.at, "want "+strconv.Quote(name.text)+" in quotes: Kubernetes reads it as "+name.reads)
			}
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
