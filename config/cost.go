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
	wantResponsePath = `the path of a number such as "usage.total_tokens"`
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
	if rule.CostMost != 0 && rule.CostLeast > rule.CostMost {
		least.wrong("at most " + strconv.FormatUint(rule.CostMost, 10) + ", which is most")
	}
}

// readReserve reads what takes the place of the cost until the response is known.
func readReserve(v, cost *value, rule *Rule) {
	switch {
	case cost.given():
		v.fail("want either cost or reserve, got both")
	case rule.CostOnResponse == nil && rule.Usage == nil:
		v.fail("want cost_on_response beside it, which says what is really taken")
	default:
		rule.Reserve = true
		readCost(v, rule)
	}
}

// onFailures are in the order of Rule.KeepOnFailure's values.
var onFailures = []string{"give_back", "keep"}

func readOnFailure(v *value, rule *Rule) {
	if rule.KeepOnFailure = v.choice(onFailures) == 1; !rule.Reserve {
		v.fail("want reserve beside it, which it is about")
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
				rule.Usage = &Usage{Fields: list, Headers: p.Headers, Anthropic: p.Name == "anthropic"}
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
			list = append(list, usage.Field{Paths: readPath(v), Weight: 1})
			return
		}
		v.array("numbers", 1, maxUsageFields, func(v *value) {
			field := usage.Field{Weight: 1}
			v.object(`{"response_json": "usage.completion_tokens", "weight": 4}`, usageFields, func(name string, v *value) {
				if name == "weight" {
					field.Weight = uint64(v.integer(1, maxWeight))
				} else {
					field.Paths = readPath(v)
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

func readPath(v *value) []*jsonpath.Path {
	if v.kind != kindString || v.text == "" {
		v.wrong(wantResponsePath)
		return nil
	}
	path, err := jsonpath.Compile(v.text)
	if err != nil {
		v.fail("want " + wantResponsePath + ", got one with " + err.Error())
		return nil
	}
	return []*jsonpath.Path{path}
}
