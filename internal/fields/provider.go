package fields

import "bytes"

// Provider is a provider of language models, or a protocol, whose own clients understand refusals in its form.
type Provider uint8

const (
	// NoProvider is no provider.
	NoProvider Provider = iota
	// OpenAI is the API of chat completions, responses and similar, which many other providers have
	// too.
	OpenAI
	// Anthropic is the API of messages.
	Anthropic
	// Gemini is Google's API.
	Gemini
	// Bedrock is Amazon's API.
	Bedrock
	// AnyProvider is the provider that a request appears to be for.
	AnyProvider
	// JSONRPC is JSON-RPC 2.0, which servers of the Model Context Protocol and of chains speak.
	JSONRPC
)

// Providers are the names of providers in configurations, beginning with OpenAI.
var Providers = []string{"openai", "anthropic", "gemini", "bedrock", "auto", "jsonrpc"}

// ProviderOf returns the provider whose API has a path, given without its query. It is NoProvider
// if there is none.
func ProviderOf(path []byte) Provider {
	for i := range providerPaths {
		if p := &providerPaths[i]; bytes.Contains(path, []byte(p.part)) {
			return p.provider
		}
	}
	return NoProvider
}

// providerPaths are parts of paths that identify a provider. The first match counts, because some
// offer another provider's API under their own paths, such as Gemini in /v1beta/openai, and Vertex
// models of Anthropic.
var providerPaths = [...]struct {
	part     string
	provider Provider
}{
	{"/chat/completions", OpenAI},
	{"/v1/messages", Anthropic},
	{"/publishers/anthropic/", Anthropic},
	{"enerateContent", Gemini}, // generateContent, and streamGenerateContent
	{"mbedContent", Gemini},    // of one text, and of several
	{":predict", Gemini},
	{":countTokens", Gemini},
	{"/converse", Bedrock}, // and converse-stream
	{"/invoke", Bedrock},   // and invoke-with-response-stream
	{"/completions", OpenAI},
	{"/embeddings", OpenAI},
	{"/responses", OpenAI},
	{"/images/", OpenAI},
	{"/audio/", OpenAI},
}

// Cause is why a request was refused.
type Cause uint8

const (
	// OverLimit means that a limit had no room.
	OverLimit Cause = iota
	// TooLarge means that the request wants more than its rule allows for any request.
	TooLarge
	// UnreadBody means that the request's body does not tell its cost.
	UnreadBody
)

// Refusal has the facts that a provider's clients learn.
type Refusal struct {
	Rule  string
	Cause Cause
	// Tokens means that the rule counts the cost of a model's answer.
	Tokens bool
	// Wait is how many seconds until the same request would pass; 0 if no waiting helps.
	Wait uint64
	// Status is the status that the configuration wants for JSON-RPC.
	Status int
	// ID is the request's of JSON-RPC, as JSON has it; empty if it is not known.
	ID []byte
}

const (
	// patience is the longest wait that clients are given, in seconds. OpenAI's clients wait for
	// two minutes at most. Anthropic's sleep as long as they are told, up to 49 days.
	patience = 60
	// quotaAfter is the wait in seconds from which a limit is a quota that no client waits for.
	quotaAfter = 3600

	statusLimited, statusInvalid = 429, 400
)

// waits reports whether a client should wait.
func (r *Refusal) waits() bool { return r.Wait > 0 && r.Wait <= patience }

// isQuota reports whether people rather than the client have to react.
func (r *Refusal) isQuota() bool { return r.Wait == 0 || r.Wait > quotaAfter }

// Status returns the HTTP status of a refusal.
func (p Provider) Status(r *Refusal) int {
	if p == JSONRPC && (r.Cause == OverLimit || r.Status != statusLimited) {
		return r.Status
	}
	if r.Cause != OverLimit || p == Bedrock && r.isQuota() {
		return statusInvalid
	}
	return statusLimited
}

