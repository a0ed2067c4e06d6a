package observe

import (
	"weir/internal/counter"
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/sharedata"
	"weir/window"
)

// Leased has the leases of a rule's keys in a process: their number, and the hits that no request has
// used yet.
type Leased struct {
	Leases int    `json:"leases"`
	Free   uint64 `json:"free"`
}

// Looked sums up the shared data of processes with the same rules.
type Looked struct {
	// Leased is indexed by process and rule.
	Leased [][]Leased
	// Most is indexed by rule and limit. It is the number of hits that count and have passed in all
	// processes together, for the key that has most. For a rule that does not synchronise, keys
	// can't be matched across processes: then it is the sum of each process's busiest key.
	Most [][]uint64
}

// Process is a process whose shared data is looked at.
type Process struct {
	Namespace string
	Data      sharedata.Data
	Rules     []rule.Rule
	Clock     link.Clock
}

// Look reads the shared data of processes, without changing it, so workers may go on meanwhile. Keys
// with other limits count for their rules. While pushes are lost, hits that the backend has and that
// will be sent again may count twice. Advanced hits are seen once the backend has counted them.
func Look(processes []Process) Looked {
	var seen Looked
	type place struct {
		id   [16]byte
		rule int
	}
	keys := map[place]*sightOf{}
	for i := range processes {
		o := &processes[i]
		alone := make([][]uint64, len(o.Rules))
		held := make([]Leased, len(o.Rules))
		if seen.Most == nil {
			seen.Most = make([][]uint64, len(o.Rules))
		}
		for j := range o.Rules {
			alone[j] = make([]uint64, len(o.Rules[j].Limits))
			if seen.Most[j] == nil {
				seen.Most[j] = make([]uint64, len(o.Rules[j].Limits))
			}
		}
		o.visit(func(r *rule.Rule, c *counter.Counter) {
			if !r.Synced() {
				for j := range alone[r.Index] {
					alone[r.Index][j] = max(alone[r.Index][j], r.Limits[j].Used(&c.States[j]))
				}
				return
			}
			if leased := c.Leased(); leased > 0 {
				held[r.Index].Leases++
				held[r.Index].Free += leased
			}
			at := place{c.Sync().ID, r.Index}
			if keys[at] == nil {
				keys[at] = &sightOf{limits: make([]sightOfLimit, len(r.Limits))}
			}
			keys[at].add(r, c)
		})
		for j := range alone {
			for k, hits := range alone[j] {
				seen.Most[j][k] += hits
			}
		}
		seen.Leased = append(seen.Leased, held)
	}
	for at, key := range keys {
		for j := range key.limits {
			most := &seen.Most[at.rule][j]
			*most = max(*most, key.limits[j].passed())
		}
	}
	return seen
}

// visit calls visit with each counter that still counts, advanced to the present. It is valid
// during the call.
func (o *Process) visit(visit func(r *rule.Rule, c *counter.Counter)) {
	table, found := sharedata.Find(o.Data, o.Namespace)
	if !found {
		return // no worker has made the table yet
	}
	link := link.New(o.Data, o.Namespace, o.Clock, nil, 0, nil)
	nodes := link.Read()
	groups := make(map[sharedata.Group]*rule.Rule, len(o.Rules))
	for i := range o.Rules {
		r := &o.Rules[i]
		r.Complete(i)
		r.Share(nodes)
		groups[table.Group(r.Prefix)] = r
	}
	now := link.Now()
	var c counter.Counter
	table.Visit(now, func(g sharedata.Group, payload []byte) {
		if r := groups[g]; r != nil && c.Load(&r.Rule, payload) {
			c.Advance(now)
			visit(r, &c)
		}
	})
}

// sightOf has a key's hits in several processes.
type sightOf struct {
	heard  counter.Due // the newest answer that a process has taken in; 0 for none
	limits []sightOfLimit
}

// sightOfLimit counts the hits of a limit: known are the backend's, by the process with the newest
// answer, and unknown are those of all processes that the backend does not know of.
type sightOfLimit struct{ known, unknown int64 }

// passed is how many hits have passed in all processes together.
func (s *sightOfLimit) passed() uint64 { return uint64(max(s.known+s.unknown, 0)) }

func (s *sightOf) add(r *rule.Rule, c *counter.Counter) {
	heard := c.Sync().Heard
	newest := s.heard == 0 || heard != 0 && int32(heard-s.heard) > 0
	alike := heard == s.heard
	if newest {
		s.heard = heard
	}
	for i := range s.limits {
		l, state := &s.limits[i], &c.States[i]
		unknown, doubtful := unknown(state)
		l.unknown += unknown
		switch known := int64(r.Limits[i].Used(state)) - unknown - doubtful; {
		case newest:
			l.known = known
		case alike: // the later of two answers at a time knows more
			l.known = max(l.known, known)
		}
	}
}

// unknown is how many hits have passed without the backend being known to have them, less those
// that it has counted and that have not passed: leased hits, and hits on their way back. Doubtful
// hits count as used.
func unknown(s *window.State) (hits, doubtful int64) {
	add := func(h *window.Hits) {
		hits += h.Pending + h.InFlight - int64(h.Lease)
	}
	for i := range s.Hits {
		add(&s.Hits[i])
		doubtful -= min(s.Hits[i].InFlight, 0)
	}
	moved := int64(0) // moves between buckets, which cancel out
	for i := range s.Buckets {
		add(&s.Buckets[i].Hits)
		moved += s.Buckets[i].InFlight
	}
	return hits, doubtful - min(moved, 0)
}
