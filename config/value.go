package config

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// value is a JSON value, the path that leads to it, and where its mistakes are reported. Its methods read it as one type;
// if it isn't of that type they report what would be right and return the zero value.
type value struct {
	report *report
	path   string
	json   node
	// at is the offset in the document; of a missing field, its object's.
	at int
	// secret values are not shown.
	secret bool
}

// field is a field of an object. A missing field that is required is read too: what its reader reports then says what
// should be there.
type field struct {
	name     string
	presence presence
	read     func(value)
}

type presence bool

const (
	required presence = true
	optional presence = false
)

// given says whether the value is in the document.
func (v value) given() bool { return v.json.kind != kindMissing }

func (v value) fail(problem string) { v.report.add(v.at, v.path, problem) }

// wrong reports what would be right.
func (v value) wrong(want string) {
	if v.given() {
		v.fail("want " + want + ", got " + v.show())
	} else {
		v.fail("missing, want " + want)
	}
}

// notYet refuses a value that is right, but not carried out by this version.
func (v value) notYet() { v.fail(notSupported) }

// notYet returns a reader that refuses what read finds nothing wrong with, unless that is empty and so asks for nothing.
// To carry a field out, unwrap its reader.
func notYet(read func(value)) func(value) {
	return func(v value) {
		before := len(v.report.found)
		read(v)
		wrong := func(f finding) bool { return f.Problem != notSupported }
		if v.length() == 0 || slices.ContainsFunc(v.report.found[before:], wrong) {
			return
		}
		v.report.found = v.report.found[:before]
		v.notYet()
	}
}

// maxShown is how many bytes of a value an error shows.
const maxShown = 40

// show returns the value as it is written, if that is short and no secret.
func (v value) show() string {
	switch {
	case v.json.kind == kindObject:
		return "an object"
	case v.json.kind == kindArray:
		return "an array"
	case v.secret:
		return "a value that is not shown"
	}
	return cut(v.json.raw)
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

// child returns a field's value; named by a key.
func (v value) child(key, json node) value {
	v.path = join(v.path, key)
	v.json = json
	v.at = json.at
	return v
}

// missing returns the value of a field that isn't there.
func (v value) missing(name string) value {
	v.path = join(v.path, node{text: name})
	v.json = node{}
	return v
}

// join adds a field to a path: .name, or ["a name"] if that could be misread.
func join(path string, key node) string {
	plain := func(c byte) bool { return isAlphanumeric(c) || c == '_' || c == '-' }
	switch {
	case key.text == "" || len(key.text) > maxShown || !all(key.text, plain):
		return path + "[" + cut(key.raw) + "]"
	case path == "":
		return key.text
	}
	return path + "." + key.text
}

// object reads an object that has these fields.
func (v value) object(like string, fields ...field) {
	if v.json.kind != kindObject {
		v.wrong("an object such as " + like)
		return
	}
	seen := make([]bool, len(fields))
	v.json.each(func(key, json node) bool {
		child := v.child(key, json)
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == key.text })
		switch {
		case i < 0:
			child.fail("unknown field, " + suggest(key.text, fields))
		case seen[i]:
			child.fail("given twice")
		default:
			seen[i] = true
			fields[i].read(child)
		}
		return !v.report.more
	})
	for i, f := range fields {
		if f.presence == required && !seen[i] {
			f.read(v.missing(f.name))
		}
	}
}

// oneOf reads an object that is one of several variants, which are told apart by their first fields. Where several fit,
// the last is taken: a variant may have an earlier one's first field as well.
func (v value) oneOf(like string, variants ...[]field) {
	var chosen []field
	var tags []string
	for _, fields := range variants {
		tags = append(tags, fields[0].name)
		if v.has(fields[0].name) {
			chosen = slices.Clone(fields)
		}
	}
	if chosen == nil && v.length() == 0 {
		v.fail("want one of " + list(tags) + ", got an empty object")
		return
	}
	for _, tag := range tags {
		if !slices.ContainsFunc(chosen, func(f field) bool { return f.name == tag }) {
			chosen = append(chosen, field{tag, optional, func(other value) {
				other.fail("want either " + chosen[0].name + " or " + tag + ", got both")
			}})
		}
	}
	v.object(like, chosen...)
}

