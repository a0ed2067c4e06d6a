// Package usage reads the cost of an answer from its body, which arrives in pieces.
//
// The cost is a weighted sum of numbers at JSON paths. A body is a JSON text, or a stream of them;
// in a stream the last value of each number counts, and of a provider's numbers the largest. Only
// values at these paths are kept, so memory is bounded for any body.
package usage

import (
	"bytes"

	"weir/internal/jsonpath"
)

// Most is the largest number that is accepted. Larger numbers are absurd.
const Most = 999_999_999_999_999

// Field is a number that contributes to a cost.
type Field struct {
	_ [0]func() // keeps Go from generating an equality function

	// Paths lead to the same number in different forms of answers. If a body has several, the last
	// in the body counts; if a text has several, the last in Paths.
	Paths []*jsonpath.Path
	// Weight is the cost of a unit of the number, in millionths of a hit, at least 1.
	Weight uint64
	// kind is the kind of tokens that the number counts. within is 1 + the index of the field whose
	// number includes this number, or 0.
	kind   Kind
	within int
}

// source is a path to the number of a field, or to an object with several fields.
type source struct {
	_ [0]func() // keeps Go from generating an equality function

	path  *jsonpath.Path
	field int
	below []below
	adds  bool // the object is an array, whose elements' numbers are added up
	first bool // a stream has its first numbers here, and others when it has come to its end
}

// below is the number of a field within an object.
type below struct {
	_ [0]func() // keeps Go from generating an equality function

	name  string // with dots between names
	field int
}

// Fields are the numbers that make up a cost. They are not modified after NewFields, and several
// readers may use them.
type Fields struct {
	_ [0]func() // keeps Go from generating an equality function

	list    []Field
	sources []source
	// largest means that numbers only grow in a body: some upstreams end with zeros, or with a part.
	// Without it the last number counts.
	largest bool
	// indexed means that a path begins with the index of an element.
	indexed bool
	// hints are parts of names. A text with any of the fields contains a hint, unless it has
	// escapes. searches find hints and escapes.
	hints    [][]byte
	searches []search
}

// NewFields makes fields from a list, which must not be modified afterwards.
func NewFields(list []Field) *Fields {
	f := &Fields{list: list}
	for i := range list {
		for _, path := range list[i].Paths {
			f.sources = append(f.sources, source{path: path, field: i})
			f.indexed = f.indexed || path.Indexes()
			f.hint(path.Longest())
		}
	}
	f.prepare()
	return f
}

// prepare prepares the search for hints, once there are all.
func (f *Fields) prepare() {
	for _, word := range append(f.hints, escape) {
		f.searches = addWord(f.searches, word)
	}
}

// hint adds the rare end of a name, unless that contains another hint.
func (f *Fields) hint(whole string) {
	name := []byte(rareEnd(unescaped(whole)))
	for i := 0; i < len(f.hints); i++ {
		if bytes.Contains(name, f.hints[i]) {
			return
		}
		if bytes.Contains(f.hints[i], name) {
			f.hints = append(f.hints[:i], f.hints[i+1:]...)
			i--
		}
	}
	f.hints = append(f.hints, name)
}

// unescaped returns the longest part of a name that has no short escape in JSON, such as \/ for /. A
// text may have all other bytes of a name only as they are, or as \u.
func unescaped(name string) (part string) {
	for from := 0; from < len(name); from++ {
		to := from
		for to < len(name) && name[to] >= ' ' && name[to] != '"' && name[to] != '\\' && name[to] != '/' {
			to++
		}
		if to-from > len(part) {
			part = name[from:to]
		}
		from = to
	}
	return part
}

// rareEnd returns the part of a name from its last capital or _ on that leaves at least 5 bytes.
// Such ends are rare in texts, so a search finds few false candidates. Names of numbers also often
// share them.
func rareEnd(name string) string {
	const short = 5
	for i := len(name) - short; i >= 0; i-- {
		if c := name[i]; c == '_' || 'A' <= c && c <= 'Z' {
			return name[i:]
		}
	}
	return name
}

// mayBeIn reports whether a complete text may have any of the fields.
//
//go:noinline
func (f *Fields) mayBeIn(text []byte) bool {
	for i := range f.searches {
		if f.searches[i].in(text) {
			return true
		}
	}
	return false
}

var escape = []byte(`\u`)

// Format is the format of a body.
type Format uint8

// The formats.
const (
	// Unreadable is any other format.
	Unreadable Format = iota
	// JSON is a single text. If it is an array, and no path begins with the index of an element,
	// each element is a text.
	JSON
	// Lines has a text in each line: application/x-ndjson.
	Lines
	// Events has a text in the data of each event: text/event-stream.
	Events
	// AmazonEvents has a text in each message, which may have another text in Base64 as its member
	// bytes, and then ends there: application/vnd.amazon.eventstream.
	AmazonEvents
)

