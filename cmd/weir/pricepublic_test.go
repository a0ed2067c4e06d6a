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
	tokens "weir/internal/usage"
)

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
	if t.Logf("%d models: %d left out, %d prices compared", len(models)-1, len(left), compared); compared < len(models) {
		t.Error("hardly any price was compared")
	}
}
