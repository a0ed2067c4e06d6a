package config

var blockFields = []field{{"for", required}, {"extend", optional}}

// readBlock reads how long a key stays refused after a refusal.
func readBlock(v *value, rule *Rule) {
	if v.kind != kindObject {
		rule.Block = v.duration(Second, maxWindow)
		return
	}
	v.object(`{"for": "10m", "extend": true}`, blockFields, func(name string, v *value) {
		if name == "for" {
			rule.Block = v.duration(Second, maxWindow)
		} else {
			rule.Extend = v.boolean()
		}
	})
}
