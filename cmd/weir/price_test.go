package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/server"
	"weir/internal/store/memory"
	tokens "weir/internal/usage"
)

// A price is stored as people type it, and shown in the same form. Other overrides stay.
func TestPrice(t *testing.T) {
	executeAll(t, map[string]string{"WEIR_BACKEND": serveHere(t, memory.New(memory.Options{}), server.Options{})}, []lineTest{
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

		{"price", 2, "", "want set, load, diff, list or unset, and a namespace"},
		{"price change shop", 2, "", `want set, load, diff, list or unset, got "change"`},
		{"price set shop models gpt-5", 2, "", "want NAMESPACE LIST MODEL KIND=PRICE"},
		{"price set shop models gpt-5 input", 2, "", `want a KIND=PRICE such as input=1.25, got "input"`},
		{"price set shop models gpt-5 output=1", 2, "", "gpt-5.input: missing"},
		{"price set shop models gpt-5 input=-1", 2, "", "gpt-5.input: want a number from 0"},
		{"price set shop models gpt-5 input=0.0000001", 2, "", "in whole millionths, got 0.0000001"},
		{"price set shop a.b gpt-5 input=1", 1, "", "list: want 1 to 64 of A-Za-z0-9_-"},
		{`price load shop models - <<< {"a": 5}`, 2, "", "a: want an object"},
		{`price load shop models - <<< {"above=2e5/a": {"input": 1}}`, 2, "", "want a model behind time=HH:MM-HH:MM/, above=TOKENS/ or service_tier=TIER/"},
		{`price load shop models - <<< {"time=1:00-02:00/a": {"input": 1}}`, 2, "", "want a model behind time="},
		{`price load shop models - <<< {"time=0-5,01:00-02:00/a": {"input": 1}}`, 2, "", "want a model behind time="},
		{`price load shop models - <<< {"above=5/time=01:00-02:00/a": {"input": 1}}`, 2, "", "want a model behind time="},
		{`price load shop models - <<< {"above=5/service_tier=/a": {"input": 1}}`, 2, "", "want a model behind time=HH:MM-HH:MM/, above=TOKENS/ or service_tier=TIER/"},
		{"price load shop models nowhere.json", 1, "", "nowhere.json"},
		{"price unset shop models a --json", 2, "", "want --json with list"},
	})
}

