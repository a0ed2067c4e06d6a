package config

import (
	"math"
	"strconv"

	"weir/internal/fields"
	"weir/internal/jsonpath"
	"weir/internal/usage"
)

const (
	maxUsageFields   = 8
	maxWeight        = 1_000_000
	wantPath         = `the path of a number such as `
	wantResponsePath = wantPath + `"usage.total_tokens"`
	wantRequestPath  = wantPath + `"max_tokens"`
	wantTextPath     = `the path of a string such as "model"`
	likeBodyCost     = `{"request_json": "max_tokens", "default": 500}`
	likeUsage        = `{"response_json": "usage.total_tokens"}`
)

// boundFields are those that the selector of a cost has besides its own.
var boundFields = []field{{"least", optional}, {"most", optional}}

// readCost reads a number, or a selector of a cost with its bounds. A client may write what it
// selects: unless the configuration says so, no request is free.
func readCost(v *value, rule *Rule) {
	if v.kind == kindNumber {
		rule.Cost = uint64(v.integer(0, maxHits))
		return
	}
	rule.CostLeast, rule.CostMost = 1, math.MaxUint64
	var least *value
	s := readSelector(v, "an integer from 0, "+wantSelector, boundFields, func(name string, v *value) {
		if name == "most" {
			rule.CostMost = uint64(v.integer(1, maxHits))
			return
		}
		least = v
		rule.CostLeast = uint64(v.integer(0, maxHits))
	})
	rule.CostFrom = &s
	notAbove(least, rule.CostLeast, rule.CostMost)
}

// readReserve reads what takes the place of the cost until the response is known.
func readReserve(v, cost *value, rule *Rule) {
	switch {
	case cost.given():
		v.fail("want either cost or reserve, got both")
	case rule.CostOnResponse == nil && rule.Usage == nil:
		v.fail("want cost_on_response beside it, which says what is really taken")
	case v.has("request_json"):
		rule.Reserve = true
		readBodyCost(v, rule)
	default:
		rule.Reserve = true
		readCost(v, rule)
	}
}

var (
	bodyCostFields = append([]field{{"request_json", required}, {"default", required}, {"unread", optional}}, boundFields...)
	// unreads are in the order of Unread.
	unreads = []string{"default", "most", "refuse"}
)

// readBodyCost reads where a request's JSON has its cost.
func readBodyCost(v *value, rule *Rule) {
	rule.Cost, rule.CostFromBody = 0, &BodyCost{}
	rule.CostLeast, rule.CostMost = 1, math.MaxUint64
	var least, otherwise, unread *value
	v.object(likeBodyCost, bodyCostFields, func(name string, v *value) {
		switch name {
		case "request_json":
			if paths := readPath(v, wantRequestPath); paths != nil {
				rule.CostFromBody.Path = paths[0]
			}
		case "default":
			otherwise = v
			rule.CostFromBody.Default = uint64(v.integer(0, maxHits))
		case "unread":
			unread = v
			rule.CostFromBody.Unread, rule.CostFromBody.Chosen = Unread(max(v.choice(unreads), 0)), true
		case "least":
			least = v
			rule.CostLeast = uint64(v.integer(0, maxHits))
		case "most":
			rule.CostMost = uint64(v.integer(1, maxHits))
		}
	})
	if rule.CostFromBody.Unread == UnreadMost && rule.CostMost == math.MaxUint64 {
		unread.fail("want most beside it, which is taken then")
	}
	notAbove(otherwise, rule.CostFromBody.Default, rule.CostMost)
	notAbove(least, rule.CostLeast, rule.CostMost)
}

// notAbove refuses a number that is above most, unless that was refused itself.
func notAbove(v *value, n, most uint64) {
	if most != 0 && n > most {
		v.wrong("at most " + strconv.FormatUint(most, 10) + ", which is most")
	}
}

