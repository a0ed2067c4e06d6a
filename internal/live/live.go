// Package live tells what proxy nodes of this process do, as they do it.
package live

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"weir/internal/host"
	"weir/internal/node"
)

// Node tells what a node has done since it was started.
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

// Rule tells what a rule has decided on a node, or would have decided if it is a shadow rule.
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

// Same reports whether it is the same rule, whatever it has decided.
func (r Rule) Same(other Rule) bool { return r.Namespace == other.Namespace && r.Name == other.Name }

// Sample tells what all nodes have done at a moment.
type Sample struct {
	At    time.Time
	Nodes []Node
}

// Take takes a sample of the processes of nodes. It may be called at any time.
func Take(at time.Time, nodes []*host.Process) Sample {
	s := Sample{At: at, Nodes: make([]Node, len(nodes))}
	for i, process := range nodes {
		s.Nodes[i] = read(process.Metrics().Snapshot())
	}
	return s
}

// read reads the plugin's metrics, whose names have labels in them: see package filter.
func read(metrics map[string]host.Metric) (n Node) {
	for full, metric := range metrics {
		labels, name := split(full)
		value := metric.Value
		switch name {
		case "requests_total":
			n.count(labels, value)
		case "overshoot_bound":
			n.rule(labels).Overshoot = value
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
	slices.SortFunc(n.Rules, func(a, b Rule) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return n
}

// rule is the rule that labels name.
func (n *Node) rule(labels map[string]string) *Rule {
	rule := Rule{Namespace: labels["weir_namespace"], Name: labels["weir_rule"]}
	i := slices.IndexFunc(n.Rules, rule.Same)
	if i < 0 {
		i = len(n.Rules)
		n.Rules = append(n.Rules, rule)
	}
	return &n.Rules[i]
}

func (n *Node) count(labels map[string]string, value int64) {
	rule := n.rule(labels)
	outcome, shadow := strings.CutPrefix(labels["weir_outcome"], "shadow_")
	rule.Shadow = shadow
	if outcome == "rejected" {
		rule.Rejected += value
	} else {
		rule.Allowed += value
	}
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
