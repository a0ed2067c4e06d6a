package config

import (
	"strconv"
	"strings"

	"weir/window"
)

const (
	maxRules  = 256
	maxLimits = 8
	maxKey    = 16
)

func readRules(v value) (rules []Rule) {
	v.array("rules", 1, maxRules, func(v value) {
		rule := readRule(v, func(name value) {
			for i := range rules {
				if rules[i].Name == name.json.text {
					name.fail("want a unique name, got " + name.show() + " as in rules[" + strconv.Itoa(i) + "]")
					return
				}
			}
		})
		rules = append(rules, rule)
	})
	return rules
}

// readRule calls checkName with a name that is right in itself.
func readRule(v value, checkName func(name value)) (rule Rule) {
	rule.Cost = 1
	v.object(`{"name": "all", "limits": [{"limit": 100, "window": "1m"}]}`,
		field{"name", required, func(v value) {
			allowed := func(c byte) bool { return isAlphanumeric(c) || strings.IndexByte("_-", c) >= 0 }
			rule.Name = v.text("a string of 1 to 64 of A-Za-z0-9_-", made(1, 64, allowed))
			if rule.Name != "" {
				checkName(v)
			}
		}},
		field{"match", optional, func(v value) { rule.Match = readMatch(v) }},
		field{"except", optional, notYet(func(v value) {
			v.array("exceptions", 0, maxExceptions, readException)
		})},
		field{"key", optional, func(v value) {
			v.array("selectors", 0, maxKey, func(v value) { rule.Key = append(rule.Key, readSelector(v, wantSelector)) })
		}},
		field{"limits", required, func(v value) {
			v.array("limits", 1, maxLimits, func(v value) { rule.Limits = append(rule.Limits, readLimit(v)) })
			window.SetOrdinals(rule.Limits)
		}},
		field{"cost", optional, func(v value) { rule.Cost, rule.CostFrom = readCost(v) }},
		field{"cost_on_response", optional, func(v value) {
			s := readResponseSelector(v)
			rule.CostOnResponse = &s
		}},
		field{"mode", optional, func(v value) {
			if i := v.choice("enforce", "shadow"); i > 0 {
				v.notYet()
			}
		}},
		field{"count_rejected", optional, func(v value) {
			rule.CountRejected = v.boolean()
		}},
	)
	return rule
}

func readCost(v value) (hits uint64, from *Selector) {
	if v.json.kind != kindNumber {
		s := readSelector(v, "an integer from 0, "+wantSelector)
		return 1, &s
	}
	n := v.integer(0, maxHits)
	return uint64(n), nil
}
