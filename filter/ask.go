package filter

import (
	"bytes"
	"strconv"

	"weir/config"
	"weir/internal/jsonpath"
	"weir/internal/proxywasm"
	"weir/internal/usage"
)

// A stream of OpenAI's completions tells its usage only if the request has asked for it, in
// stream_options.include_usage. So a request that has not asked is made to ask, while it is paused
// for its body. Its usage comes in a chunk of its own, which package usage takes out again.

const (
	askedName   = `"include_usage":true`
	askedObject = `{` + askedName + `}`
	askedMember = `,"stream_options":` + askedObject
)

const (
	streamText  = "stream"
	includeText = "stream_options.include_usage"
)

var (
	streamPath, _  = jsonpath.Compile(streamText)
	includePath, _ = jsonpath.Compile(includeText)
)

// asking says whether a request is made to ask for its usage.
type asking struct {
	wanted bool // by a rule
	passes bool // the client gets the usage, too
	over   bool // it is known whether the request asks
	asked  bool // it does, by Weir
}

// addAsk adds what tells whether the request asks for its usage.
func (v *bodyValues) addAsk(how config.Ask) {
	v.ask.wanted, v.ask.passes = true, v.ask.passes || how == config.AskAndPass
	v.addText(streamText, streamPath)
	v.addText(includeText, includePath)
}

// isCompletions reports whether the current request is for chat completions, or completions, in any
// spelling of the path. No other API of OpenAI's form has to be asked.
func (s *scratch) isCompletions() bool {
	path, _ := proxywasm.RequestHeader(":path")
	for path = withoutQuery(path); len(path) > 0 && path[len(path)-1] == '/'; {
		path = path[:len(path)-1]
	}
	return string(s.unescape(path[bytes.LastIndexByte(path, '/')+1:])) == "completions"
}

// streams reports whether an upstream may answer the request with a stream.
func (v *bodyValues) streams() bool {
	value, found, sound := v.parts[v.textAt(streamText)].reader.Only()
	return !sound || found && isTrue(value)
}

// isTrue reports whether some parser takes a value for true.
func isTrue(value []byte) bool {
	switch {
	case len(value) == 0:
		return false
	case value[0] == '1':
		return true
	}
	first := value[0] | 0x20
	return first == 't' || first == 'y' || first == 'o' && len(value) == 2
}

// isUnasked reports whether a request for a stream does not ask for its usage, and could not be made
// to ask.
func (v *bodyValues) isUnasked() bool {
	return v != nil && v.ask.wanted && !v.ask.over && v.streams()
}

// askForUsage makes the current request ask for its usage once its JSON has come whole, with the
// piece that the proxy delivers now, which has size bytes. A change in a former piece is impossible.
func (b *bodies) askForUsage(v *bodyValues, size int) {
	options := &v.parts[v.textAt(includeText)].reader
	if !options.Complete() {
		return
	}
	if !v.streams() {
		v.ask.over = true
		return
	}
	var text string
	at, instead := -1, 0 // where the text goes, and how many bytes it replaces
	object, member := options.Place(0), jsonpath.Place{}
	if object.First == '{' {
		member = options.Place(1)
	}
	value, _, _ := options.Only()
	if isTrue(value) {
		v.ask.over = true
		return
	}
	b.piece = appendBody(b.piece[:0], size, proxywasm.RequestBody)
	switch {
	case !object.Given:
		text, at = askedMember, bytes.LastIndexByte(b.piece, '}')
	case !object.Once || object.First == '[':
	case object.First != '{':
		text, at, instead = askedObject, object.At-v.size, -1
	case !member.Given:
		text, at = askedName+",", object.At+1-v.size
		if at >= 0 && firstOf(b.piece[at:]) == '}' {
			text = askedName // the object is empty
		}
	case member.Once:
		text, at, instead = "true", member.At-v.size, -1
	}
	if at < 0 || at >= len(b.piece) {
		return
	}
	if instead < 0 {
		instead = scalarSize(b.piece[at:])
	}
	more := len(text) - instead
	b.piece = append(b.piece, text...) // for its room
	copy(b.piece[at+len(text):], b.piece[at+instead:len(b.piece)-len(text)])
	copy(b.piece[at:], text)
	b.piece = b.piece[:size+more]
	proxywasm.ReplaceRequestBody(size, b.piece)
	if length, _ := proxywasm.RequestHeader("content-length"); len(length) > 0 {
		if n, ok := parseHits(length); ok {
			proxywasm.ReplaceRequestHeader("content-length", strconv.AppendUint(b.piece[:0], n+uint64(more), 10))
		}
	}
	v.ask.over, v.ask.asked = true, true
}

// firstOf returns the first byte of a text that is no white space, 0 for none.
func firstOf(text []byte) byte {
	for _, c := range text {
		if c > ' ' {
			return c
		}
	}
	return 0
}

// scalarSize returns how many bytes the string, the number or the word has that a text begins with.
func scalarSize(text []byte) int {
	quoted := text[0] == '"'
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case quoted && c == '"':
			return i + 1
		case !quoted && (c <= ' ' || c == ',' || c == '}'):
			return i
		}
	}
	return len(text)
}

// isOpenStream reports whether the current response is a readable stream of events without a length.
func isOpenStream() bool {
	_, sized := proxywasm.ResponseHeader("content-length")
	return !sized && responseFormat() == usage.Events
}

// newUnasked returns what takes the usage out of a stream that begins.
func (r *responses) newUnasked() *usage.Unasked {
	u, ok := takeIdle(&r.unasked)
	if !ok {
		u = new(usage.Unasked)
	}
	u.Begin()
	return u
}

// takeOut takes the usage that the client has not asked for out of a piece of the current response's
// body.
func (r *responses) takeOut(u *usage.Unasked, size int, end bool) {
	kept, changed := r.piece[:0], false
	for start, more := 0, true; more; {
		piece, _ := proxywasm.ResponseBody(start, min(bodyPiece, size-start))
		start += len(piece)
		more = start < size && len(piece) > 0
		var same bool
		kept, same = u.Read(kept, piece, end && !more)
		if changed = changed || !same; same && len(piece) < size {
			kept = append(kept, piece...)
		}
	}
	if changed {
		proxywasm.ReplaceResponseBody(size, kept)
	}
	if r.piece = kept; cap(kept) > bodyPiece {
		r.piece = nil
	}
}
