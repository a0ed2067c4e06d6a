package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"weir/internal/must"
)

// A completion has at most the requested tokens, and has their number; a stream has it only on
// request.
func TestModelAnswers(t *testing.T) {
	ask := func(body string) *httptest.ResponseRecorder {
		answer := httptest.NewRecorder()
		ownUpstream(answer, httptest.NewRequest("POST", chatPath, strings.NewReader(body)))
		return answer
	}
	for _, asked := range []string{`"max_tokens": 3`, `"max_completion_tokens": 3`} {
		var got struct {
			Object  string
			Choices []struct{ Message struct{ Content string } }
			Usage   chatUsage
		}
		must.OK(t, json.Unmarshal(ask(`{"messages": [{}], `+asked+`}`).Body.Bytes(), &got))
		u := got.Usage
		if n := strings.Count(got.Choices[0].Message.Content, "word "); got.Object != "chat.completion" || n < 1 || n > 3 ||
			u.CompletionTokens != n || u.PromptTokens != 1 || u.TotalTokens != n+1 {
			t.Errorf("%s: got %+v", asked, got)
		}
	}
	last := regexp.MustCompile(`"choices":\[\],.*"usage":\{"prompt_tokens":0,"completion_tokens":1,"total_tokens":1\}\}\n\ndata: \[DONE\]\n\n$`)
	for options, told := range map[string]bool{"": false, `, "stream_options": {"include_usage": true}`: true} {
		answer := ask(`{"stream": true, "max_tokens": 1` + options + `}`)
		if got := answer.Body.String(); answer.Header().Get("content-type") != "text/event-stream" || last.MatchString(got) != told ||
			!strings.HasSuffix(got, "data: [DONE]\n\n") || strings.Count(got, `"content":"word "`) != 1 {
			t.Errorf("%s: got\n%s", options, got)
		}
	}
	if answer := ask("{"); answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), "invalid_request_error") {
		t.Errorf("no request: got %d %s", answer.Code, answer.Body)
	}
	must.Equal(t, ask(`{"max_tokens": -1}`).Code, http.StatusOK, "less than nothing: status")
}
