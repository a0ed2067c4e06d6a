package filter

import (
	"bytes"

	"weir/config"
	"weir/internal/jsonpath"
	"weir/internal/proxywasm"
	"weir/internal/usage"
)

// A stream of OpenAI's completions tells its usage only if the request has asked for it, in
// stream_options.include_usage. So a request that has not asked is made to ask, while it is paused
// for its body. Its usage comes in a chunk of its own, which package usage takes out again.

const (
	streamText  = "stream"
	includeText = "stream_options.include_usage"
)

var (
	streamPath, _  = jsonpath.Compile(streamText)
	includePath, _ = jsonpath.Compile(includeText)
	trueText       = []byte("true")
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

// askForUsage makes the current request ask for its usage, as its JSON ends in the present piece.
func (b *bodies) askForUsage(v *bodyValues) {
	options := &v.parts[v.textAt(includeText)].reader
	if !options.Complete() {
		return
	}
	value, _, _ := options.Only()
	if v.ask.over = !v.streams() || isTrue(value); v.ask.over {
		return
	}
	v.ask.asked = b.set(v, options, trueText)
	v.ask.over = v.ask.asked
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
