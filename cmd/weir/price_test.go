package main

import (
	"log/slog"
	"net/http/httptest"
	"testing"

	"weir/internal/server"
	"weir/internal/store/memory"
)

// A price is stored as people type it, and shown in the same form. Other overrides stay.
func TestPrice(t *testing.T) {
	s := httptest.NewServer(server.Handler(memory.New(memory.Options{}), server.Options{Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(s.Close)
	executeAll(t, map[string]string{"WEIR_BACKEND": s.URL}, []lineTest{
		{"price list shop", 0, "no prices are set\n", ""},
		{"override set shop all 5/1m --force", 0, "all 5/1m\n", ""},
		{"price set shop models gpt-5 input=1.25 output=10", 0, "1 set\nno node has reported", ""},
		{"price set shop models claude* input=3 cached=0.3 output=15", 0, "1 set\n", ""},
		{"price set shop images dall-e input=0.000001", 0, "1 set\n", ""},
		{"price list shop", 0, "images dall-e input=0.000001\nmodels claude* input=3 cached=0.3 output=15\nmodels gpt-5 input=1.25 output=10\nno node", ""},
		{"price list shop images --json", 0, `"prices":[{"list":"images","model":"dall-e","millionths":{"input":1}}]}`, ""},
		{`price load shop models - <<< {"*": {"input": 7}}`, 0, "1 set\n", ""},
		{"price list shop", 0, "images dall-e input=0.000001\nmodels * input=7\nno node", ""},
		{"override list shop", 0, "all 5/1m\nno node", ""},
		{"price unset shop models gpt-5", 1, "", "no such prices were set"},
		{"price unset shop models", 0, "1 removed\n", ""},
		{"override unset shop all --all", 0, "1 removed\n", ""},
		{"price list shop", 0, "images dall-e input=0.000001\nno node", ""},

		{"price", 2, "", "want set, load, list or unset, and a namespace"},
		{"price change shop", 2, "", `want set, load, list or unset, got "change"`},
		{"price set shop models gpt-5", 2, "", "want NAMESPACE LIST MODEL KIND=PRICE"},
		{"price set shop models gpt-5 input", 2, "", `want a KIND=PRICE such as input=1.25, got "input"`},
		{"price set shop models gpt-5 output=1", 2, "", "gpt-5.input: missing"},
		{"price set shop models gpt-5 input=-1", 2, "", "gpt-5.input: want a number from 0"},
		{"price set shop models gpt-5 input=0.0000001", 2, "", "in whole millionths, got 0.0000001"},
		{"price set shop a.b gpt-5 input=1", 1, "", "list: want 1 to 64 of A-Za-z0-9_-"},
		{`price load shop models - <<< {"a": 5}`, 2, "", "a: want an object"},
		{"price load shop models nowhere.json", 1, "", "nowhere.json"},
		{"price unset shop models a --json", 2, "", "want --json with list"},
	})
}
