package config

import (
	"strconv"

	"weir/window"
)

const (
	maxRules  = 256
	maxLimits = 8
	maxKey    = 16
)

func readRules(v *value) (rules []Rule) {
	v.array("rules", 1, maxRules, func(v *value) {
		rules = append(rules, Rule{Cost: 1})
		readRule(v, rules)
	})
	return rules
}

var (
	ruleFields = []field{
		{"name", required}, {"match", optional}, {"except", notYet}, {"key", optional}, {"limits", required}, {"cost", optional},
		{"cost_on_response", optional}, {"mode", optional}, {"count_rejected", optional},
	}
	modes = []string{"enforce", "shadow"}
)

// readRule reads the last of the rules.
func readRule(v *value, rules []Rule) {
	last := len(rules) - 1
	rule := &rules[last]
	v.object(`{"name": "all", "limits": [{"limit": 100, "window": "1m"}]}`, ruleFields, func(name string, v *value) {
		switch name {
		case "name":
			text := v.bytes("a string of 1 to 64 of A-Za-z0-9_-", 64, isPlain)
			for i := range last {
				if text != "" && rules[i].Name == text {
					v.fail("want a unique name, got " + v.show() + " as in rules[" + strconv.Itoa(i) + "]")
					break
				}
			}
			rule.Name = text
		case "match":
			v.object(likeMatch, matchFields, rule.Match.read)
		case "except":
			v.array("exceptions", 0, maxExceptions, readException)
		case "key":
			v.array("selectors", 0, maxKey, func(v *value) { rule.Key = append(rule.Key, readSelector(v, wantSelector)) })
		case "limits":
			v.array("limits", 1, maxLimits, func(v *value) { rule.Limits = append(rule.Limits, readLimit(v)) })
			window.SetOrdinals(rule.Limits)
		case "cost":
			if v.kind == kindNumber {
				rule.Cost = uint64(v.integer(0, maxHits))
			} else {
				s := readSelector(v, "an integer from 0, "+wantSelector)
				rule.CostFrom = &s
			}
		case "cost_on_response":
			s := readResponseSelector(v)
			rule.CostOnResponse = &s
		case "mode":
			if v.choice(modes) > 0 {
				v.notYet()
			}
		case "count_rejected":
			rule.CountRejected = v.boolean()
		}
	})
}