// FormatOf returns the format of a media type.
func FormatOf(mediaType []byte) Format {
	for i, c := range mediaType {
		if c == ';' || c == ' ' || c == '\t' {
			mediaType = mediaType[:i]
			break
		}
	}
	for i := range mediaTypes {
		if same(mediaType, mediaTypes[i].name) {
			return mediaTypes[i].format
		}
	}
	if n := len(mediaType) - len(jsonSuffix); n > 0 && same(mediaType[n:], jsonSuffix) {
		return JSON
	}
	return Unreadable
}

// IsUTF8 reports whether a media type names no other charset than UTF-8. In others, such as UTF-7,
// the names in a text may have other bytes.
func IsUTF8(mediaType []byte) bool {
	const charset = "charset"
	for at := 0; at+len(charset) <= len(mediaType); at++ {
		if !same(mediaType[at:at+len(charset)], charset) {
			continue
		}
		value := mediaType[at+len(charset):]
		for len(value) > 0 && (value[0] == '=' || isAround(value[0])) {
			value = value[1:]
		}
		end := 0
		for end < len(value) && !isAround(value[end]) && value[end] != ';' && value[end] != ',' {
			end++
		}
		if value = value[:end]; !same(value, "utf-8") && !same(value, "utf8") && !same(value, "us-ascii") {
			return false
		}
	}
	return true
}

// isAround reports whether a byte can surround a parameter's value.
func isAround(c byte) bool { return c == ' ' || c == '\t' || c == '"' || c == '\'' }

const jsonSuffix = "+json" // RFC 6839, 3.1

var mediaTypes = [...]struct {
	name   string
	format Format
}{
	{"application/json", JSON},
	{"text/event-stream", Events},
	{"application/x-ndjson", Lines},
	{"application/ndjson", Lines},
	{"application/jsonl", Lines},
	{"application/vnd.amazon.eventstream", AmazonEvents},
}

