package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weir/config"
	tokens "weir/internal/usage"
)

// modelPrices are prices in millionths of a list's unit, by model and kind.
type modelPrices map[string]map[string]uint64

// priceFormats are the formats of others' price lists.
var priceFormats = map[string]func(r *priceReader, document []byte) error{"litellm": (*priceReader).litellm, "models.dev": (*priceReader).modelsDev}

// priceReader reads the price list of somebody else.
type priceReader struct {
	provider string // takes its models only; empty for all
	begins   bool   // a name stands for all models that begin so
	scale    *big.Rat
	into     modelPrices
	// models counts the models of the file that were asked for, and priced those with prices. told has what is not carried over, a
	// line for each model.
	models, priced int
	told           []string
	tiers          bool // also the prices of tiers
}

// microDollars is how many millionths of a micro-dollar a dollar has.
const microDollars = 1_000_000 * tokens.Parts

// readPrices reads a file of the command's format. What it has beyond what a list can say is told.
func (c *priceCommand) readPrices(document []byte) (modelPrices, error) {
	if c.from == "" {
		models, err := config.ParsePrices(document)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUsage, err)
		}
		return models, nil
	}
	r := priceReader{provider: c.provider, begins: c.begins, tiers: c.tiers, into: modelPrices{}, scale: big.NewRat(microDollars, 1)}
	if c.unit == "nano-dollars" {
		r.scale.SetInt64(1000 * microDollars)
	}
	if err := priceFormats[c.from](&r, document); err != nil {
		return nil, fmt.Errorf("%w: want a file of %s: %w", errUsage, c.from, err)
	}
	slices.Sort(r.told)
	for _, line := range r.told {
		fmt.Fprintln(c.env.stderr, line)
	}
	fmt.Fprintf(c.env.stderr, "%d of %d models have prices\n", r.priced, r.models)
	if len(r.into) == 0 {
		return nil, fmt.Errorf("%w: the file has no price for a token of these models", errUsage)
	}
	return r.into, nil
}

// litellmKinds are the names of prices in model_prices_and_context_window.json, in dollars for a token, in the order of
// tokens.KindNames.
var litellmKinds = []string{
	"input_cost_per_token", "cache_read_input_token_cost", "cache_creation_input_token_cost", "output_cost_per_token",
	"output_cost_per_reasoning_token", "input_cost_per_audio_token", "output_cost_per_audio_token",
}

// litellm reads LiteLLM's model_prices_and_context_window.json.
func (r *priceReader) litellm(document []byte) error {
	var models map[string]map[string]json.RawMessage
	if err := json.Unmarshal(document, &models); err != nil {
		return err
	}
	delete(models, "sample_spec") // says what the fields mean
	for name, fields := range models {
		var provider string
		_ = json.Unmarshal(fields["litellm_provider"], &provider)
		costs := map[string]json.RawMessage{}
		for field, value := range fields {
			if strings.Contains(field, "cost") || field == "tiered_pricing" {
				costs[field] = value
			}
		}
		for mark, own := range r.variants(costs) {
			r.add(provider, name, mark, litellmKinds, own, r.scale)
		}
		r.add(provider, name, "", litellmKinds, costs, r.scale)
	}
	return nil
}

// variant is what LiteLLM has behind a price of long prompts, or of a service_tier.
var variant = regexp.MustCompile(`^(?:_above_([0-9]{1,9})k_tokens)?(?:_(flex|priority))?$`)

// variants takes the prices out of a model's that are for long prompts and for tiers, by what a list has before its name.
// Those that are not given are the usual ones.
func (r *priceReader) variants(costs map[string]json.RawMessage) map[string]map[string]json.RawMessage {
	suffixes := map[string][]string{}
	var used []string
	for field := range costs {
		for _, kind := range litellmKinds {
			suffix, _ := strings.CutPrefix(field, kind)
			part := variant.FindStringSubmatch(suffix)
			if suffix == "" || part == nil || part[2] != "" && !r.tiers {
				continue
			}
			mark, of := "", []string{""}
			if part[2] != "" {
				mark, of = "service_tier="+part[2]+"/", append(of, "_"+part[2])
			}
			if part[1] != "" {
				mark, of = "above="+part[1]+"000/"+mark, append(of, "_above_"+part[1]+"k_tokens", suffix)
			}
			suffixes[mark], used = of, append(used, field)
		}
	}
	all := map[string]map[string]json.RawMessage{}
	for mark, of := range suffixes {
		all[mark] = map[string]json.RawMessage{}
		for _, kind := range litellmKinds {
			for _, suffix := range of {
				if value, there := costs[kind+suffix]; there {
					all[mark][kind] = value
				}
			}
		}
	}
	for _, field := range used {
		delete(costs, field)
	}
	return all
}

// modelsDevKinds are the names of prices in api.json, in dollars for a million tokens, in the order of tokens.KindNames.
var modelsDevKinds = []string{"input", "cache_read", "cache_write", "output", "reasoning", "input_audio", "output_audio"}

// modelsDev reads api.json of models.dev.
func (r *priceReader) modelsDev(document []byte) error {
	var providers map[string]struct {
		Models map[string]struct {
			Cost map[string]json.RawMessage `json:"cost"`
		} `json:"models"`
	}
	if err := json.Unmarshal(document, &providers); err != nil {
		return err
	}
	scale := new(big.Rat).Quo(r.scale, big.NewRat(1_000_000, 1))
	for provider, p := range providers {
		for name, m := range p.Models {
			for mark, own := range contexts(m.Cost) {
				r.add(provider, provider+"/"+name, mark, modelsDevKinds, own, scale)
			}
			r.add(provider, provider+"/"+name, "", modelsDevKinds, m.Cost, scale)
		}
	}
	return nil
}