// The price lists of others are read as their own numbers say. What Weir's list has no place for is told.
func TestPriceFiles(t *testing.T) {
	const litellm, modelsDev = "--from litellm testdata/prices/litellm.json", "--from models.dev testdata/prices/modelsdev.json"
	executeAll(t, map[string]string{"WEIR_BACKEND": serveHere(t, memory.New(memory.Options{}), server.Options{})}, []lineTest{
		{"price diff shop models " + litellm + " --provider openai", 0, "+ gpt-5 input=1.25 cached=0.125 output=10\n+ gpt-5-mini input=0.25 cached=0.025 output=2\n", "2 of 3 models have prices\n"},
		{"price load shop models " + litellm + " --provider openai", 0, "2 set\n", "input_cost_per_token_priority, output_cost_per_token_batches, output_cost_per_token_flex, output_cost_per_token_priority: want --tiers\ngpt-5: not carried over: search_context_cost_per_query: no price of a token\n"},
		{"price diff shop models " + litellm + " --provider openai", 0, "no difference\n", "left out: it has no price for a token that goes in"},
		{"price set shop models gpt-5 input=2 audio=1", 0, "1 set\n", ""},
		{"price set shop models gpt-4 input=7", 0, "1 set\n", ""},
		{"price diff shop models " + litellm + " --provider openai", 0, "- gpt-4\n~ gpt-5 input=2→1.25 cached=0.125 output=10 audio=1→none\n", ""},
		{"price diff shop models " + litellm + " --provider openai --tiers", 0, "- gpt-4\n~ gpt-5 input=2→1.25 cached=0.125 output=10 audio=1→none\n" +
			"+ service_tier=batch/gpt-5 input=0.625 cached=0.0625 output=5\n+ service_tier=batch/gpt-5-mini input=0.125 cached=0.0125 output=1\n" +
			"+ service_tier=flex/gpt-5 input=0.625 cached=0.0625 output=5\n+ service_tier=flex/gpt-5-mini input=0.125 cached=0.0125 output=1\n" +
			"+ service_tier=priority/gpt-5 input=2.5 cached=0.25 output=20\n+ service_tier=priority/gpt-5-mini input=0.45 cached=0.045 output=3.6\n", "2 of 3 models have prices\n"},
		{"price load shop long " + litellm + " --provider gemini --tiers --prefixes", 0, "12 set\n", "2 of 2 models have prices\n"},
		{"price list shop long", 0, "long above=200000/gemini-2.5-pro* input=2.5 cached=0.25 output=15\nlong above=200000/service_tier=batch/gemini-2.5-pro* input=1.25 cached=0.25 output=7.5\nlong above=200000/service_tier=flex/gemini-2.5-pro* input=1.25 cached=0.25 output=7.5\n" +
			"long above=200000/service_tier=priority/gemini-2.5-pro* input=4.5 cached=0.45 output=27\nlong gemini-2.5-flash* input=0.3", ""},
		{"price unset shop long", 0, "12 removed\n", ""},
		{"price load shop models " + litellm, 0, "18 set\n", "exa_ai/search: not carried over: tiered_pricing: want ranges of whole numbers of tokens\n"},
		{"price load shop models " + litellm + " --provider tencent", 0, "1 set\n", "off_peak_pricing: want hours such as 22:00-06:00, and days, by the clock of UTC\n"},
		{"price load shop models " + litellm + " --provider deepseek", 0, "5 set\n", "times of day are those of UTC"},
		{"price list shop models", 0, "models deepseek-flash input=0.3 cached=0.006 cache_write=0 output=1.2\nmodels time=1-5,00:00-01:00/deepseek-flash input=0.15 cached=0.003 cache_write=0 output=0.6\n" +
			"models time=1-5,04:00-06:00/deepseek-flash input=0.15 cached=0.003 cache_write=0 output=0.6\nmodels time=1-5,10:00-00:00/deepseek-flash input=0.15 cached=0.003 cache_write=0 output=0.6\n" +
			"models time=6-7,00:00-00:00/deepseek-flash input=0.15", ""},
		{"price load shop models " + litellm + " --provider dashscope", 0, "3 set\n", "1 of 1 models have prices\n"},
		{"price list shop models", 0, "models above=128000/qwen3-max input=3 output=15\nmodels above=32000/qwen3-max input=2.4 output=12\nmodels qwen3-max input=1.2 output=6\n", ""},
		{"price load shop models " + litellm, 0, "18 set\n", "10 of 12 models have prices\n"},
		{"price list shop models", 0, "models above=128000/dashscope/qwen3-max input=3 output=15\nmodels above=200000/gemini/gemini-2.5-pro input=2.5 cached=0.25 output=15\nmodels above=272000/opencode_go/gpt-6-luna input=0.200001 cached=0.02 cache_write=0.25 output=0.75\nmodels above=32000/dashscope/qwen3-max input=2.4 output=12\nmodels claude-sonnet-4-5 input=3 cached=0.3 cache_write=3.75 output=15\nmodels dashscope/qwen3-max input=1.2 output=6\nmodels deepseek/deepseek-flash input=0.3 cached=0.006 cache_write=0 output=1.2\nmodels gemini/gemini-2.5-flash input=0.3 cached=0.03 output=2.5 reasoning=2.5 audio=1\n", ""},
		{"price load shop models " + litellm + " --provider gemini --prefixes", 0, "3 set\n", "gemini/gemini-2.5-pro: not carried over: "},
		{"price list shop models", 0, "models above=200000/gemini-2.5-pro* input=2.5 cached=0.25 output=15\nmodels gemini-2.5-flash* input=0.3 cached=0.03 output=2.5 reasoning=2.5 audio=1\nmodels gemini-2.5-pro* input=1.25 cached=0.125 output=10\n", ""},
		{"price load shop models " + litellm + " --provider groq --unit nano-dollars", 0, "1 set\n", ""},
		{"price list shop models", 0, "models meta-llama/llama-prompt-guard-2-22m input=30 output=30\n", ""},
		{"price load shop models " + modelsDev + " --provider xai", 0, "2 set\n", "xai/grok-free: left out"},
		{"price list shop models", 0, "models above=200000/grok-4.5 input=4 cached=1 output=12\nmodels grok-4.5 input=2 cached=0.5 output=6\n", ""},
		{"price load shop models " + modelsDev, 0, "3 set\n", "2 of 3 models have prices\n"},
		{"price list shop models", 0, "models above=200000/xai/grok-4.5 input=4 cached=1 output=12\nmodels perplexity-agent/anthropic/claude-sonnet-4-5 input=3 cached=0.3 output=15\n", ""},
		{`price load shop models --from litellm - <<< {"a":{"input_cost_per_token":1.0000000000001e-6},"b":{"input_cost_per_token":1e999999999},"c":{"input_cost_per_token":0}}`, 0, "2 set\n",
			"a: rounded up: input_cost_per_token\nb: left out: input_cost_per_token is no price\nc: costs nothing\n2 of 3"},
		{`price load shop models --from litellm - <<< {"a":{"input_cost_per_token":1e-6,"output_cost_per_token":"1e-5"},"b":{"input_cost_per_token":1e-6,"output_cost_per_token":-1},"c":{"input_cost_per_token":1e-6,"output_cost_per_token":5000},"":{"input_cost_per_token":1e-6},"\u001b]0;x":{"input_cost_per_token":1e-6,"cost\u0007":1}}`, 0, "1 set\n",
			"\"\": left out: its name is empty, or longer than 256 bytes\n\"\\x1b]0;x\": not carried over: \"cost\\a\": not known\na: left out: output_cost_per_token is no price\nb: left out: output_cost_per_token is no price\nc: left out: output_cost_per_token is above the largest price\n1 of 5"},
		{`price load shop models --from litellm --provider p - <<< {"p/a":{"input_cost_per_token":1e-6,"litellm_provider":"p"},"a":{"input_cost_per_token":2e-6,"output_cost_per_token":1e-6,"litellm_provider":"p"}}`, 0, "1 set\n",
			"a: given twice: the higher price of each kind counts\n"},
		{"price list shop models", 0, "models a input=2 output=1\n", ""},
		{`price load shop models --from litellm - <<< {"a":{"input_cost_per_token":1.0000000000001e-6},"c":{"input_cost_per_token":0}}`, 0, "2 set\n", ""},
		{"price list shop models", 0, "models a input=1.000001\nmodels c input=0\n", ""},
		{`price load shop models --from litellm - <<< {"a":{"tiered_pricing":[{"range":[0,1000.5],"input_cost_per_token":1e-6},{"range":[1000.5,2e6],"input_cost_per_token":2e-6}]},"b":{"input_cost_per_token":1e-6,"off_peak_pricing":{"input_cost_per_token":0,"windows":[{"hours_utc":"00:00-01:00"},{"weekdays":[6]}]}}}`, 0, "1 set\n",
			"a: left out: it has no price for a token that goes in\na: not carried over: tiered_pricing: want ranges of whole numbers of tokens\nb: not carried over: off_peak_pricing: want hours such as 22:00-06:00, and days, by the clock of UTC\n1 of 2"},
		{"price list shop models", 0, "models b input=1\n", ""},
		{`price load shop models --from litellm - <<< {"b":{"input_cost_per_token":1e-6,"provider_specific_entry":{"us":1.1,"fast":2}}}`, 0, "1 set\n",
			"b: not carried over: provider_specific_entry: the list knows neither regions nor speeds\n"},
		{`price load shop models --from litellm - <<< {"a":{"input_cost_per_token":2e-6,"input_cost_per_token_above_200k_tokens":4e-6,"off_peak_pricing":{"input_cost_per_token":1e-6,"hours_utc":"22:00-06:00"}}}`, 0, "4 set\n", ""},
		{"price list shop models", 0, "models a input=2\nmodels above=200000/a input=4\nmodels time=22:00-06:00/a input=1\nmodels time=22:00-06:00/above=200000/a input=1\n", ""},

		{"price load shop models --from openrouter -", 2, "", `want --from litellm or models.dev, got "openrouter"`},
		{"price load shop models --provider openai -", 2, "", "want --from with --provider"},
		{"price load shop models --from models.dev --tiers -", 2, "", "want --from with --provider"},
		{"price load shop models --from litellm --unit cents -", 2, "", "want --unit micro-dollars or nano-dollars"},
		{"price load shop models --from litellm - <<< []", 2, "", "want a file of litellm: json: cannot unmarshal array"},
		{"price load shop models --from litellm - <<< {}", 2, "", "the file has no price for a token of these models"},
		{"price diff shop models - <<< {}", 2, "", "want 1 to 1024 models"},
	})
}

