package usage

import (
	"math/bits"
	"strings"

	"weir/internal/jsonpath"
)

// Kind is a kind of tokens, because providers have different prices for them.
type Kind uint8

// The kinds.
const (
	// NoKind is of numbers that have a weight alone.
	NoKind Kind = iota
	// Input goes into a model, Cached is input that it has seen before, and CacheWrite input that it keeps.
	Input
	Cached
	CacheWrite
	// Output comes out of a model. Reasoning comes out before the answer.
	Output
	Reasoning
	// Audio and AudioOutput are sounds that go in and come out.
	Audio
	AudioOutput
	// Total is all of them. It counts as output as far as it is above the others together.
	Total
	kinds
)

// KindNames are the names of the kinds, from Input to AudioOutput.
var KindNames = []string{"input", "cached", "cache_write", "output", "reasoning", "audio", "audio_output"}

// Rates are the prices of a token of each kind, in millionths. That of Total is that of Output.
type Rates [kinds]uint64

// Parts is one whole in millionths: at a rate of Parts a token costs 1.
const Parts = 1_000_000

// Prompt returns the highest rate of text that goes into a model.
func (r *Rates) Prompt() uint64 { return max(r[Input], r[Cached], r[CacheWrite]) }

// Answer returns the highest rate of text that comes out of a model.
func (r *Rates) Answer() uint64 { return max(r[Output], r[Reasoning]) }

// Sum is an exact sum of amounts. Its zero value is 0.
type Sum struct{ high, low uint64 }

// Add adds n times rate. Up to 2^32 additions of numbers up to 2^63 can't overflow.
func (s *Sum) Add(n, rate uint64) {
	high, low := bits.Mul64(n, rate)
	var carry uint64
	s.low, carry = bits.Add64(s.low, low, 0)
	s.high, _ = bits.Add64(s.high, high, carry)
}

// Whole returns the sum, rounded up, and whether it is at most Most.
func (s *Sum) Whole() (n uint64, ok bool) {
	if s.high >= Parts {
		return 0, false
	}
	n, rest := bits.Div64(s.high, s.low, Parts)
	if rest > 0 {
		n++
	}
	return n, n <= Most
}

// member is a number of answers that say how many tokens of a kind there were.
type member struct {
	kind Kind
	// within says that the number of the field of this index is part of what that one says; else it is -1.
	within int
	names  string // of the member, below one of the stems, with spaces between
}

const (
	inputMember = iota
	outputMember
)

// members are those of all providers: no name has one meaning for one provider and another for the
// next.
//
//   - OpenAI, and Azure, Mistral and vLLM with it: chat completions, completions and embeddings have
//     prompt_tokens and completion_tokens, responses and images input_tokens and output_tokens. What was
//     cached or thought is part of these.
//   - Anthropic: messages have input_tokens, and beside it what was read from a cache or written to it.
//   - Gemini: what was cached is part of promptTokenCount. Thoughts are beside candidatesTokenCount.
//   - Bedrock: Converse, and the metrics of InvokeModel's stream.
//   - Ollama: prompt_eval_count and eval_count.
var members = [...]member{
	inputMember:  {Input, -1, "prompt_tokens input_tokens inputTokens promptTokenCount inputTokenCount prompt_eval_count token_count"},
	outputMember: {Output, -1, "completion_tokens output_tokens outputTokens candidatesTokenCount outputTokenCount eval_count"},
	{Input, -1, "toolUsePromptTokenCount"},
	{Cached, -1, "cache_read_input_tokens cacheReadInputTokens cacheReadInputTokenCount"},
	{CacheWrite, -1, "cache_creation_input_tokens cacheWriteInputTokens cacheWriteInputTokenCount"},
	{Reasoning, -1, "thoughtsTokenCount"},
	{Cached, inputMember, "prompt_tokens_details.cached_tokens input_tokens_details.cached_tokens cachedContentTokenCount"},
	{Audio, inputMember, "prompt_tokens_details.audio_tokens input_tokens_details.audio_tokens"},
	{Reasoning, outputMember, "completion_tokens_details.reasoning_tokens output_tokens_details.reasoning_tokens"},
	{AudioOutput, outputMember, "completion_tokens_details.audio_tokens output_tokens_details.audio_tokens"},
	{Total, -1, "total_tokens totalTokens totalTokenCount"},
}

// stemSet has a bit for each of the stems.
type stemSet uint8

const (
	inUsage stemSet = 1 << iota
	inResponse
	inMessage
	inMetadata
	inMetrics
	inPredictions
	inText
)

// stems are the members that other members are below, with the texts that their names have in them.
// The empty one is the text itself.
var stems = [...]struct{ path, name string }{
	{"usage", "oken"},
	{"response.usage", "_tokens"},
	{"message.usage", "_tokens"},
	{"usageMetadata", "TokenCount"},
	{"amazon-bedrock-invocationMetrics", "TokenCount"},
	{"predictions.0.embeddings.statistics", "token_count"},
	{"", "eval_count"},
}

// kindsBelow are the numbers of tokens of each kind below some of the stems, all of which are counted.
func kindsBelow(wanted stemSet) (*Fields, error) {
	f := &Fields{list: make([]Field, len(members))}
	for i := range stems {
		stem := &stems[i]
		if wanted>>i&1 == 0 {
			continue
		}
		s := source{}
		var err error
		if stem.path != "" {
			if s.path, err = jsonpath.Compile(stem.path); err != nil {
				return nil, err
			}
		}
		for i := range members {
			m := &members[i]
			f.list[i] = Field{Weight: Parts, kind: m.kind, within: 1 + m.within}
			for names := m.names; names != ""; {
				var name string
				if name, names, _ = strings.Cut(names, " "); !strings.Contains(name, stem.name) {
					continue
				}
				path, err := jsonpath.Compile(name)
				if err != nil {
					return nil, err
				}
				f.hint(name[strings.LastIndexByte(name, '.')+1:])
				if stem.path == "" {
					f.sources = append(f.sources, source{path: path, field: i})
				} else {
					s.below = append(s.below, source{path: path, field: i})
				}
			}
		}
		if stem.path != "" {
			f.sources = append(f.sources, s)
		}
	}
	return f, f.addModels(wanted)
}
