package config

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"weir/internal/spelling"
	"weir/internal/wire"
)

// value is a JSON value and its path. Its methods read it as one type. If it has another type, they
// report what would be right and return the zero value. A nil value is a field that was not given;
// its methods work too.
type value struct {
	_ [0]func() // keeps Go from generating an equality function

	report *report
	// parent is the object or array that contains the value. In an object the value has a name, and
	// rawName is the name as it is written. In an array it has an index.
	parent        *value
	name, rawName string
	index         int
	kind          kind
	// raw is the value as it is written, and text the meaning of a string.
	raw, text string
	// at is the offset in the document. For a missing field it is the offset of the object.
	at int
	// secret values are not shown in errors.
	secret bool
}

type field struct {
	name     string
	presence presence
}

type presence uint8

const (
	optional presence = iota
	// A required field is read even if it is missing, so that its reader reports what it should be.
	required
	// An excluded field can't be combined with the object's first field.
	excluded
)

// given reports whether the value is in the document.
func (v *value) given() bool { return v != nil && v.kind != kindMissing }

// path returns the path of the value, such as rules[2].limits[0].window.
func (v *value) path() string {
	if v.parent == nil {
		return ""
	}
	path := v.parent.path()
	switch {
	case v.rawName == "":
		return path + "[" + strconv.Itoa(v.index) + "]"
	case v.name == "" || len(v.name) > maxShown || !all(v.name, wire.IsNameByte):
		return path + "[" + cut(v.rawName) + "]"
	case path == "":
		return v.name
	}
	return path + "." + v.name
}

func (v *value) fail(problem string) { v.report.add(v.at, v.path(), problem) }

// wrong reports an error with the text of what would be right.
func (v *value) wrong(want string) {
	if v.given() {
		v.fail("want " + want + ", got " + v.show())
	} else {
		v.fail("missing, want " + want)
	}
}

func (v *value) givenTwice() { v.fail("given twice") }

// maxShown is how many bytes of a value an error may show.
const maxShown = 40

// show returns the value as it is written, unless it is long or secret.
func (v *value) show() string {
	switch {
	case v.kind == kindObject:
		return "an object"
	case v.kind == kindArray:
		return "an array"
	case v.secret:
		return "a value that is not shown"
	}
	return cut(v.raw)
}

