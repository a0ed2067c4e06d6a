package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
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
func (c *priceCommand) readPrices(file string) (modelPrices, error) {
	document, err := readFile(file, c.env)
	if err != nil {
		return nil, err
	}
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
	for name := range r.into {
		if strings.HasPrefix(name, "time=") {
			r.told = append(r.told, "times of day are those of UTC: so has the list's zone to be, as it is by default")
			break
		}
	}
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

// aboutCost fits the names of fields that say what a model costs.
var aboutCost = regexp.MustCompile(`cost|pric|multiplier|^provider_specific_entry$`)

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
			if aboutCost.MatchString(field) {
				costs[field] = value
			}
		}
		ranges, others := rangesOf(costs), r.variants(costs)
		for _, variants := range []map[string]map[string]json.RawMessage{ranges, others, offPeak(costs, ranges, others)} {
			for mark, own := range variants {
				r.add(provider, name, mark, litellmKinds, own, r.scale)
			}
		}
		r.add(provider, name, "", litellmKinds, costs, r.scale)
	}
	return nil
}

// variant is what LiteLLM has behind a price of long prompts, or of a service_tier.
var variant = regexp.MustCompile(`^(?:_above_([0-9]{1,9})k_tokens)?(?:_([a-z]+))?$`)

// rangesOf takes the prices out of a model's that are for prompts of some length, as variants does. Those of the shortest
// are its usual ones.
func rangesOf(costs map[string]json.RawMessage) map[string]map[string]json.RawMessage {
	var ranges []map[string]json.RawMessage
	_ = json.Unmarshal(costs["tiered_pricing"], &ranges)
	all, usual := map[string]map[string]json.RawMessage{}, map[string]json.RawMessage(nil)
	for _, own := range ranges {
		var of [2]float64
		if json.Unmarshal(own["range"], &of) != nil || of[1] <= of[0] || of[0] < 0 || of[0] > 1e9 || of[0] != float64(int64(of[0])) || own[litellmKinds[0]] == nil {
			return nil // it is told that they are not carried over
		}
		if delete(own, "range"); of[0] == 0 {
			usual = own
			continue
		}
		all["above="+strconv.FormatInt(int64(of[0]), 10)+"/"] = own
	}
	for field, value := range usual {
		if costs[field] == nil {
			costs[field] = value
		}
	}
	for _, own := range all {
		complete(own, costs, litellmKinds)
	}
	if len(ranges) > 0 {
		delete(costs, "tiered_pricing")
	}
	return all
}

// complete has prices that are not given be the usual ones.
func complete(own, usual map[string]json.RawMessage, kinds []string) {
	for _, kind := range kinds {
		if value, there := usual[kind]; there && own[kind] == nil {
			own[kind] = value
		}
	}
}

// offPeak takes the prices out of a model's that are for times of the week by the clock of UTC, as variants does. They are also
// those of long prompts then, which others have in the rest of the week.
func offPeak(costs map[string]json.RawMessage, others ...map[string]map[string]json.RawMessage) map[string]map[string]json.RawMessage {
	type window struct {
		Hours json.RawMessage `json:"hours_utc"`
		Days  []int           `json:"weekdays"`
	}
	var of struct {
		window
		Zone    string   `json:"weekday_timezone"`
		Windows []window `json:"windows"`
	}
	var own map[string]json.RawMessage
	document := costs["off_peak_pricing"]
	if document == nil || json.Unmarshal(document, &of) != nil || json.Unmarshal(document, &own) != nil || of.Zone != "" && of.Zone != "UTC" {
		return nil // it is told that they are not carried over
	}
	for _, field := range []string{"hours_utc", "windows", "weekdays", "weekday_timezone"} {
		delete(own, field)
	}
	complete(own, costs, litellmKinds)
	prompts := []string{""}
	for _, variants := range others {
		for mark := range variants {
			if strings.HasPrefix(mark, "above=") && strings.Count(mark, "/") == 1 {
				prompts = append(prompts, mark)
			}
		}
	}
	all := map[string]map[string]json.RawMessage{}
	if of.Windows == nil || of.Hours != nil {
		of.Windows = append(of.Windows, of.window)
	}
	for _, w := range of.Windows {
		var hours []string
		if json.Unmarshal(w.Hours, &hours) != nil {
			hours = []string{""}
			_ = json.Unmarshal(w.Hours, &hours[0])
		}
		if len(hours) == 0 {
			return nil
		}
		days := []string{""}
		if len(w.Days) > 0 {
			days = runs(w.Days)
		}
		for _, hour := range hours {
			for _, run := range days {
				mark := "time=" + run + hour + "/"
				if !tokens.IsName(mark + "model") {
					return nil
				}
				for _, long := range prompts {
					all[mark+long] = maps.Clone(own)
				}
			}
		}
	}
	if len(all) > 0 {
		delete(costs, "off_peak_pricing")
	}
	return all
}

// runs returns days of the week as runs of them, such as 1-5 and a comma.
func runs(days []int) (all []string) {
	slices.Sort(days)
	for from := 0; from < len(days); {
		to := from
		for to+1 < len(days) && days[to+1] <= days[to]+1 {
			to++
		}
		all = append(all, fmt.Sprintf("%d-%d,", days[from], days[to]))
		from = to + 1
	}
	return all
}

// reasons say why a list has no place for fields of prices. The first that fits counts.
var reasons = []struct {
	of  *regexp.Regexp
	why string
}{
	{regexp.MustCompile(`_per_(?:audio_per_|video_per_|text_)?(?:second|image|pixel|character|query|page|credit|unit|request|message|session|gb|1k_calls)(?:_|$)`), "no price of a token"},
	{regexp.MustCompile(`_above_[0-9]+hr`), "caches that are kept for longer cost what others do"},
	{regexp.MustCompile(`(?:image|video|citation)_token|_cache_hit$|(?:audio|image)_token_cost|^citation|^explicit_cache|dbu_cost|_per_token_(?:image|text)`), "the list has no such kind of tokens"},
	{regexp.MustCompile(`multiplier|^provider_specific_entry$`), "the list knows neither regions nor speeds"},
	{regexp.MustCompile(`^tiered_pricing$`), "want ranges of whole numbers of tokens"},
	{regexp.MustCompile(`^off_peak_pricing$`), "want hours such as 22:00-06:00, and days, by the clock of UTC"},
}

// reasonOf says why a list has no place for a field.
func reasonOf(field string) string {
	for _, kind := range litellmKinds {
		if suffix, ok := strings.CutPrefix(field, kind); ok && variant.MatchString(suffix) {
			return "want --tiers"
		}
	}
	for _, r := range reasons {
		if r.of.MatchString(field) {
			return r.why
		}
	}
	return "not known"
}

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
				tier := part[2]
				if tier == "batches" {
					tier = "batch"
				}
				mark, of = "service_tier="+tier+"/", append(of, "_"+part[2])
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
		complete(own, costs, modelsDevKinds)
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
	var rounded []string
	left := map[string][]string{}
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
		left[reasonOf(field)] = append(left[reasonOf(field)], word(field))
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
	if len(rounded) > 0 {
		r.told = append(r.told, place+": rounded up: "+strings.Join(rounded, ", "))
	}
	for why, fields := range left {
		slices.Sort(fields)
		r.told = append(r.told, place+": not carried over: "+strings.Join(fields, ", ")+": "+why)
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
	either := maps.Clone(before)
	maps.Copy(either, after)
	for _, name := range slices.Sorted(maps.Keys(either)) {
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
