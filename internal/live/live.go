// Package live shows the work of the proxy nodes in this process as it happens.
package live

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"weir/internal/host"
	"weir/internal/node"
)

// Node is the work of a node since its start.
type Node struct {
	// Rules are in the order of their namespaces and names.
	Rules []Rule `json:"rules"`
	// Waited are requests that waited for the backend, Late those of them that did so in vain, Alone
	// those that were decided without it, Pushed hits that it was told of, and Failed pushes that it did
	// not take, and that are sent again.
	Waited int64 `json:"waited"`
	Late   int64 `json:"late"`
	Alone  int64 `json:"alone"`
	Pushed int64 `json:"pushed"`
	Failed int64 `json:"failed"`
}

// Rule is the decisions of a rule on a node; those of a shadow rule had no effect.
type Rule struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Shadow    bool   `json:"shadow"`
	Allowed   int64  `json:"allowed"`
	Rejected  int64  `json:"refused"`
	// Overshoot is the most hits above a limit that this node and others can admit together as things
	// stand, 2^53-1 if nothing bounds that.
	Overshoot int64 `json:"overshoot"`
	// Held tells what its keys have leased; it is nil if they lease nothing, or nobody has looked.
	Held *node.Held `json:"held,omitempty"`
}

// Same reports whether two values are about the same rule, whatever their decisions.
func (r Rule) Same(other Rule) bool { return r.Namespace == other.Namespace && r.Name == other.Name }

// Sample is the work of all nodes up to a moment.
type Sample struct {
	At    time.Time
	Nodes []Node
}

// Sampler takes samples of nodes. It caches the meaning of metric names, which are the same for all
// nodes. The zero value is ready to use. It is not safe for concurrent use.
type Sampler struct {
	meanings map[string]*meaning // by a metric's name
	rules    map[ruleID]int      // numbers, from 0
	places   []int               // by a rule's number, its place in the node that is read, plus 1
}

// ruleID names a rule.
type ruleID struct{ namespace, name string }

// meaning tells of a metric of the plugin's how it counts.
type meaning struct {
	name             string // without labels
	of               ruleID
	rule             int // its number
	shadow, rejected bool
}

// Take takes a sample of the nodes' processes.
func (s *Sampler) Take(at time.Time, nodes []*host.Process) Sample {
	sample := Sample{At: at, Nodes: make([]Node, len(nodes))}
	for i, process := range nodes {
		sample.Nodes[i] = s.read(process.Metrics().Snapshot())
	}
	return sample
}

// read reads the plugin's metrics, whose names have labels in them: see package filter.
func (s *Sampler) read(metrics map[string]host.Metric) (n Node) {
	clear(s.places)
	for full, metric := range metrics {
		m := s.meaning(full)
		value := metric.Value
		switch m.name {
		case "requests_total":
			rule := s.rule(&n, m)
			if rule.Shadow = m.shadow; m.rejected {
				rule.Rejected += value
			} else {
				rule.Allowed += value
			}
		case "overshoot_bound":
			s.rule(&n, m).Overshoot = value
		case "waited_requests_total":
			n.Waited += value
		case "late_requests_total":
			n.Late += value
		case "decided_alone_total":
			n.Alone += value
		case "pushed_hits_total":
			n.Pushed += value
		case "failed_pushes_total":
			n.Failed += value
		}
	}
	slices.SortFunc(n.Rules, compare)
	return n
}

// compare is the order of a node's rules.
func compare(a, b Rule) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// rule is the node's rule that a metric is of.
func (s *Sampler) rule(n *Node, m *meaning) *Rule {
	if s.places[m.rule] == 0 {
		n.Rules = append(n.Rules, Rule{Namespace: m.of.namespace, Name: m.of.name})
		s.places[m.rule] = len(n.Rules)
	}
	return &n.Rules[s.places[m.rule]-1]
}

// meaning returns the meaning of a metric by its name.
func (s *Sampler) meaning(full string) *meaning {
	if m := s.meanings[full]; m != nil {
		return m
	}
	if s.meanings == nil {
		s.meanings, s.rules = map[string]*meaning{}, map[ruleID]int{}
	}
	labels, name := split(full)
	m := &meaning{name: name, of: ruleID{labels["weir_namespace"], labels["weir_rule"]}}
	var outcome string
	outcome, m.shadow = strings.CutPrefix(labels["weir_outcome"], "shadow_")
	m.rejected = outcome == "rejected"
	number, known := s.rules[m.of]
	if !known {
		number = len(s.places)
		s.rules[m.of] = number
		s.places = append(s.places, 0)
	}
	m.rule = number
	s.meanings[full] = m
	return m
}

// split takes the labels out of a metric's name.
func split(full string) (labels map[string]string, name string) {
	rest, ours := strings.CutPrefix(full, "weir.")
	if !ours {
		return nil, ""
	}
	labels = map[string]string{}
	for {
		label, after, found := strings.Cut(rest, ";.;")
		if !found {
			return labels, rest
		}
		key, value, _ := strings.Cut(label, "=.=")
		labels[key], rest = value, after
	}
}
