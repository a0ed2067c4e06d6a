package backend

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"weir/internal/calendar"
	"weir/internal/store"
	"weir/internal/wire"
)

// account counts a usage message.
func (b *Backend) account(ctx context.Context, body []byte) (Reply, error) {
	u, err := wire.DecodeUsed(body)
	if err != nil {
		return Reply{}, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience(ctx))
	defer cancel()
	b.names.complete(u, wire.MaxUsed-len(body))
	done, err := b.store.Account(ctx, u)
	if err == nil {
		err = b.noteTellers(ctx, u) // afterwards, and again if it comes again: so nothing seems told that is not
	}
	if err != nil {
		return Reply{}, err
	}
	reply := Reply{Body: wire.AppendUsedAnswer(nil, u.Sequence), Folded: done.Folded, Written: !done.Duplicate}
	if reply.Duplicate = done.Duplicate; !done.Duplicate {
		reply.Used = u
	}
	return reply, nil
}

// names has the names under which keys were told, so that a correction without one counts at the label of its
// reservation: the worker may have forgotten it meanwhile. A name holds for its day, whoever told it: the store has it
// there, so nothing more is shown even if the rule has come to reveal less. With several backends the correction may
// come to one that has not heard the name. Then it is a label of its own.
type names struct {
	mu   sync.Mutex
	told members[toldName]
}

type toldName struct {
	namedKey
	name string
}

type namedKey struct {
	rule string
	id   wire.ID
	day  uint32
}

// complete gives labels without a name the last one, as long as the message grows by no more than room bytes: a region
// sends it on.
func (n *names) complete(u *wire.Used, room int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range u.Rows {
		r := &u.Rows[i]
		l, _ := wire.DecodeUsedLabel(r.Label)
		key, at := namedKey{l.Rule, l.ID, r.Day}, member{u.Namespace, binary.LittleEndian.Uint64(l.ID[:]) ^ uint64(r.Day)}
		last, _ := n.told.get(at)
		switch {
		case l.ID == wire.ID{}: // of others
		case len(l.Name) > 0 && last != toldName{key, string(l.Name)}:
			n.told.put(at, toldName{key, string(l.Name)})
		case len(l.Name) == 0 && last.namedKey == key:
			l.Name = []byte(last.name)
			label := wire.AppendUsedLabel(nil, &l)
			if grown := len(label) - len(r.Label) + 1; grown <= room { // and its length may take another byte
				r.Label, room = label, room-grown
			}
		}
	}
}

// UsageQuery says which usage to sum up, and how.
type UsageQuery struct {
	Rule string // all if empty
	// From and To are the first and the last day.
	From, To uint32
	// Key, Model, Day and Month say by which of these to group, in addition to the rule.
	Key, Model, Day, Month bool
}

// Usage is the sum of hits of one group.
type Usage struct {
	Rule string
	// ID and Name are those of the key, if grouped by key. Others means that it sums up keys
	// without a row of their own.
	ID     wire.ID
	Name   []byte
	Others bool
	Model  string
	// Period is the day, or the first day of the month.
	Period uint32
	Hits   int64
	// Budget is the key's last known budget, if grouped by key; its end is 0 if there is none.
	Budget wire.Budget
}

// MaxUsage is the most rows of a result.
const MaxUsage = 50_000

// ErrTooMuch is the error of a query with more rows than MaxUsage.
var ErrTooMuch = errors.New("too many rows")

// ErrTooLong is the error of a query whose rows take too long to read, though the store tells them.
var ErrTooLong = errors.New("too much to read")

type usageKey struct {
	rule, model string
	id          wire.ID
	period      uint32
}

// Usage sums up the usage of a namespace's keys, ordered by rule, period, and descending hits.
func (b *Backend) Usage(ctx context.Context, namespace string, q *UsageQuery) ([]Usage, error) {
	reading, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	told := false
	rows := map[usageKey]*Usage{}
	known := map[usageKey]*Usage{} // keys of rules, with their names and budgets
	err := b.store.Used(reading, namespace, q.From, q.To, func(r wire.UsedRow) error {
		told = true
		label, ok := wire.DecodeUsedLabel(r.Label)
		if !ok || q.Rule != "" && label.Rule != q.Rule {
			return nil
		}
		key := usageKey{rule: label.Rule}
		if q.Key {
			key.id = label.ID
			keep(known, key, &label, r.Budget)
		}
		if q.Model {
			key.model = label.Model
		}
		if key.period = r.Day; !q.Day {
			key.period = 0
			if q.Month {
				_, _, day := calendar.Date(int64(r.Day))
				key.period = r.Day - uint32(day-1)
			}
		}
		of := rows[key]
		if of == nil {
			if len(rows) == MaxUsage {
				return ErrTooMuch
			}
			of = &Usage{Rule: key.rule, ID: key.id, Model: key.model, Period: key.period, Others: q.Key && label.ID == wire.ID{}}
			rows[key] = of
		}
		of.Hits = wire.Sum(of.Hits, r.Hits)
		return nil
	})
	if err != nil && told && reading.Err() != nil && ctx.Err() == nil {
		return nil, ErrTooLong
	}
	if err != nil {
		return nil, err
	}
	all := make([]Usage, 0, len(rows))
	for key, of := range rows {
		if k := known[usageKey{rule: key.rule, id: key.id}]; k != nil {
			of.Name, of.Budget = k.Name, k.Budget
		}
		all = append(all, *of)
	}
	slices.SortFunc(all, func(a, b Usage) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Period, b.Period), cmp.Compare(b.Hits, a.Hits),
			slices.Compare(a.ID[:], b.ID[:]), cmp.Compare(a.Model, b.Model))
	})
	return all, nil
}

// keep records the name of a key, and its newest budget.
func keep(known map[usageKey]*Usage, key usageKey, label *wire.UsedLabel, budget []byte) {
	of := known[key]
	if of == nil {
		of = &Usage{}
		known[key] = of
	}
	if len(of.Name) == 0 {
		of.Name = label.Name
	}
	if b, ok := wire.DecodeBudget(budget); ok && b.AtSeconds >= of.Budget.AtSeconds {
		of.Budget = b
	}
}
