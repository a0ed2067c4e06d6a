package usage

import "strconv"

// Ending is how a provider's event streams end where no more tokens may come.
type Ending uint8

// The endings.
const (
	// NoEnding is of streams that can't be ended before their time.
	NoEnding Ending = iota
	// OpenAI is finish_reason "length" of chat completions and completions, and an incomplete response
	// of the responses API, whose events have names.
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

// AppendEnding appends the events that end the body, whose last event has ended before.
func (r *Reader) AppendEnding(dst []byte, e Ending) []byte {
	switch e {
	case OpenAI:
		if r.events.named {
			return append(dst, openAIResponse...)
		}
		return append(dst, openAIChunk...)
	case Anthropic:
		dst = append(dst, anthropicDelta...)
		// What has come out is the last of the fields.
		dst = strconv.AppendUint(dst, r.numbers[len(r.numbers)-1].hits+r.untold, 10)
		return append(dst, anthropicStop...)
	case Gemini:
		return append(dst, geminiChunk...)
	}
	return dst
}

// Untold is how many events with an object have come since the last event that has told a number.
// It is 0 for a body of another form.
func (r *Reader) Untold() uint64 { return r.untold }

// Rest is how many bytes of an event stream have come since an event has ended, or the body has begun.
func (r *Reader) Rest() (bytes int) { return r.events.rest }
