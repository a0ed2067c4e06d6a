package check

import (
	"bytes"
	"encoding/json"
)

// readJSON parses valid JSON. Offsets are those in the text.
func readJSON(text []byte) *node {
	r := jsonReader{text: text, decoder: json.NewDecoder(bytes.NewReader(text))}
	r.decoder.UseNumber()
	return r.value()
}

type jsonReader struct {
	text    []byte
	decoder *json.Decoder
}

// next returns the next token and its offset.
func (r *jsonReader) next() (token json.Token, at int) {
	at = int(r.decoder.InputOffset())
	for at < len(r.text) && bytes.IndexByte([]byte(" \t\r\n,:"), r.text[at]) >= 0 {
		at++
	}
	// Valid JSON has a token wherever this is called.
	token, _ = r.decoder.Token()
	return token, at
}

func (r *jsonReader) value() *node {
	token, at := r.next()
	n := &node{at: at}
	switch token := token.(type) {
	case json.Delim:
		n.kind = kindArray
		if token == '{' {
			n.kind = kindObject
		}
		for r.decoder.More() {
			if n.kind == kindObject {
				token, at := r.next()
				text, _ := token.(string)
				n.names = append(n.names, name{text, at})
			}
			n.children = append(n.children, r.value())
		}
		r.next()
	case string:
		n.kind, n.text, n.writing = kindString, token, doubleQuoted
	}
	n.end = int(r.decoder.InputOffset())
	if n.kind == kindScalar {
		n.text = string(r.text[n.at:n.end])
	}
	return n
}
