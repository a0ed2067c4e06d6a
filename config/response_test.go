package config_test

import (
	"fmt"
	"testing"

	"weir/config"
	"weir/internal/fields"
	"weir/internal/must"
)

// answers returns a configuration's general response, and the response of a rule that has its own.
func answers(t *testing.T, general, own string) (inherited, answered *config.Response) {
	t.Helper()
	c, err := config.Parse([]byte(`{"response": ` + general + `, "rules": [
		{"name": "a", "limits": [{"limit": 1, "window": "1m"}]},
		{"name": "b", "response": ` + own + `, "limits": [{"limit": 1, "window": "1m"}]}]}`))
	must.OKf(t, err, "%s, %s", general, own)
	return c.Rules[0].Response, c.Rules[1].Response
}

// A rule's response inherits each missing field from the general response.
func TestInheritedResponse(t *testing.T) {
	t.Parallel()
	const general = `{"status": 503, "body": "later", "content_type": "text/plain; charset=utf-8", "headers": {"x-a": "b"}, "grpc_status": 14}`
	for own, changes := range map[string]func(r *config.Response){
		`{}`:                       func(*config.Response) {},
		`{"status": 430}`:          func(r *config.Response) { r.Status = 430 },
		`{"status": 204}`:          func(r *config.Response) { r.Status, r.Body = 204, "" },
		`{"body": "no"}`:           func(r *config.Response) { r.Body, r.GRPCMessage = "no", "no" },
		`{"body": ""}`:             func(r *config.Response) { r.Body, r.GRPCMessage = "", "" },
		`{"headers": {"x-c": ""}}`: func(r *config.Response) { r.Headers = []config.Header{{Name: "x-c"}} },
		`{"headers": {}}`:          func(r *config.Response) { r.Headers = nil },
		`{"grpc_status": 8}`:       func(r *config.Response) { r.GRPCStatus = 8 },
		`{"preset": "gemini"}`:     func(r *config.Response) { r.Preset = fields.Gemini },
		`{"content_type": "text/html"}`: func(r *config.Response) {
			r.ContentType, r.GRPCMessage = "text/html", "Rate limit exceeded"
		},
	} {
		want, got := answers(t, general, own)
		wanted := *want
		changes(&wanted)
		must.Same(t, *got, wanted, "%s", own)
	}
}

// Derived fields also follow from inherited fields.
func TestDerivedResponse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ general, own, want string }{
		{`{}`, `{"status": 503}`, `503 application/problem+json {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Rate limit exceeded","status":503} Rate limit exceeded`},
		{`{"status": 503}`, `{"headers": {}}`, `503 application/problem+json {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Rate limit exceeded","status":503} Rate limit exceeded`},
		{`{"status": 204}`, `{"status": 503}`, `503 application/problem+json {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Rate limit exceeded","status":503} Rate limit exceeded`},
		{`{}`, `{"body": "no"}`, `429 text/plain no no`},
		{`{"body": "later"}`, `{"body": "no"}`, `429 text/plain no no`},
		{`{"body": "later"}`, `{"status": 503}`, `503 text/plain later later`},
		{`{"content_type": "text/html"}`, `{"body": "no"}`, `429 text/html no Rate limit exceeded`},
		{`{"body": "{}"}`, `{"content_type": "application/json"}`, `429 application/json {} Rate limit exceeded`},
	} {
		_, got := answers(t, test.general, test.own)
		must.Equal(t, fmt.Sprint(got.Status, " ", got.ContentType, " ", got.Body, " ", got.GRPCMessage), test.want, "%s, %s", test.general, test.own)
	}
}

// A rule's own body replaces a general preset.
func TestBodyInPlaceOfPreset(t *testing.T) {
	t.Parallel()
	for own, want := range map[string]fields.Provider{
		`{}`: fields.AnyProvider, `{"headers": {"x-a": "b"}}`: fields.AnyProvider, `{"preset": "bedrock"}`: fields.Bedrock,
		`{"body": "no"}`: fields.NoProvider, `{"status": 503}`: fields.NoProvider,
	} {
		_, got := answers(t, `{"preset": "auto"}`, own)
		must.Equal(t, got.Preset, want, "%s: preset", own)
	}
}
