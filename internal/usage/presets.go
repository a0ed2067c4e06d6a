package usage

import "weir/internal/jsonpath"

// Preset is where a provider's answers have their number of tokens.
type Preset struct {
	Name string
	// paths are the paths of numbers in bodies, each with its alternatives. nil means that the numbers
	// are added up by kind.
	paths [][]string
	// stems are the objects with the numbers of tokens of each kind, whose names contain names.
	stems stemSet
	names string
	// Headers together have the cost of a response. If the response has any of them, its body is
	// not read.
	Headers []Header
	// Ending is the way to end the provider's event streams early.
	Ending Ending
}

// Header is a response header with a number of tokens of a kind. Its name is in lower case.
type Header struct {
	Name string
	Kind Kind
}

// Auto is the name of the preset that recognises the provider by the answer.
const Auto = "auto"

// Presets are the providers that are known. Each counts what goes into a model and what comes out of
// it as one. The fields are those of the providers' references:
//
//   - openai: chat completions, completions and embeddings (usage.total_tokens; of a stream only with
//     stream_options.include_usage), responses, and their last event; images that a response's tool makes (tool_usage).
//   - anthropic: messages. A stream's first event has what went in, and each message_delta what has
//     come out so far, and in newer versions what went in, too. What is read from a cache, or written
//     to one, counts as well.
//   - gemini: generateContent and its stream, each of whose chunks has the sum so far; embeddings,
//     which have no sum, and those of Vertex.
//   - bedrock: Converse and ConverseStream; InvokeModel by its headers, and its stream by the
//     metrics in the last message, whose input does not include what a cache has.
//   - ollama: generate, chat and embed, the last text of a stream.
//   - auto: all of these, whichever an answer looks like.
var Presets = []Preset{
	{
		Name: "openai", Ending: OpenAI, stems: inUsage | inResponse | inTools | inResponseTools,
		paths: [][]string{
			{"usage.total_tokens", "response.usage.total_tokens"},
			{"tool_usage.image_gen.total_tokens", "response.tool_usage.image_gen.total_tokens"},
		},
	},
	{
		Name: "anthropic", Ending: Anthropic, stems: inUsage | inMessage, names: "_tokens",
	},
	{Name: "gemini", Ending: Gemini, stems: inMetadata | inPredictions},
	{Name: "bedrock", stems: inUsage | inMetrics, Headers: bedrockHeaders},
	{Name: "ollama", stems: inText, paths: [][]string{{"prompt_eval_count"}, {"eval_count"}}},
	{Name: Auto, Headers: bedrockHeaders, stems: ^stemSet(0)},
}

var bedrockHeaders = []Header{
	{"x-amzn-bedrock-input-token-count", Input},
	{"x-amzn-bedrock-output-token-count", Output},
	{"x-amzn-bedrock-cache-read-input-token-count", Cached},
	{"x-amzn-bedrock-cache-write-input-token-count", CacheWrite},
}

// Fields returns the numbers to read from bodies. They are separate by kind if kinds have prices,
// or if some of the provider's answers have no number for all of them.
func (p *Preset) Fields(priced bool) (*Fields, error) {
	if priced || p.paths == nil {
		return kindsBelow(p.stems, p.names)
	}
	var list []Field
	for _, paths := range p.paths {
		field := Field{Weight: Parts}
		for _, path := range paths {
			compiled, err := jsonpath.Compile(path)
			if err != nil {
				return nil, err
			}
			field.Paths = append(field.Paths, compiled)
		}
		list = append(list, field)
	}
	fields := NewFields(list)
	fields.largest = true
	return fields, nil
}
