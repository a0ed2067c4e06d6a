package usage

import (
	"math/bits"
	"strings"

	"weir/internal/jsonpath"
)

// Kind is a kind of tokens. Providers have different prices for them.
type Kind uint8

// The kinds.
const (
	// NoKind is for numbers that have only a weight.
	NoKind Kind = iota
	// Input is tokens that go into a model. Cached is input that the model has seen before, and
	// CacheWrite input that it keeps.
	Input
	Cached
	CacheWrite
	// Output is tokens that come out of a model. Reasoning is output before the answer.
	Output
	Reasoning
	// Audio is sound that goes in, and AudioOutput sound that comes out.
	Audio
	AudioOutput
	// Total is all tokens. The part above the sum of the other kinds counts as output.
	Total
	kinds
)

// KindNames has the names of the kinds from Input to AudioOutput.
var KindNames = []string{"input", "cached", "cache_write", "output", "reasoning", "audio", "audio_output"}

// Rates are the prices of a token of each kind, in millionths of a hit. Total costs the same as
// Output.
type Rates [kinds]uint64

// Parts is the rate at which a token costs 1 hit.
const Parts = 1_000_000

// Tokens are numbers of tokens by their kinds, of which none includes another.
type Tokens [kinds]uint64

func (t *Tokens) cost(rates *Rates) (hits uint64, ok bool) {
	var sum Sum
	for kind, n := range t {
		rate := uint64(Parts)
		if rates != nil {
			rate = rates[kind]
		}
		sum.Add(n, rate)
	}
	return sum.Whole()
}

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

// member is a number of tokens of a kind in answers.
type member struct {
	kind Kind
	// within is the index of the member whose number includes this number; -1 if none does.
	within int
	names  string // paths below a stem, with spaces between
}

const (
	inputMember      = 0
	outputMember     = 1
	cacheReadMember  = 3
	cacheWriteMember = 4
	thoughtsMember   = 5
	cachedMember     = 6
	iteratedMember   = 11
	totalMember      = 15
)

// members are the numbers of all providers: no name means different things for two providers.
//
//   - OpenAI, and Azure, Mistral and vLLM with it: chat completions, completions and embeddings have
//     prompt_tokens and completion_tokens; responses and images have input_tokens and output_tokens.
//     These include tokens read from a cache or written to it, and reasoning tokens. Those of images
//     that a response's tool makes are beside its usage.
//   - Anthropic: messages have input_tokens, which does not include tokens read from a cache or
//     written to it.
//   - Gemini: promptTokenCount includes cached tokens. candidatesTokenCount includes thoughts where the total does not
//     have them besides.
//   - Bedrock: Converse, and the metrics of InvokeModel's stream.
//   - Ollama: prompt_eval_count and eval_count.
//   - LiteLLM's proxy: OpenAI's numbers, and beside them Anthropic's of its cache and rounds, which those include. See
//     [Reader.toldTwice].
var members = [...]member{
	inputMember:  {Input, -1, "prompt_tokens input_tokens inputTokens promptTokenCount inputTokenCount prompt_eval_count embeddings.statistics.token_count"},
	outputMember: {Output, -1, "completion_tokens output_tokens outputTokens candidatesTokenCount outputTokenCount eval_count"},
	{Input, -1, "toolUsePromptTokenCount"},
	cacheReadMember:  {Cached, -1, "cache_read_input_tokens cacheReadInputTokens cacheReadInputTokenCount"},
	cacheWriteMember: {CacheWrite, -1, "cache_creation_input_tokens cacheWriteInputTokens cacheWriteInputTokenCount"},
	thoughtsMember:   {Reasoning, -1, "thoughtsTokenCount"},
	cachedMember:     {Cached, inputMember, "prompt_tokens_details.cached_tokens input_tokens_details.cached_tokens cachedContentTokenCount"},
	{CacheWrite, inputMember, "prompt_tokens_details.cache_write_tokens prompt_tokens_details.cache_creation_tokens input_tokens_details.cache_write_tokens"},
	{Audio, inputMember, "prompt_tokens_details.audio_tokens input_tokens_details.audio_tokens"},
	{Reasoning, outputMember, "completion_tokens_details.reasoning_tokens output_tokens_details.reasoning_tokens"},
	{AudioOutput, outputMember, "completion_tokens_details.audio_tokens output_tokens_details.audio_tokens"},
	iteratedMember: {Input, -1, ""}, // these four take the sums of iterated
	{Output, -1, ""},
	{Cached, -1, ""},
	{CacheWrite, -1, ""},
	totalMember:                           {Total, -1, "total_tokens totalTokens totalTokenCount"},
	{Input, -1, "image_gen.input_tokens"}, // beside the total
	{Output, -1, "image_gen.output_tokens"},
}

// stemSet has a bit for each stem.
type stemSet uint16

const (
	inUsage stemSet = 1 << iota
	inResponse
	inMessage
	inMetadata
	inMetrics
	inPredictions
	inTools
	inResponseTools
	inText
)

// stems are the objects that contain members. A stem has only members with its name in theirs. The
// last stem is the text itself.
var stems = [...]struct{ path, name string }{
	{"usage", "oken"},
	{"response.usage", "_tokens"},
	{"message.usage", "_tokens"},
	{"usageMetadata", "TokenCount"},
	{"amazon-bedrock-invocationMetrics", "TokenCount"},
	{"predictions", "token_count"}, // an array, with an element for each text
	{"tool_usage", "image_gen."},
	{"response.tool_usage", "image_gen."},
	{"", "eval_count"},
}

// kindsBelow returns the fields of the members below some stems whose names contain a text.
func kindsBelow(wanted stemSet, with string) (*Fields, error) {
	f := &Fields{list: make([]Field, len(members)), largest: true}
	for i := range stems {
		stem := &stems[i]
		if wanted>>i&1 == 0 {
			continue
		}
		s := source{adds: stemSet(1)<<i == inPredictions, first: stemSet(1)<<i == inMessage}
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
				if name, names, _ = strings.Cut(names, " "); !strings.Contains(name, stem.name) || !strings.Contains(name, with) {
					continue
				}
				f.hint(name[strings.LastIndexByte(name, '.')+1:])
				if stem.path != "" {
					s.below = append(s.below, below{name: name, field: i})
					continue
				}
				path, err := jsonpath.Compile(name)
				if err != nil {
					return nil, err
				}
				f.sources = append(f.sources, source{path: path, field: i})
			}
		}
		if stem.path != "" {
			f.sources = append(f.sources, s)
		}
	}
	f.prepare()
	return f, f.addModels(wanted)
}
