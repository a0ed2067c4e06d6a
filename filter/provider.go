package filter

import (
	"weir/internal/fields"
	"weir/internal/proxywasm"
	"weir/internal/usage"
)

// providerOf is the provider whose API the current request speaks, as far as its path and its headers tell.
func providerOf() fields.Provider {
	path, _ := proxywasm.RequestHeader(":path")
	if p := fields.ProviderOf(withoutQuery(path)); p != fields.NoProvider {
		return p
	}
	if _, ok := proxywasm.RequestHeader("anthropic-version"); ok {
		return fields.Anthropic
	}
	if _, ok := proxywasm.RequestHeader("x-goog-api-key"); ok {
		return fields.Gemini
	}
	return fields.NoProvider
}

// endingOf is how a provider's event streams can be ended.
func endingOf(p fields.Provider) usage.Ending {
	switch p {
	case fields.OpenAI:
		return usage.OpenAI
	case fields.Anthropic:
		return usage.Anthropic
	case fields.Gemini:
		return usage.Gemini
	}
	return usage.NoEnding
}

// refusalBody is the memory for the bodies that providers' clients read.
type refusalBody struct {
	bytes []byte
	// text is the last refusal: those of a second are often the same.
	text string
}

// write writes a refusal as a provider does.
func (b *refusalBody) write(p fields.Provider, r *fields.Refusal) string {
	if b.bytes = p.AppendBody(b.bytes[:0], r); string(b.bytes) != b.text {
		b.text = string(b.bytes)
	}
	return b.text
}
