package fields

import "bytes"

// Provider is a provider of language models. Its own clients understand a refusal that is written as it
// writes them.
type Provider uint8

const (
	// NoProvider is none of them.
	NoProvider Provider = iota
	// OpenAI is that of chat completions, responses and their like, which many others speak too.
	OpenAI
	// Anthropic is that of messages.
	Anthropic
	// Gemini is Google's.
	Gemini
	// Bedrock is Amazon's.
	Bedrock
	// AnyProvider is whichever a request looks like.
	AnyProvider
)

// Providers are the names of the providers from OpenAI on.
var Providers = []string{"openai", "anthropic", "gemini", "bedrock", "auto"}

// ProviderOf is the provider that a path looks like, without its query. It is NoProvider for a path that
// none of them has.
func ProviderOf(path []byte) Provider {
	for i := range providerPaths {
		if p := &providerPaths[i]; bytes.Contains(path, []byte(p.part)) {
			return p.provider
		}
	}
	return NoProvider
}

// providerPaths are parts of paths by which a provider is known. The first one counts: others run a
// provider's API below paths of their own, such as Gemini /v1beta/openai and Vertex models of Anthropic.
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

// Cause is why a request is refused.
type Cause uint8

const (
	// OverLimit is of a limit without room.
	OverLimit Cause = iota
	// TooLarge is of a request that wants more than its rule allows any.
	TooLarge
	// UnreadBody is of a request whose body does not tell.
	UnreadBody
)

// Refusal has the parts of a refusal that a provider's clients read.
type Refusal struct {
	Rule  string
	Cause Cause
	// Tokens reports whether the rule counts what a model's answer costs.
	Tokens bool
	// Wait is how many seconds the same request has to wait; 0 if no waiting helps.
	Wait uint64
}

const (
	// patience is how many seconds a client is told to wait at most. OpenAI's waits for two minutes at most.
	// Anthropic's sleeps for as long as it is told, up to 49 days.
	patience = 60
	// quotaAfter is from how many seconds on a limit is a quota, which nobody waits for.
	quotaAfter = 3600

	statusLimited, statusInvalid = 429, 400
)

// waits reports whether a client had better wait.
func (r *Refusal) waits() bool { return r.Wait > 0 && r.Wait <= patience }

// isQuota reports whether so much was used up that waiting is not for a client, but for people.
func (r *Refusal) isQuota() bool { return r.Wait == 0 || r.Wait > quotaAfter }

// Status is the HTTP status of a refusal.
func (p Provider) Status(r *Refusal) int {
	if r.Cause != OverLimit || p == Bedrock && r.isQuota() {
		return statusInvalid
	}
	return statusLimited
}

// Header is the header that clients read of a refusal besides its body. The name is empty if they read none.
func (p Provider) Header(r *Refusal) (name, value string) {
	switch {
	case p == Bedrock && r.Cause != OverLimit:
		return amazonError, "ValidationException"
	case p == Bedrock && r.isQuota():
		return amazonError, "ServiceQuotaExceededException" // which no client tries again
	case p == Bedrock:
		return amazonError, "ThrottlingException"
	case p == Gemini || r.Cause != OverLimit || r.waits():
		return "", ""
	}
	return "x-should-retry", "false"
}

const amazonError = "x-amzn-errortype"

// AppendBody appends a refusal as the provider writes it.
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

// appendMessage appends what people read. A rule's name has nothing to escape.
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

// add appends texts. It is not inlined, which would be larger than all of them.
//
//go:noinline
func add(dst []byte, texts ...string) []byte {
	for _, text := range texts {
		dst = append(dst, text...)
	}
	return dst
}