// Header returns the header of a refusal that clients read in addition to its body; an empty name
// for none.
func (p Provider) Header(r *Refusal) (name, value string) {
	switch {
	case p == Bedrock && r.Cause != OverLimit:
		return amazonError, "ValidationException"
	case p == Bedrock && r.isQuota():
		return amazonError, "ServiceQuotaExceededException" // clients do not retry it
	case p == Bedrock:
		return amazonError, "ThrottlingException"
	case p == Gemini || p == JSONRPC || r.Cause != OverLimit || r.waits():
		return "", ""
	}
	return "x-should-retry", "false"
}

const amazonError = "x-amzn-errortype"

// AppendBody appends the body of a refusal in the provider's form.
func (p Provider) AppendBody(dst []byte, r *Refusal) []byte {
	limited := r.Cause == OverLimit
	switch p {
	case Anthropic:
		kind := invalidRequest
		if limited {
			kind = "rate_limit_error"
		}
		return add(r.appendMessage(add(dst, `{"type":"error","error":{"type":"`, kind, `","message":"`)), `"}}`)
	case Gemini:
		code := `{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"`
		if limited {
			code = `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"`
		}
		if dst = add(r.appendMessage(add(dst, code)), `"`); limited && r.Wait > 0 {
			dst = add(dst, `,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"`)
			dst = add(appendNumber(dst, r.Wait), `s"}]`)
		}
		return add(dst, `}}`)
	case Bedrock:
		return add(r.appendMessage(add(dst, `{"message":"`)), `"}`)
	case JSONRPC:
		code := `-32600` // the standard's "Invalid Request"
		if limited {
			code = `-32005` // "Limit exceeded" of EIP-1474; the standard leaves the number to servers
		}
		dst = add(r.appendMessage(add(dst, `{"jsonrpc":"2.0","error":{"code":`, code, `,"message":"`)), `","data":{"rule":"`, r.Rule, `"`)
		if limited && r.Wait > 0 {
			dst = appendNumber(add(dst, `,"retry_after":`), r.Wait)
		}
		if dst = add(dst, `}},"id":`); len(r.ID) == 0 {
			return add(dst, `null}`)
		}
		return append(append(dst, r.ID...), '}')
	}
	kind, code := "requests", "rate_limit_exceeded"
	switch {
	case r.Cause == TooLarge:
		kind, code = invalidRequest, "request_too_large"
	case r.Cause == UnreadBody:
		kind, code = invalidRequest, "unread_body"
	case r.isQuota():
		kind, code = quota, quota
	case r.Tokens:
		kind = "tokens"
	}
	return add(r.appendMessage(add(dst, `{"error":{"message":"`)), `","type":"`, kind, `","param":null,"code":"`, code, `"}}`)
}

const (
	invalidRequest = "invalid_request_error"
	quota          = "insufficient_quota"
)

// appendMessage appends the text for people. A rule's name needs no escape.
func (r *Refusal) appendMessage(dst []byte) []byte {
	switch r.Cause {
	case TooLarge:
		return add(dst, TooLargeMessage, ": more than rule ", r.Rule, " allows a request.")
	case UnreadBody:
		return add(dst, Unread, ", as rule ", r.Rule, " wants it.")
	}
	if dst = add(dst, Exceeded, ": rule ", r.Rule); r.Wait == 0 {
		return add(dst, ". No waiting helps this request.")
	}
	return add(appendNumber(add(dst, ". Please try again in "), r.Wait), "s.")
}

// AppendQuoted appends a text as a string of JSON.
func AppendQuoted(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range text {
		switch {
		case c < ' ':
			dst = append(add(dst, `\u00`), hex[c>>4], hex[c&15])
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// add appends texts. It is not inlined, which would be larger than all of them.
//
//go:noinline
func add(dst []byte, texts ...string) []byte {
	for _, text := range texts {
		dst = append(dst, text...)
	}
	return dst
}
