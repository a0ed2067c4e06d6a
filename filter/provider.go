package filter

import (
	"weir/internal/fields"
	"weir/internal/proxywasm"
	"weir/internal/usage"
)

// providerOf returns the provider whose API the current request uses, judged by path and headers.
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

// endingOf returns how to end an event stream of a provider.
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

// refusalBody is reused memory for the refusals that providers' clients understand.
type refusalBody struct {
	bytes []byte
	// text is the last refusal: refusals within a second are often the same.
	text string
}

// write returns a refusal in a provider's form.
func (b *refusalBody) write(p fields.Provider, r *fields.Refusal) string {
	if b.bytes = p.AppendBody(b.bytes[:0], r); string(b.bytes) != b.text {
		b.text = string(b.bytes)
	}
	return b.text
}
