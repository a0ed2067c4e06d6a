package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

const (
	chatPath = "/v1/chat/completions"
	// maxChat bounds the part of a request that is read, in bytes.
	maxChat = 1 << 20
	// usualTokens is the most tokens of an answer by default, and maxTokens the most that a request
	// may ask for.
	usualTokens, maxTokens = 1000, 100_000
	// piece is how many tokens of a stream come together, and pace the time between two pieces.
	piece, pace = 10, 10 * time.Millisecond
)

// ownUpstream is the upstream of weir run: it answers with the request or, for requests to a
// language model, like one.
func ownUpstream(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && r.URL.Path == chatPath {
		chat(w, r)
		return
	}
	w.Header().Set("content-type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(map[string]any{ // fails if the client has gone
		"method": r.Method, "host": r.Host, "path": r.URL.RequestURI(), "headers": r.Header,
	})
}

// chatRequest has the fields of a chat completion request that are used.
type chatRequest struct {
	Model               string          `json:"model"`
	Messages            json.RawMessage `json:"messages"`
	MaxTokens           int             `json:"max_tokens"`
	MaxCompletionTokens int             `json:"max_completion_tokens"`
	Stream              bool            `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// chatUsage is the cost of a completion in tokens.
type chatUsage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// chat answers like a model of OpenAI: with meaningless words, of a random number up to the number
// asked for.
func chat(w http.ResponseWriter, r *http.Request) {
	var asked chatRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxChat)).Decode(&asked); err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]any{"error": map[string]any{"type": "invalid_request_error", "message": err.Error()}})
		return
	}
	most := max(asked.MaxTokens, asked.MaxCompletionTokens)
	if most <= 0 {
		most = usualTokens
	}
	told := chatUsage{PromptTokens: (len(asked.Messages) + 3) / 4} // a token has about four letters
	told.CompletionTokens = 1 + rand.IntN(min(most, maxTokens))
	told.TotalTokens = told.PromptTokens + told.CompletionTokens
	answer := map[string]any{"id": fmt.Sprintf("chatcmpl-%016x", rand.Uint64()), "created": time.Now().Unix(), "model": asked.Model}
	if asked.Stream {
		answer["object"] = "chat.completion.chunk"
		streamChat(w, r, answer, told, asked.StreamOptions.IncludeUsage)
		return
	}
	answer["object"], answer["usage"] = "chat.completion", told
	answer["choices"] = []any{map[string]any{
		"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": words(told.CompletionTokens)},
	}}
	writeJSON(w, http.StatusOK, answer)
}

// streamChat streams a completion, with one piece in each event.
func streamChat(w http.ResponseWriter, r *http.Request, answer map[string]any, told chatUsage, usage bool) {
	w.Header().Set("content-type", "text/event-stream")
	to := http.NewResponseController(w)
	send := func(choices ...any) error {
		answer["choices"] = choices
		event, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", event); err != nil {
			return err
		}
		return to.Flush()
	}
	choice := func(content string, finish any) map[string]any {
		delta := map[string]any{}
		if content != "" {
			delta["content"] = content
		}
		return map[string]any{"index": 0, "delta": delta, "finish_reason": finish}
	}
	ticks := time.Tick(pace)
	for left := told.CompletionTokens; left > 0; left -= piece {
		if send(choice(words(min(piece, left)), nil)) != nil {
			return // the client has gone
		}
		select {
		case <-ticks:
		case <-r.Context().Done():
			return
		}
	}
	if send(choice("", "stop")) != nil {
		return
	}
	if usage {
		answer["usage"] = told
		if send([]any{}...) != nil {
			return
		}
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func words(n int) string { return strings.Repeat("word ", n) }

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("content-type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails if the client has gone
}
