package live

import (
	"slices"
	"time"

	"weir/config"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/observe"
	"weir/internal/host"
)

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
		for i := range c.Rules {
			r := &c.Rules[i]
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