// contexts takes the prices of long prompts out of a model's, as variants does.
func contexts(costs map[string]json.RawMessage) map[string]map[string]json.RawMessage {
	var tiers []map[string]json.RawMessage
	_ = json.Unmarshal(costs["tiers"], &tiers)
	all := map[string]map[string]json.RawMessage{}
	for _, own := range tiers {
		var of struct {
			Type string
			Size uint64
		}
		if json.Unmarshal(own["tier"], &of) != nil || of.Type != "context" || of.Size == 0 {
			return nil // it is told that they are not carried over
		}
		delete(own, "tier")
		for _, kind := range modelsDevKinds {
			if value, there := costs[kind]; there && own[kind] == nil {
				own[kind] = value
			}
		}
		all["above="+strconv.FormatUint(of.Size, 10)+"/"] = own
	}
	if len(all) > 0 {
		delete(costs, "tiers")
		delete(costs, "context_over_200k") // says the same
	}
	return all
}

// add takes the prices of a model, if it is one of those that were asked for. Upstreams of that provider do
// not have its name in front of the model's. mark is what a list has before the name of a variant.
func (r *priceReader) add(provider, name, mark string, kinds []string, costs map[string]json.RawMessage, scale *big.Rat) {
	place := name
	if r.provider != "" {
		if provider != r.provider {
			return
		}
		name = strings.TrimPrefix(name, provider+"/")
	}
	if mark != "" {
		name, place = mark+name, mark+place
	} else {
		r.models++
	}
	place = word(place)
	prices := map[string]uint64{}
	var rounded, left []string
	wrong := ""
	for i, field := range kinds {
		value, there := costs[field]
		if delete(costs, field); !there || string(value) == "null" {
			continue
		}
		exact, ok := exactly(string(value))
		if !ok || exact.Sign() < 0 {
			wrong = field + " is no price"
			continue
		}
		exact.Mul(exact, scale)
		whole, rest := new(big.Int).QuoRem(exact.Num(), exact.Denom(), new(big.Int))
		if rest.Sign() != 0 {
			whole.Add(whole, big.NewInt(1))
			rounded = append(rounded, field)
		}
		if !whole.IsUint64() || whole.Uint64() > tokens.MaxRate {
			wrong = field + " is above the largest price"
			continue
		}
		prices[tokens.KindNames[i]] = whole.Uint64()
	}
	for field := range costs {
		left = append(left, word(field))
	}
	if r.begins {
		name += "*"
	}
	// A model without one of its prices would cost too little.
	switch _, known := prices["input"]; {
	case wrong != "":
	case !known:
		wrong = "it has no price for a token that goes in"
	case name == "" || len(name) > tokens.MaxModel:
		wrong = fmt.Sprintf("its name is empty, or longer than %d bytes", tokens.MaxModel)
	case prices["input"] == 0 && prices["output"] == 0:
		r.told = append(r.told, place+": costs nothing")
	}
	if wrong != "" {
		r.told = append(r.told, place+": left out: "+wrong)
	}
	for _, t := range []struct {
		what   string
		fields []string
	}{{"rounded up", rounded}, {"not carried over", left}} {
		if slices.Sort(t.fields); len(t.fields) > 0 {
			r.told = append(r.told, place+": "+t.what+": "+strings.Join(t.fields, ", "))
		}
	}
	if wrong != "" {
		return
	}
	before, twice := r.into[name]
	for kind, price := range before { // of the same model with the provider's name in front
		prices[kind] = max(price, prices[kind])
	}
	if twice {
		r.told = append(r.told, word(name)+": given twice: the higher price of each kind counts")
	}
	if !twice && mark == "" {
		r.priced++
	}
	r.into[name] = prices
}

// exactly returns a price that is written as a JSON number. Absurd exponents would take much memory.
func exactly(text string) (price *big.Rat, ok bool) {
	const least, most = 1e-30, 1e12
	if about, err := strconv.ParseFloat(text, 64); err != nil || about != 0 && about < least || about > most {
		return nil, false
	} else if about == 0 {
		return new(big.Rat), true
	}
	return new(big.Rat).SetString(text)
}

// writeDifferences writes what prices have that others lack (+), what they lack (-), and what they have
// at another price.
func writeDifferences(w io.Writer, before, after modelPrices) (differences int) {
	names := map[string]bool{}
	for name := range before {
		names[name] = true
	}
	for name := range after {
		names[name] = true
	}
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	for _, name := range sorted {
		line := ""
		for _, kind := range tokens.KindNames {
			old, had := before[name][kind]
			price, has := after[name][kind]
			switch {
			case had && !has:
				line += " " + kind + "=" + decimal(old) + "→none"
			case !had && has:
				line += " " + kind + "=" + decimal(price)
			case old != price:
				line += " " + kind + "=" + decimal(old) + "→" + decimal(price)
			}
		}
		sign := "~ "
		if before[name] == nil {
			sign = "+ "
		} else if after[name] == nil {
			sign, line = "- ", ""
		}
		if line != "" || sign == "- " {
			differences++
			fmt.Fprintln(w, sign+word(name)+line)
		}
	}
	return differences
}
