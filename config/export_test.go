package config

import "slices"

// FieldLists returns the fields that the parser knows, by their parent.
func FieldLists() map[string][]string {
	lists := map[string][]string{}
	add := func(of string, fields ...field) {
		for _, f := range fields {
			lists[of] = append(lists[of], f.name)
		}
	}
	add("configuration", configFields...)
	add("backend", backendFields...)
	add("response", responseFields...)
	add("rule", ruleFields...)
	add("bounds", boundFields...)
	add("charge when", chargeWhenFields...)
	add("block", blockFields...)
	add("delay", delayFields...)
	add("body cost", bodyCostFields...)
	add("prices", priceFields...)
	add("rates", rateFields...)
	add("limit", limitFields...)
	add("limit from", slices.Concat(limitSelectors[0], limitSelectors[1], maxField)...)
	add("overrides", overridesFields...)
	add("classes", classesFields...)
	add("class", classFields...)
	add("key override", keyOverrideFields...)
	add("match", matchFields...)
	add("client_ip", prefixFields...)
	for _, variant := range variantsOfMatch {
		add("string match", variant...)
		add("claim match", variant...)
	}
	add("claim match", claimSource...)
	add("grouped selector", groupField...)
	add("grouped body selector", append(groupField, variantsOfSelector[len(variantsOfSelector)-1]...)...)
	for i, variant := range variantsOfSelector {
		switch {
		case i < responseSelectors:
			add("response selector", variant...)
		case i < len(variantsOfSelector)-bodySelectors:
			add("selector", variant...)
		default:
			add("body selector", variant...)
		}
	}
	return lists
}
