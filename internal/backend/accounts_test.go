package backend_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// accountsDay is today, where usage is told of.
const accountsDay = 20_000

// accountant tells a backend of usage.
type accountant struct {
	testing.TB
	store    store.Store
	backend  *backend.Backend
	sequence uint64
}

func newAccountant(t testing.TB) *accountant {
	clock := func() time.Time { return time.Unix(accountsDay*86400, 0) }
	s := memory.New(memory.Options{Now: clock})
	b := backend.New(s)
	b.Now = clock
	return &accountant{TB: t, store: s, backend: b}
}

// tell sends a message, and returns it as it was counted.
func (a *accountant) tell(namespace string, rows ...wire.UsedRow) *wire.Used {
	a.Helper()
	a.sequence++
	body := wire.AppendUsed(nil, &wire.Used{Namespace: namespace, Sender: 7, Sequence: a.sequence, Rows: rows})
	return must.Get(a.backend.Push(a.Context(), body))(a).Used
}

// labels returns the labels of a key that the store has, each with its rule, day, name, model and hits.
func (a *accountant) labels(namespace string, key uint32) (all []string) {
	a.Helper()
	must.OK(a, a.store.Used(a.Context(), namespace, 0, wire.MaxUsedDay, func(r wire.UsedRow) error {
		if l, _ := wire.DecodeUsedLabel(r.Label); binary.BigEndian.Uint32(l.ID[:]) == key {
			name, _, _, _ := wire.NextValue(l.Name)
			all = append(all, fmt.Sprintf("%s %d %q %s %d", l.Rule, r.Day, name, l.Model, r.Hits))
		}
		return nil
	}))
	slices.Sort(all)
	return all
}

// rowOf returns a row of a key, without a name if that is empty.
func rowOf(rule string, key uint32, name, model string, day uint32, hits int64) wire.UsedRow {
	l := wire.UsedLabel{Rule: rule, Model: model}
	if binary.BigEndian.PutUint32(l.ID[:], key); name != "" {
		l.Name = wire.AppendValue(nil, []byte(name), false)
	}
	return wire.UsedRow{Label: wire.AppendUsedLabel(nil, &l), Day: day, Hits: hits}
}

// A correction that comes without its key's name counts at the label of the reservation, however many keys came between,
// and though the day is full, where a new label without hits gets no place. What was told of another namespace, rule or
// day names nothing.
func TestCorrectionsFindTheirLabel(t *testing.T) {
	const ann = 1 << 31
	for _, test := range []struct {
		name      string
		others    uint32
		namespace string
		row       wire.UsedRow
		want      []string
	}{
		{"a correction", 2000, "shop", rowOf("r", ann, "", "*", accountsDay, -7892), []string{`r 20000 "ann" * 300`}},
		{"on a full day", store.MaxUsed + 500, "shop", rowOf("r", ann, "", "*", accountsDay, -7892), []string{`r 20000 "ann" * 300`}},
		{"of another model", 2000, "shop", rowOf("r", ann, "", "m", accountsDay, 300), []string{`r 20000 "ann" * 8192`, `r 20000 "ann" m 300`}},
		{"of another namespace", 0, "yard", rowOf("r", ann, "", "*", accountsDay, 5), []string{`r 20000 "" * 5`}},
		{"of another rule", 0, "shop", rowOf("s", ann, "", "*", accountsDay, 5), []string{`r 20000 "ann" * 8192`, `s 20000 "" * 5`}},
		{"of another day", 0, "shop", rowOf("r", ann, "", "*", accountsDay-1, 5), []string{`r 19999 "" * 5`, `r 20000 "ann" * 8192`}},
	} {
		a := newAccountant(t)
		a.tell("shop", rowOf("r", ann, "ann", "*", accountsDay, 8192))
		for first := range test.others / 500 {
			var rows []wire.UsedRow
			for key := range uint32(500) {
				rows = append(rows, rowOf("r", first*500+key+1, "bob", "*", accountsDay, 1))
			}
			a.tell("shop", rows...)
		}
		a.tell(test.namespace, test.row)
		must.Same(t, a.labels(test.namespace, ann), test.want, "%s: labels of ann", test.name)
	}
}

// Others have no name, whatever a node tells.
func TestOthersHaveNoName(t *testing.T) {
	a := newAccountant(t)
	a.tell("shop", rowOf("r", 0, "ann", "", accountsDay, 1), rowOf("r", 0, "", "", accountsDay, 2))
	must.Same(t, a.labels("shop", 0), []string{`r 20000 ""  2`, `r 20000 "ann"  1`}, "labels of others")
}

// A message with names that it came without is within the bound of messages, for a region sends it on.
func TestNamesKeepAMessageWithinItsBound(t *testing.T) {
	a := newAccountant(t)
	var bare []wire.UsedRow
	for key := range uint32(1000) {
		a.tell("shop", rowOf("r", key+1, strings.Repeat("a", 120), "", accountsDay, 1))
		bare = append(bare, rowOf("r", key+1, "", "", accountsDay, -1))
	}
	told := a.tell("shop", bare...)
	named := 0
	for i := range told.Rows {
		if l, _ := wire.DecodeUsedLabel(told.Rows[i].Label); len(l.Name) > 0 {
			named++
		}
	}
	body := wire.AppendUsed(nil, told)
	if _, err := wire.DecodeUsed(body); err != nil || len(body) < wire.MaxUsed-200 || named == 0 || named == len(bare) {
		t.Errorf("%d of %d rows have a name now, in %d bytes: %v", named, len(bare), len(body), err)
	}
}