// same reports whether text in lower case equals lower.
func same(text []byte, lower string) bool {
	if len(text) != len(lower) {
		return false
	}
	for i, c := range text {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// Reader reads bodies, one after the other. It keeps its memory, which the fields bound, for the
// next body. Call Reset before use. It is not safe for concurrent use.
type Reader struct {
	_ [0]func() // keeps Go from generating an equality function

	fields *Fields
	rates  *Rates
	format Format
	priced // by the model that the body names
	finder Finder
	// texts read the current text, each for one source. reading is how many of them still look for
	// their value. If it is 0, the rest of the text is skipped.
	texts   []text
	reading int
	// numbers has the number of each field that counts.
	numbers []number
	text    uint64 // counts the texts
	broken  bool
	// told means that the current event has had a number. untold counts the events since the last
	// event with a number.
	told   bool
	untold uint64
	counts bool // count events: see CountEvents
	// first means that a source of first numbers has had some, and later that another has.
	first, later bool

	json    splitter
	events  events
	amazon  amazon
	started bool // the current text has begun
}

// text reads the value of a source.
type text struct {
	_ [0]func() // keeps Go from generating an equality function

	reader jsonpath.Reader
	source *source
	object object // of a source with several fields
	opened bool   // object has begun
	done   bool
}

// number is the number of a field that counts.
type number struct {
	_ [0]func() // keeps Go from generating an equality function

	hits          uint64
	found, absurd bool
	// text and source say where the number comes from. A text's values are found in an order that
	// depends on where its pieces end, so the sources' order decides.
	text   uint64
	source int
}

// Reset begins a body. Its tokens cost the rates or, if these are nil, the weights of the fields.
// It allocates only if fields has more sources than those of all bodies before.
func (r *Reader) Reset(fields *Fields, format Format, rates *Rates) {
	r.fields, r.format, r.rates, r.priced = fields, format, rates, priced{answering: r.answering[:0]}
	r.broken = format == Unreadable
	r.text = 0
	r.told, r.untold, r.counts = false, 0, false
	r.first, r.later = false, false
	r.texts, r.numbers = r.texts[:0], r.numbers[:0]
	for range fields.list {
		r.numbers = append(r.numbers, number{})
	}
	for i := range fields.sources {
		if len(r.texts) == cap(r.texts) {
			r.texts = append(r.texts, text{})
		} else {
			r.texts = r.texts[:len(r.texts)+1] // reuse the memory of its reader
		}
		r.texts[len(r.texts)-1].source = &fields.sources[i]
	}
	r.json, r.events, r.amazon.filled = splitter{whole: fields.indexed}, events{}, 0
	r.begin()
}

// Feed reads the next piece of the body.
func (r *Reader) Feed(piece []byte) {
	switch r.format {
	case JSON:
		r.json.feed(r, piece)
	case Lines:
		r.lines(piece)
	case Events:
		r.events.feed(r, piece)
	case AmazonEvents:
		r.amazon.feed(r, piece)
	}
}

// Cost returns the sum of the numbers found so far, rounded up. found is true if the body has any
// of the fields; missing fields count as 0. It is false if a value is not a number of hits, or a
// value or the sum is above Most.
func (r *Reader) Cost() (hits uint64, found bool) {
	if hits, found = r.costOf(r.rates, r.entry()); r.dearer == nil {
		return hits, found
	}
	if more, ok := r.costOf(r.dearer, r.model); ok && more > hits {
		return more, true
	}
	return hits, found
}

// Partial reports whether a stream has told only the numbers with which it begins. However orderly its body ends, it has then
// failed on its way, or its upstream never tells the rest: Anthropic's message_start has what went in and a first token, and an event error may follow.
func (r *Reader) Partial() bool { return r.format >= Events && r.first && !r.later }

// costOf is Cost by the rates of an entry of the list, and by those that it has for a prompt of this length.
func (r *Reader) costOf(rates *Rates, entry string) (hits uint64, found bool) {
	hits, prompt, found := r.costBy(rates)
	for i := 0; r.list != nil && i < len(r.list.long); i++ {
		l := &r.list.long[i]
		if !l.isFor(entry, r.finder.tiers, prompt) {
			continue
		}
		more, _, ok := r.costBy(&l.rates)
		hits, found = max(hits, more), found && ok
	}
	return hits, found
}

// costBy is Cost by some rates or, if these are nil, by the fields' weights. prompt is how many of the tokens have gone
// into the model: all of them if nothing else is told.
func (r *Reader) costBy(rates *Rates) (hits, prompt uint64, found bool) {
	var sum Sum
	counted := uint64(0) // of tokens
	for i := range r.numbers {
		n, f := &r.numbers[i], &r.fields.list[i]
		if n.absurd {
			return 0, 0, false
		}
		found = found || n.found
		own := n.hits
		if r.toldTwice(i) {
			own = 0
		}
		for j := range r.numbers {
			if r.fields.list[j].within == 1+i {
				own -= min(own, r.numbers[j].hits)
			}
		}
		if f.kind == Total { // of the fields before
			own -= min(own, counted)
		}
		counted += own
		switch f.kind {
		case Input, Cached, CacheWrite, Audio, Total:
			prompt += own
		}
		sum.Add(own, f.rate(rates))
	}
	hits, ok := sum.Whole()
	if !ok {
		return 0, 0, false
	}
	return hits, prompt, found
}

// toldTwice reports whether another field has a field's number, too. What comes out of Gemini may include its thoughts: then it
// makes up the total with what went in. LiteLLM's proxy has OpenAI's details of the prompt, and Anthropic's names for the same.
func (r *Reader) toldTwice(field int) bool {
	if r.fields.list[field].kind == NoKind {
		return false
	}
	if total := &r.numbers[totalMember]; field == thoughtsMember {
		return total.found && total.hits == r.numbers[inputMember].hits+r.numbers[outputMember].hits
	}
	return r.numbers[cachedMember].found &&
		(field == cacheReadMember || field == cacheWriteMember || iteratedMember <= field && field < iteratedMember+len(iterated))
}

// Guessed returns the cost of a number of tokens of a model's output, for tokens that the body has
// not told. Those of a long prompt's answer cost no less than what Cost takes for the told ones.
func (r *Reader) Guessed(tokens uint64) uint64 {
	rate := uint64(Parts)
	if r.rates != nil {
		rate = r.outputOf(r.rates, r.entry())
	}
	if r.dearer != nil {
		rate = max(rate, r.outputOf(r.dearer, r.model))
	}
	var sum Sum
	sum.Add(tokens, rate)
	hits, ok := sum.Whole()
	if !ok {
		return Most
	}
	return hits
}

// outputOf returns the price of output by the rates of an entry of the list, and by those that it has for a prompt of
// this length.
func (r *Reader) outputOf(rates *Rates, entry string) uint64 {
	rate := rates[Output]
	if r.list == nil || len(r.list.long) == 0 {
		return rate
	}
	_, prompt, _ := r.costBy(rates)
	for i := range r.list.long {
		if l := &r.list.long[i]; l.isFor(entry, r.finder.tiers, prompt) {
			rate = max(rate, l.rates[Output])
		}
	}
	return rate
}

// rate returns the price of a unit of a field.
func (f *Field) rate(rates *Rates) uint64 {
	switch {
	case rates == nil || f.kind == NoKind:
		return f.Weight
	case f.kind == Total:
		return rates[Output]
	}
	return rates[f.kind]
}

func (r *Reader) begin() {
	if r.reading = len(r.texts); r.broken {
		r.reading = 0
	}
	r.started = false
	r.text++
}

// mayTell reports whether a complete text may have anything that the reader looks for.
func (r *Reader) mayTell(text []byte) bool { return r.asks() || r.fields.mayBeIn(text) }

func (r *Reader) read(piece []byte) {
	if r.reading == 0 || len(piece) == 0 {
		return
	}
	for i := range r.texts {
		t := &r.texts[i]
		if !r.started {
			if t.done, t.opened = t.source.field <= tierField && !r.tellsTier(), false; t.done {
				r.reading--
			} else if t.source.below != nil {
				t.reader.ResetFlow(t.source.path)
			} else {
				t.reader.Reset(t.source.path)
			}
		}
		if t.done {
			continue
		}
		t.done = t.reader.Feed(piece)
		if part, isObject := t.reader.Flow(); len(part) > 0 {
			if !t.opened {
				t.opened = true
				t.object.begin(isObject, t.source.adds)
			}
			t.object.feed(r, t.source, part)
		}
		if !t.done {
			continue
		}
		r.reading--
		switch value, kind := t.reader.Value(); {
		case t.source.field == modelField:
			r.takeModel(i, value, kind)
		case t.source.field == tierField:
			r.takeTier(i, value, kind)
		case t.source.field == speedField:
			r.takeSpeed(i, value)
		case t.source.below == nil:
			r.take(i, t.source.field, value, kind)
		}
	}
	r.started = true
}

// take takes the value at a field's path, which the text from has read.
func (r *Reader) take(from, field int, value []byte, kind jsonpath.Kind) {
	hits, ok := uint64(0), false
	switch kind {
	case jsonpath.Missing, jsonpath.Null, jsonpath.Malformed:
		return
	case jsonpath.Number, jsonpath.String:
		hits, ok = count(value)
	}
	if last := &r.numbers[field]; !r.fields.largest && last.text == r.text && last.source > from {
		r.told = r.told || ok
	} else {
		last.text, last.source = r.text, from
		r.note(field, hits, ok)
	}
}

// note notes a number of a field. ok is false if it is none that is believed.
func (r *Reader) note(field int, hits uint64, ok bool) {
	n := &r.numbers[field]
	r.told = r.told || ok
	r.counted = r.text
	r.useTier()
	switch {
	case !r.fields.largest:
		n.hits, n.found, n.absurd = hits, ok, !ok
	case ok:
		n.hits, n.found, n.absurd = max(n.hits, hits), true, false
	default:
		n.absurd = !n.found
	}
}

// count parses a number of hits.
func count(value []byte) (hits uint64, ok bool) {
	hits, ok = jsonpath.Natural(value)
	return hits, ok && hits <= Most
}

// Anthropic's answers list the rounds that a request took (https://platform.claude.com/docs/en/build-with-claude/compaction).
// The numbers beside the list are the sum of the rounds that answered. So rounds of those kinds do not
// count, also where a model has declined and another has answered. The others are added: those that
// made the conversation shorter, and those of an advisor.

const iterations = "iterations"

// iteration has the numbers of a round, and the sums of those that are added.
type iteration struct {
	_ [0]func() // keeps Go from generating an equality function

	numbers, sums [len(iterated)]uint64
	added         bool
}

// iterated are the names of a round's numbers, in the order of the members that take their sums.
var iterated = [...]string{
	iterations + ".input_tokens", iterations + ".output_tokens", iterations + ".cache_read_input_tokens", iterations + ".cache_creation_input_tokens",
}

func (n *iteration) begin() { n.numbers, n.added = [len(iterated)]uint64{}, false }

// read reads a member of a round.
func (n *iteration) read(path, value []byte) {
	if string(path) == iterations+".type" {
		n.added = string(value) == "compaction" || string(value) == "advisor_message"
		return
	}
	for i, name := range iterated {
		if string(path) == name {
			n.numbers[i], _ = count(value)
			return
		}
	}
}

// takeIteration takes a round at its end.
func (r *Reader) takeIteration(o *object) {
	n := &o.iteration
	if !n.added {
		return
	}
	for i, hits := range n.numbers {
		n.sums[i] = min(n.sums[i]+hits, Most+1)
		r.note(iteratedMember+i, n.sums[i], n.sums[i] <= Most)
	}
}
