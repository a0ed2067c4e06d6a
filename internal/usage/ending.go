package usage

import "strconv"

// Ending is a way to end a provider's event streams early.
type Ending uint8

// The endings.
const (
	// NoEnding is for streams that can't be ended early.
	NoEnding Ending = iota
	// OpenAI is finish_reason "length" for chat completions and completions, and an incomplete
	// response for the responses API, whose events have names.
	OpenAI
	// Anthropic is stop_reason "max_tokens".
	Anthropic
	// Gemini is finishReason "MAX_TOKENS".
	Gemini
)

const (
	openAIChunk = `data: {"id":"","object":"chat.completion.chunk","created":0,"model":"",` +
		`"choices":[{"index":0,"delta":{},"text":"","logprobs":null,"finish_reason":"length"}]}` + "\n\ndata: [DONE]\n\n"
	openAIResponse = "event: response.incomplete\n" + `data: {"type":"response.incomplete","response":{"id":"","object":"response","status":"incomplete",` +
		`"incomplete_details":{"reason":"max_output_tokens"},"error":null,"output":[],"usage":null}}` + "\n\n"
	anthropicDelta = "event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"output_tokens":`
	anthropicStop  = "}}\n\nevent: message_stop\n" + `data: {"type":"message_stop"}` + "\n\n"
	geminiChunk    = `data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"MAX_TOKENS","index":0}]}` + "\n\n"
)

const (
	usedUp          = `"Rate limit exceeded: the stream has used up its budget."`
	openAIError     = `{"type":"error","error":{"message":` + usedUp + `,"type":"tokens","param":null,"code":"rate_limit_exceeded"}`
	openAIChunkFail = "data: " + openAIError + "}\n\ndata: [DONE]\n\n"
	openAIEventFail = "event: error\ndata: " + openAIError + `,"code":"rate_limit_exceeded","message":` + usedUp + `,"param":null,"sequence_number":0}` + "\n\n"
	anthropicFail   = "event: error\n" + `data: {"type":"error","error":{"type":"rate_limit_error","message":` + usedUp + `}}` + "\n\n"
	geminiFail      = `data: {"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":` + usedUp + `}}` + "\n\n"
)

// AppendError appends an event at which the provider's own clients raise an error and leave. The
// last event before must be complete.
func (r *Reader) AppendError(dst []byte, e Ending) []byte {
	switch {
	case e == OpenAI && r.events.named:
		return append(dst, openAIEventFail...)
	case e == OpenAI:
		return append(dst, openAIChunkFail...)
	case e == Anthropic:
		return append(dst, anthropicFail...)
	case e == Gemini:
		return append(dst, geminiFail...)
	}
	return dst
}

// AppendEnding appends the events that end the body regularly. The last event before must be
// complete.
func (r *Reader) AppendEnding(dst []byte, e Ending) []byte {
	switch e {
	case OpenAI:
		if r.events.named {
			return append(dst, openAIResponse...)
		}
		return append(dst, openAIChunk...)
	case Anthropic:
		dst = append(dst, anthropicDelta...)
		dst = strconv.AppendUint(dst, r.output()+r.untold, 10)
		return append(dst, anthropicStop...)
	case Gemini:
		return append(dst, geminiChunk...)
	}
	return dst
}

// output returns the tokens that the model has put out. In a list without kinds, they are the last
// number.
func (r *Reader) output() uint64 {
	last := len(r.numbers) - 1
	if r.fields.list[last].kind != NoKind {
		last = outputMember
	}
	return r.numbers[last].hits
}

// CountEvents makes the reader count events, for [Reader.Untold]. Call it after Reset.
func (r *Reader) CountEvents() { r.counts = true }

// Untold returns how many events with an object have come since the last event with a number. It is
// 0 for a body of another format.
func (r *Reader) Untold() uint64 { return r.untold }

// Rest returns how many bytes of an event stream have come since the last complete event, or the
// beginning.
func (r *Reader) Rest() (bytes int) { return r.events.rest }
