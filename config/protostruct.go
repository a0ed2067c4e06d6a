package config

import (
	"math"
	"strconv"
)

// Envoy passes a configuration of type google.protobuf.StringValue or BytesValue to the plugin as
// the bytes in it. Any other type it passes as the bytes of the message, so a Struct arrives in
// protobuf's wire format. The Struct is converted to JSON and then read as JSON, so that both have
// the same errors. This package converts it rather than the plugin, so that every program that
// checks a configuration accepts the same documents.

// kindOf recognises the form of a document. The first byte of a Struct with a field is 0x0a. JSON
// may begin with it too, since it is a line feed. But each field of a Struct has a value with the
// tag 0x12, and JSON never contains that byte: in strings it must be escaped, and outside of them
// the only control characters are tab, line feed and carriage return. Messages of other types may
// have both bytes. A document that begins like JSON but has the byte 0x12 is JSON that lacks an
// escape.
//
//go:noinline
func kindOf(document string) documentKind {
	kind := documentJSON
	for i := range len(document) {
		switch c := document[i]; {
		case c == tagFieldValue && document[0] == tagPart:
			return documentStruct
		case kind == documentJSON && (c == '{' || c == '[' || c == '"'):
			kind = documentText
		case kind == documentJSON && c < ' ' && c != '\t' && c != '\n' && c != '\r':
			kind = documentBinary
		}
	}
	return kind
}

type documentKind uint8

const (
	documentJSON   documentKind = iota
	documentText                // JSON, by its first character
	documentBinary              // a message of another type than Struct
	documentStruct
)

// Tags of google/protobuf/struct.proto: the number of a field, and in the last three bits its
// encoding.
const (
	tagPart = 1<<3 | 2 // of a Struct, a field's name and value; of a ListValue, a Value

	tagFieldName  = 1<<3 | 2
	tagFieldValue = 2<<3 | 2

	tagNull   = 1 << 3
	tagNumber = 2<<3 | 1
	tagString = 3<<3 | 2
	tagBool   = 4 << 3
	tagStruct = 5<<3 | 2
	tagList   = 6<<3 | 2
)

// structJSON converts a Struct to JSON, or returns the problem with it. It does not check that
// strings are UTF-8.
func structJSON(document string) (text, problem string) {
	r := structReader{in: document, out: make([]byte, 0, len(document))}
	r.list(len(document), "{}")
	return string(r.out), r.problem
}

// structReader reads a Struct. Its methods take the end of the part that they read. After the first
// mistake they read nothing more.
//
// Few of them are inlined, and there are few of them, because functions and calls of wasm take much
// space.
type structReader struct {
	in      string
	pos     int
	out     []byte
	depth   int
	problem string
}

//go:noinline
func (r *structReader) fail(problem string) {
	if r.problem == "" {
		r.problem = problem
	}
}

//go:noinline
func (r *structReader) put(text string) {
	if len(r.out) > maxDocument {
		r.fail("has more than " + strconv.Itoa(maxDocument) + " bytes as JSON")
		return
	}
	r.out = append(r.out, text...)
}

//go:noinline
func (r *structReader) more(end int) bool { return r.problem == "" && r.pos < end }

// next returns the next byte, or reports a mistake and returns 0.
//
//go:noinline
func (r *structReader) next(end int) byte {
	if !r.more(end) {
		r.fail("is shorter than it says")
		return 0
	}
	r.pos++
	return r.in[r.pos-1]
}

//go:noinline
func (r *structReader) varint(end int) (n uint64) {
	for shift := 0; shift < 70; shift += 7 {
		c := r.next(end)
		n |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return n
		}
	}
	r.fail("has a number of more than 64 bits")
	return 0
}

// part expects the tag or the size of a string or message, and returns its end.
//
//go:noinline
func (r *structReader) part(tag uint64, end int) (partEnd int) {
	if tag != 0 && r.varint(end) != tag {
		r.fail("has an unknown field")
	}
	n := r.varint(end)
	if n > uint64(end-r.pos) {
		r.fail("is shorter than it says")
		n = 0
	}
	return r.pos + int(n)
}

// list reads a Struct or a ListValue. The brackets say which, and are those of the JSON.
func (r *structReader) list(end int, brackets string) {
	if r.depth++; r.depth > maxDepth {
		r.fail("has too many levels")
	}
	r.put(brackets[:1])
	for first := true; r.more(end); first = false {
		if !first {
			r.put(",")
		}
		partEnd := r.part(tagPart, end)
		if brackets == "{}" {
			r.string(r.part(tagFieldName, partEnd))
			r.put(":")
			r.value(r.part(tagFieldValue, partEnd))
		} else {
			r.value(partEnd)
		}
		if r.pos != partEnd {
			r.fail("has a field twice")
		}
	}
	r.put(brackets[1:])
	r.depth--
}

// value reads a Value, which has a single field. The caller notices bytes that are left over.
func (r *structReader) value(end int) {
	switch r.varint(end) {
	case tagNull:
		r.varint(end)
		r.put("null")
	case tagBool:
		if r.varint(end) != 0 {
			r.put("true")
		} else {
			r.put("false")
		}
	case tagNumber:
		r.number(end)
	case tagString:
		r.string(r.part(0, end))
	case tagStruct:
		r.list(r.part(0, end), "{}")
	case tagList:
		r.list(r.part(0, end), "[]")
	default:
		r.fail("has an unknown field")
	}
}

// number reads a double. It writes whole numbers without an exponent unless they are very large.
func (r *structReader) number(end int) {
	var bits uint64
	for range 8 {
		bits = bits>>8 | uint64(r.next(end))<<56
	}
	const bias = 1023
	exponent := int(bits >> 52 & 0x7ff)
	form := byte('f')
	switch {
	case exponent == 0x7ff:
		r.fail("has a number that JSON lacks")
	case exponent > bias+60 || exponent < bias-30 && bits<<1 != 0:
		form = 'e'
	}
	r.out = strconv.AppendFloat(r.out, math.Float64frombits(bits), form, -1, 64)
}

func (r *structReader) string(end int) {
	r.put(`"`)
	for r.more(end) {
		c := r.next(end)
		switch {
		case c == '"' || c == '\\':
			r.put(`\`)
		case c < ' ':
			const escapes = `\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\u0008\u0009\u000a\u000b\u000c\u000d\u000e\u000f` +
				`\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001a\u001b\u001c\u001d\u001e\u001f`
			r.put(escapes[6*int(c):][:6])
			continue
		}
		r.put(r.in[r.pos-1 : r.pos])
	}
	r.put(`"`)
}
