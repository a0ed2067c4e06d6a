package filter

import (
	"weir/internal/node"
	"weir/window"
)

var _ node.Owner = (*plugin)(nil)

// AppendKey implements node.Owner: the key is the one that [request.appendKey] has for a request with
// these values.
func (p *plugin) AppendKey(key []byte, rule int, values [][]byte) ([]byte, bool) {
	r := &p.streams.rules.list[rule]
	if len(values) != len(r.key) {
		return key, false
	}
	key = append(key, r.keyPrefix...)
	for i, value := range values {
		key = r.key[i].append(key, value, &p.streams.rules.request.scratch.network)
	}
	return key, true
}

// Tag implements node.Owner: it is what clients see of a rule with these limits.
func (p *plugin) Tag(rule int, limits []window.Limit) any {
	return p.streams.answer.rules[rule].with(limits)
}