// readMostPerRequest reads how much a request may reserve, which is no less than what it reserves without a
// say.
func readMostPerRequest(v *value, rule *Rule) {
	rule.MostPerRequest = uint64(v.integer(1, maxHits))
	least := max(rule.Cost, rule.CostLeast)
	if rule.CostFromBody != nil {
		least = max(rule.CostFromBody.Default, rule.CostLeast)
	}
	switch {
	case !rule.Reserve:
		v.fail("want reserve beside it, which it bounds")
	case rule.MostPerRequest != 0 && rule.MostPerRequest < least:
		v.wrong("at least " + strconv.FormatUint(least, 10) + ", which a request reserves that does not say more")
	}
}

// onFailures are in the order of Rule.KeepOnFailure's values.
var onFailures = []string{"give_back", "keep"}

func readOnFailure(v *value, rule *Rule) {
	if rule.KeepOnFailure = v.choice(onFailures) == 1; !rule.Reserve {
		v.fail("want reserve beside it, which it is about")
	}
}

func readCut(v *value, rule *Rule) {
	rule.Cut = v.boolean()
	if rule.Cut && (rule.Usage == nil || rule.Usage.Ending == usage.NoEnding) {
		v.fail(`want cost_on_response "openai", "anthropic" or "gemini" beside it, whose streams have an event that ends them`)
	}
}

// readTokenHeaders has a rule tell of tokens as its provider does, if it counts any.
func readTokenHeaders(v *value, rule *Rule) {
	switch {
	case rule.Usage == nil:
		rule.Headers &^= fields.Tokens
		if v.given() {
			v.fail(`want "tokens" beside a cost_on_response that a body tells`)
		}
	case rule.Usage.Anthropic:
		rule.Headers ^= fields.Tokens | fields.AnthropicTokens
	}
}

var (
	usageFields = []field{{"response_json", required}, {"weight", optional}}
	sumVariants = [][]field{{{"response_json", optional}}, {{"sum", optional}}}
)

// readResponseCost reads what is counted when the response is there.
func readResponseCost(v *value, rule *Rule) {
	if v.kind == kindString {
		for i := range usage.Presets {
			if p := &usage.Presets[i]; p.Name == v.text {
				list, err := p.Fields()
				if err != nil {
					v.fail(err.Error())
				}
				rule.Usage = &Usage{Fields: list, Headers: p.Headers, Ending: p.Ending, Anthropic: p.Name == "anthropic"}
				return
			}
		}
	}
	if v.has("response_json") || v.has("sum") {
		rule.Usage = readUsage(v)
		return
	}
	s := readResponseSelector(v)
	rule.CostOnResponse = &s
}

// readUsage reads which numbers of a body are the cost.
func readUsage(v *value) *Usage {
	var list []usage.Field
	v.oneOf(likeUsage, sumVariants, nil, func(name string, v *value) {
		if name == "response_json" {
			list = append(list, usage.Field{Paths: readPath(v, wantResponsePath), Weight: 1})
			return
		}
		v.array("numbers", 1, maxUsageFields, func(v *value) {
			field := usage.Field{Weight: 1}
			v.object(`{"response_json": "usage.completion_tokens", "weight": 4}`, usageFields, func(name string, v *value) {
				if name == "weight" {
					field.Weight = uint64(v.integer(1, maxWeight))
				} else {
					field.Paths = readPath(v, wantResponsePath)
				}
			})
			list = append(list, field)
		})
	})
	if len(v.report.found) > 0 {
		return &Usage{}
	}
	return &Usage{Fields: usage.NewFields(list)}
}

func readPath(v *value, want string) []*jsonpath.Path {
	if v.kind != kindString || v.text == "" {
		v.wrong(want)
		return nil
	}
	path, err := jsonpath.Compile(v.text)
	if err != nil {
		v.fail("want " + want + ", got one with " + err.Error())
		return nil
	}
	return []*jsonpath.Path{path}
}