func cut(text string) string {
	if len(text) <= maxShown {
		return text
	}
	end := maxShown
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// missing returns a value for a field that isn't there, to report errors with.
func (v *value) missing(name string) *value {
	return &value{report: v.report, parent: v, name: name, rawName: name, at: v.at}
}

// object reads an object with these fields, and calls read for each that is given or required.
func (v *value) object(like string, fields []field, read func(name string, v *value)) {
	if !v.isObject(like) {
		return
	}
	var seen uint64 // a bit for each field
	for e := v.elements(); !v.report.more && e.next(); {
		child := &value{}
		e.read(child)
		i := find(fields, child.name)
		switch {
		case i < 0:
			child.at = e.nameAt
			problem := "unknown field"
			if len(v.report.found) < maxSuggested {
				problem += ", " + suggest(child.name, fields)
			}
			child.fail(problem)
			continue
		case seen>>i&1 != 0:
			child.at = e.nameAt
			child.givenTwice()
			continue
		}
		seen |= 1 << i
		if fields[i].presence == excluded {
			child.at = e.nameAt
			child.fail("want either " + fields[0].name + " or " + child.name + ", got both")
			continue
		}
		read(child.name, child)
	}
	for i, f := range fields {
		if f.presence == required && seen>>i&1 == 0 {
			read(f.name, v.missing(f.name))
		}
	}
}

// get returns the first field of a name, or nil.
func (v *value) get(name string) *value {
	if v.kind != kindObject {
		return nil
	}
	for e := v.elements(); e.next(); {
		if e.named(name) {
			child := &value{}
			e.read(child)
			return child
		}
	}
	return nil
}

func (v *value) isObject(like string) bool {
	if v.kind != kindObject {
		v.wrong("an object such as " + like)
	}
	return v.kind == kindObject
}

// find returns the index of the field with a name, or -1.
//
//go:noinline
func find(fields []field, name string) int {
	for i := range fields {
		if fields[i].name == name {
			return i
		}
	}
	return -1
}

// oneOf reads an object of one of several variants. Each variant is recognised by its first field.
// If several match, the last is taken, since a variant may contain an earlier variant's first
// field. All variants may have the further fields.
func (v *value) oneOf(like string, variants [][]field, further []field, read func(name string, v *value)) {
	last, others := -1, 0
	e := v.elements()
	for v.kind == kindObject && e.next() {
		for i := len(variants) - 1; i > last; i-- {
			if e.named(variants[i][0].name) {
				last = i
			}
		}
		for i := range further {
			if e.named(further[i].name) {
				others++
			}
		}
	}
	var chosen []field
	if last >= 0 {
		chosen = variants[last]
	} else if e.count == others && v.kind == kindObject {
		v.wantOneOf(variants, others > 0)
		return
	}
	all := append(make([]field, 0, len(variants)+len(chosen)+len(further)), chosen...)
	for _, fields := range variants {
		if tag := fields[0].name; find(chosen, tag) < 0 {
			all = append(all, field{tag, excluded})
		}
	}
	v.object(like, append(all, further...), read)
}

func (v *value) wantOneOf(variants [][]field, others bool) {
	var tags []string
	for _, fields := range variants {
		tags = append(tags, fields[0].name)
	}
	got := ", got an empty object"
	if others {
		got = ", got none of these"
	}
	v.fail("want one of " + list(tags) + got)
}

// array reads an array of least to most elements.
func (v *value) array(what string, least, most int, each func(element *value)) {
	if v.kind != kindArray {
		v.wrong("an array of " + span(least, most) + " " + what)
		return
	}
	v.each(what, least, most, each)
}

// each reads up to most elements, or fields with arbitrary names, and counts all of them. An
// element is valid until each returns.
func (v *value) each(what string, least, most int, each func(element *value)) {
	e := v.elements()
	for element := (&value{}); e.next(); {
		if e.count <= most {
			e.read(element)
			each(element)
		}
	}
	if n := e.count; n < least || n > most {
		v.fail("want " + span(least, most) + " " + what + ", got " + strconv.Itoa(n))
	}
}

func span(least, most int) string {
	if least == 0 {
		return "at most " + strconv.Itoa(most)
	}
	return strconv.Itoa(least) + " to " + strconv.Itoa(most)
}

// length returns the number of elements of an array or fields of an object, and -1 for any other
// value.
func (v *value) length() int {
	if !v.composite() {
		return -1
	}
	e := v.elements()
	for e.next() {
		continue
	}
	return e.count
}

// string reads a string that ok accepts. After an error it returns "".
func (v *value) string(want string, ok func(string) bool) string {
	if v.kind != kindString || !ok(v.text) {
		v.wrong(want)
		return ""
	}
	return v.text
}

// bytes reads a string of 1 to most bytes, all of which are ok.
func (v *value) bytes(want string, most int, ok func(byte) bool) string {
	if v.kind != kindString || !made(v.text, 1, most, ok) {
		v.wrong(want)
		return ""
	}
	return v.text
}

// choice reads one of several strings and returns its index, or -1 after an error.
func (v *value) choice(names []string) int {
	if v.kind == kindString {
		if i := index(names, v.text); i >= 0 {
			return i
		}
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = `"` + name + `"`
	}
	v.wrong(list(quoted))
	return -1
}

// integer reads a number without a fraction, in any notation: 100, 100.0 and 1e+02 are the same.
func (v *value) integer(least, most int64) int64 {
	if v.kind == kindNumber {
		n, whole := parseDecimal(v.raw).scaled(0)
		if whole && least <= n && n <= most {
			return n
		}
	}
	v.wrong("an integer from " + strconv.FormatInt(least, 10) + " to " + strconv.FormatInt(most, 10))
	return 0
}

func (v *value) boolean() bool {
	if v.kind != kindBoolean {
		v.wrong("true or false")
	}
	return v.raw == "true"
}

// composite reports whether the value can contain other values.
func (v *value) composite() bool { return v.kind == kindArray || v.kind == kindObject }

// maxSuggested bounds the mistakes of a document that come with suggestions, which may be long.
const maxSuggested = 500

// suggest returns the name that was probably meant, or else all names.
func suggest(name string, fields []field) string {
	// Names in the style of other projects: maxRetries, Max-Retries.
	b := []byte(lower(name))
	for i := range b {
		if b[i] == '-' {
			b[i] = '_'
		}
	}
	name = string(b)
	best, nearest := "", maxShown
	for _, f := range fields {
		if len(name) > maxShown {
			continue
		}
		d := spelling.Distance(name, f.name)
		if d < nearest && (d <= max(1, len(f.name)/3) || strings.HasPrefix(name, f.name)) {
			best, nearest = f.name, d
		}
	}
	if best != "" {
		return `did you mean "` + best + `"?`
	}
	return "want " + list(names(fields))
}

// names returns the fields' names.
//
//go:noinline
func names(fields []field) []string {
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].name
	}
	return names
}

// list writes "a, b or c".
//
//go:noinline
func list(names []string) string {
	var text string
	for i, name := range names {
		switch {
		case i == 0:
		case i == len(names)-1:
			text += " or "
		default:
			text += ", "
		}
		text += name
	}
	return text
}

// index returns the position of a text in a list, or -1.
//
//go:noinline
func index(list []string, text string) int {
	for i := range list {
		if list[i] == text {
			return i
		}
	}
	return -1
}
