// Package live shows the work of the proxy nodes in this process as it happens.
package live

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"weir/config"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/observe"
	"weir/internal/host"
)

// Node is the work of a node since its start.
type Node struct {
	// Rules are in the order of their namespaces and names.
	Rules []Rule `json:"rules"`
	// Waited counts requests that waited for the backend, Late those that waited in vain, and Alone
	// requests that were decided without it. Pushed counts hits that the backend got, and Failed
	// pushes that it did not accept, and that are sent again.
	Waited int64 `json:"waited"`
	Late   int64 `json:"late"`
	Alone  int64 `json:"alone"`
	Pushed int64 `json:"pushed"`
	Failed int64 `json:"failed"`
}

// Rule is the decisions of a rule on a node: requests that passed it, and those that it had no room for.
type Rule struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Shadow means that the newest decisions are those of a shadow rule, which have no effect. A rule that was
	// moved at run time has decisions of both kinds.
	Shadow   bool  `json:"shadow"`
	Allowed  int64 `json:"allowed"`
	Rejected int64 `json:"refused"`
	// Overshoot bounds the hits above a limit that this node and others can now admit together;
	// 2^53-1 means that nothing bounds them.
	Overshoot int64 `json:"overshoot"`
	// Held is the hits that the rule's keys have leased; nil if they lease none, or [Tables.Look]
	// was not called.
	Held *observe.Leased `json:"held,omitempty"`
}

// Same reports whether two values are about the same rule, whatever their decisions.
func (r Rule) Same(other Rule) bool { return r.Namespace == other.Namespace && r.Name == other.Name }

// Sample is the work of all nodes up to a moment.
type Sample struct {
	At    time.Time
	Nodes []Node
	// Traffic is the requests of all nodes together.
	Traffic host.Traffic
}

// Sampler takes samples of nodes. It caches the meaning of metric names, which are the same for all
// nodes. The zero value is ready to use. It is not safe for concurrent use.
type Sampler struct {
	meanings map[string]*meaning // by a metric's name
	rules    map[ruleID]int      // numbers of rules, from 0
	places   []int               // by rule number: 1 + the rule's index in the node being read, or 0
	decided  []decided           // by rule number, of the node being read
	before   [][]decided         // by node and rule number, as it was read last
}

// decided is what a rule has decided while it was enforced, and as a shadow rule.
type decided struct {
	enforced, shadow kind
	isShadow         bool // it was one when it last decided something, as far as known
}

// kind is the decisions of one kind, if there can be any.
type kind struct {
	there bool
	count int64
}

// wasShadow reports whether the newest decisions are those of a shadow rule, by what was decided before. If there are
// new ones of both kinds, the next sample tells.
func (d *decided) wasShadow(before decided) bool {
	enforces, shadows := d.enforced.count > before.enforced.count, d.shadow.count > before.shadow.count
	switch {
	case !d.enforced.there || !d.shadow.there:
		return d.shadow.there
	case enforces != shadows:
		return shadows
	}
	return before.isShadow
}

type ruleID struct{ namespace, name string }

// meaning is the meaning of a metric of the plugin.
type meaning struct {
	name    string // without labels
	of      ruleID
	rule    int // the rule's number
	outcome string
	shadow  bool
}

// Take takes a sample of the nodes' processes.
func (s *Sampler) Take(at time.Time, nodes []*host.Process) Sample {
	sample := Sample{At: at, Nodes: make([]Node, len(nodes))}
	for i, process := range nodes {
		sample.Nodes[i] = s.read(i, process.Metrics().Snapshot())
		t := process.Traffic()
		sample.Traffic.Requests += t.Requests
		sample.Traffic.Answered += t.Answered
		sample.Traffic.Waited += t.Waited
		sample.Traffic.WaitedNanos += t.WaitedNanos
	}
	return sample
}

// read reads the metrics of a node's plugin. Their names contain labels: see package filter.
func (s *Sampler) read(node int, metrics map[string]int64) (n Node) {
	clear(s.places)
	clear(s.decided)
	for full, value := range metrics {
		m := s.meaning(full)
		switch m.name {
		case "requests_total":
			rule := s.rule(&n, m)
			of := &s.decided[m.rule].enforced
			if m.shadow {
				of = &s.decided[m.rule].shadow
			}
			if m.outcome != "off" {
				of.there, of.count = true, of.count+value
			}
			switch m.outcome {
			case "allowed", "marked":
				rule.Allowed += value
			case "rejected":
				rule.Rejected += value
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
	s.before = append(s.before, make([][]decided, max(0, node+1-len(s.before)))...)
	before := append(s.before[node], make([]decided, len(s.decided)-len(s.before[node]))...)
	for number, place := range s.places {
		if place != 0 {
			d := &s.decided[number]
			d.isShadow = d.wasShadow(before[number])
			n.Rules[place-1].Shadow = d.isShadow
		}
	}
	copy(before, s.decided)
	s.before[node] = before
	slices.SortFunc(n.Rules, compare)
	return n
}

// compare orders a node's rules.
func compare(a, b Rule) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// rule returns the node's rule of a metric, which it adds if necessary.
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
	m.outcome, m.shadow = strings.CutPrefix(labels["weir_outcome"], "shadow_")
	number, known := s.rules[m.of]
	if !known {
		number = len(s.places)
		s.rules[m.of] = number
		s.places, s.decided = append(s.places, 0), append(s.decided, decided{})
	}
	m.rule = number
	s.meanings[full] = m
	return m
}

// split divides a metric's full name into its labels and its name.
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

// Tables are the tables of counters in the shared data of nodes. Reading them does not disturb the
// nodes. It is not safe for concurrent use.
type Tables struct {
	config *config.Config
	nodes  []observe.Process
	at     time.Time
}

// NewTables returns the tables of nodes whose plugin has a configuration, and whose shared data is
// named vmID.
func NewTables(c *config.Config, vmID string, nodes []*host.Process) *Tables {
	t := &Tables{config: c}
	for _, process := range nodes {
		rules := make([]engine.Rule, len(c.Rules))
		for i, r := range c.Rules {
			rules[i].Limits, rules[i].SyncRate, rules[i].Prefix = r.Limits, int64(r.SyncRate), counter.AppendPart(nil, r.Name)
		}
		t.nodes = append(t.nodes, observe.Process{
			Namespace: c.Namespace, Data: readOnly{process.SharedData(vmID)}, Rules: rules, Clock: clock{tables: t},
		})
	}
	return t
}

// Look adds the nodes' leases to a sample of their metrics, and returns how many hits have passed
// for each rule and limit: see [observe.Looked].
func (t *Tables) Look(s *Sample) (most [][]uint64) {
	t.at = s.At
	looked := observe.Look(t.nodes)
	for i := range s.Nodes {
		for j := range t.config.Rules {
			known := Rule{Namespace: t.config.Namespace, Name: t.config.Rules[j].Name}
			if at, found := slices.BinarySearchFunc(s.Nodes[i].Rules, known, compare); found && t.config.Rules[j].SyncRate > 0 {
				s.Nodes[i].Rules[at].Held = &looked.Leased[i][j]
			}
		}
	}
	return looked.Most
}

// readOnly is shared data that rejects writes.
type readOnly struct{ of host.SharedData }

func (d readOnly) Get(key, _ []byte) (value []byte, cas uint32, found bool) {
	value, cas, status := d.of.Get(string(key))
	return value, cas, status == host.StatusOK
}

func (d readOnly) Set(_, _ []byte, _ uint32) bool { return false }

// clock returns the time of the sample.
type clock struct{ tables *Tables }

func (c clock) Now() int64 { return c.tables.at.UnixNano() }