// entries reads an object whose fields' names are the user's.
func (v value) entries(like, what string, most int, each func(name string, entry value)) {
	if v.json.kind != kindObject {
		v.wrong("an object such as " + like)
		return
	}
	n := 0
	v.json.each(func(key, json node) bool {
		if n++; n <= most {
			each(key.text, v.child(key, json))
		}
		return true
	})
	v.count(n, 0, most, what)
}

// array reads an array of least to most elements.
func (v value) array(what string, least, most int, each func(element value)) {
	if v.json.kind != kindArray {
		v.wrong("an array of " + span(least, most) + " " + what)
		return
	}
	n := 0
	v.json.each(func(_, json node) bool {
		if n < most {
			element := v
			element.path += "[" + strconv.Itoa(n) + "]"
			element.json, element.at = json, json.at
			each(element)
		}
		n++
		return true
	})
	v.count(n, least, most, what)
}

func (v value) count(n, least, most int, what string) {
	if n < least || n > most {
		v.fail("want " + span(least, most) + " " + what + ", got " + strconv.Itoa(n))
	}
}

func span(least, most int) string {
	if least == 0 {
		return "at most " + strconv.Itoa(most)
	}
	return strconv.Itoa(least) + " to " + strconv.Itoa(most)
}

// length returns how many elements or fields an array or object has, and -1 for another value.
func (v value) length() int {
	if !v.json.composite() {
		return -1
	}
	n := 0
	v.json.each(func(_, _ node) bool { n++; return true })
	return n
}

// has says whether an object has a field.
func (v value) has(name string) (found bool) {
	if v.json.kind == kindObject {
		v.json.each(func(key, _ node) bool {
			found = key.text == name
			return !found
		})
	}
	return found
}

// text reads a string that ok accepts.
func (v value) text(want string, ok func(string) bool) string {
	if v.json.kind != kindString || !ok(v.json.text) {
		v.wrong(want)
		return ""
	}
	return v.json.text
}

// choice reads one of several strings and returns its index, or -1.
func (v value) choice(names ...string) int {
	if v.json.kind == kindString {
		if i := slices.Index(names, v.json.text); i >= 0 {
			return i
		}
	}
	v.wrong(list(quoted(names)))
	return -1
}

// integer reads a number without a fraction, however it is written: 100, 100.0 and 1e+02 are the same.
func (v value) integer(least, most int64) int64 {
	if v.json.kind == kindNumber {
		n, whole := parseDecimal(v.json.raw).scaled(0)
		if whole && least <= n && n <= most {
			return n
		}
	}
	v.wrong("an integer from " + strconv.FormatInt(least, 10) + " to " + strconv.FormatInt(most, 10))
	return 0
}

func (v value) boolean() bool {
	if v.json.kind != kindBoolean {
		v.wrong("true or false")
	}
	return v.json.boolean()
}

// suggest says which name was meant, or which there are.
func suggest(name string, fields []field) string {
	// Spelling of another house: maxRetries, Max-Retries.
	name = strings.ReplaceAll(lower(name), "-", "_")
	names := make([]string, len(fields))
	best, nearest := "", maxShown
	for i, f := range fields {
		names[i] = f.name
		if len(name) > maxShown {
			continue
		}
		d := distance(name, f.name)
		if d < nearest && (d <= max(1, len(f.name)/3) || strings.HasPrefix(name, f.name)) {
			best, nearest = f.name, d
		}
	}
	if best != "" {
		return `did you mean "` + best + `"?`
	}
	return "want " + list(names)
}

// distance returns how many letters must be inserted, deleted or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// list writes "a, b or c".
func list(names []string) string {
	end := len(names) - 1
	if end <= 0 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:end], ", ") + " or " + names[end]
}

func quoted(names []string) []string {
	q := make([]string, len(names))
	for i, name := range names {
		q[i] = `"` + name + `"`
	}
	return q
}