var publicPrices = flag.String("prices", nightly.Or("../../dist/clients/lib/python3*/site-packages/litellm/model_prices_and_context_window_backup.json", ""),
	"LiteLLM's `file` of prices, whose models are all read; none are if empty")

// Every model of LiteLLM's public file has its own prices, or it is said why not.
func TestPublicPrices(t *testing.T) {
	if *publicPrices == "" {
		return
	}
	files := must.Get(filepath.Glob(*publicPrices))(t)
	must.EqualOrEnd(t, len(files), 1, "files fit %s\nWEIR_NIGHTLY=1 scripts/test-dependencies installs it", *publicPrices)
	document := must.Get(os.ReadFile(files[0]))(t)
	var models map[string]map[string]json.RawMessage
	must.OK(t, json.Unmarshal(document, &models))
	var told bytes.Buffer
	c := priceCommand{from: "litellm", tiers: true, unit: "nano-dollars", env: environment{stderr: &told}}
	prices := must.Get(c.readPrices(files[0]))(t)
	left := map[string]bool{}
	for line := range strings.Lines(told.String()) {
		if name, _, ok := strings.Cut(line, ": left out: "); ok {
			left[name] = true
		}
		if strings.HasSuffix(line, ": not known\n") {
			t.Error(line)
		}
	}
	compared := 0
	for name, fields := range models {
		if name == "sample_spec" || left[word(name)] {
			continue
		}
		own := prices[name]
		if own == nil {
			t.Errorf("%s has no prices, and nothing says why", name)
		}
		for i, field := range litellmKinds {
			for suffix, mark := range map[string]string{
				"": "", "_flex": "service_tier=flex/", "_batches": "service_tier=batch/", "_above_200k_tokens": "above=200000/", "_above_272k_tokens_priority": "above=272000/service_tier=priority/",
			} {
				value := fields[field+suffix]
				if value == nil || string(value) == "null" {
					continue
				}
				want, _ := new(big.Rat).SetString(string(value))
				want.Mul(want, big.NewRat(1_000_000_000*tokens.Parts, 1))
				got := new(big.Rat).SetUint64(prices[mark+name][tokens.KindNames[i]])
				if off := new(big.Rat).Sub(got, want); off.Sign() < 0 || off.Cmp(big.NewRat(1, 1)) >= 0 {
					t.Errorf("%s: %s%s is %s, got %s", name, field, suffix, value, got.FloatString(3))
				}
				compared++
			}
		}
	}
	t.Logf("%d models: %d left out, %d prices compared", len(models)-1, len(left), compared)
	must.AtLeast(t, compared, len(models), "prices compared")
}
