package memory

import (
	"bytes"
	"container/heap"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"weir/internal/share"
	"weir/internal/store"
	"weir/internal/wire"
)

const (
	// maxUsed bounds the labels of all namespaces on all days, without the labels of others.
	maxUsed = 1 << 20
	// maxAccountants bounds the senders whose last sequence is remembered.
	maxAccountants = 1 << 16
)

// accounts has the usage of keys.
type accounts struct {
	days map[usedDay]*usedRows
	// rows is the number of labels, and most its bound, both without the labels of others. Each
	// namespace has a share of them.
	rows, most int
	shares     share.Shares[string, struct{}]
	// swept is the day on which old days were last removed.
	swept uint32
	// last has the last sequence of each sender.
	last *fair[uint64]
}

// usedDay is a day of a namespace.
type usedDay struct {
	namespace string
	day       uint32
}

// usedRows has the rows of a day.
type usedRows struct {
	of     map[string]*usedRow // by label
	others int                 // how many are labels of others
	// ranks has all rows but those of others, by their ranks, once the day had no room for a label.
	ranks *rankedRows
}

// rankedRows is a heap of rows, with the lowest rank first.
type rankedRows []*usedRow

func (r rankedRows) Len() int           { return len(r) }
func (r rankedRows) Less(i, j int) bool { return r[i].rank() < r[j].rank() }
func (r rankedRows) Swap(i, j int)      { r[i], r[j] = r[j], r[i]; r[i].at, r[j].at = i, j }
func (r *rankedRows) Push(row any)      { of := row.(*usedRow); of.at = len(*r); *r = append(*r, of) }
func (r *rankedRows) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// least returns the row with the lowest rank; nil if there are only those of others.
func (u *usedRows) least() *usedRow {
	if u.ranks == nil {
		u.ranks = &rankedRows{}
		for _, row := range u.of {
			if !isOthers(row.label) {
				u.ranks.Push(row)
			}
		}
		heap.Init(u.ranks)
	}
	if len(*u.ranks) == 0 {
		return nil
	}
	return (*u.ranks)[0]
}

func isOthers(label string) bool {
	ofRule, _ := store.OthersLabel([]byte(label))
	return string(ofRule) == label
}

// row returns the row of a label on a day, and adds it if there is none. After a change of its hits
// call [usedRows.changed].
func (a *accounts) row(key usedDay, label string) *usedRow {
	day := a.days[key]
	if day == nil {
		day = &usedRows{of: map[string]*usedRow{}}
		a.days[key] = day
	}
	row := day.of[label]
	if row != nil {
		return row
	}
	row = &usedRow{label: label}
	day.of[label] = row
	a.rows++
	a.shares.Grow(key.namespace, 1)
	if isOthers(label) {
		day.others++
	} else if day.ranks != nil {
		heap.Push(day.ranks, row)
	}
	return row
}

// remove removes a row that is none of others.
func (a *accounts) remove(key usedDay, row *usedRow) {
	day := a.days[key]
	delete(day.of, row.label)
	if day.ranks != nil {
		heap.Remove(day.ranks, row.at)
	}
	a.rows--
	a.shares.Grow(key.namespace, -1)
}

// changed puts a row in its place by its hits.
func (u *usedRows) changed(row *usedRow) {
	if u.ranks != nil && !isOthers(row.label) {
		heap.Fix(u.ranks, row.at)
	}
}

// elsewhere returns the label of others that counts the hits of a label without room on the day.
func (u *usedRows) elsewhere(label []byte) []byte {
	ofRule, ofAll := store.OthersLabel(label)
	if _, there := u.of[string(ofRule)]; !there && u.others >= store.MaxUsedOthers {
		return ofAll
	}
	return ofRule
}

// of returns a day's rows; empty if there are none.
func (a *accounts) of(key usedDay) (day usedRows) {
	if of := a.days[key]; of != nil {
		day = *of
	}
	return day
}

type usedRow struct {
	label  string
	hits   int64
	budget []byte
	// base is the rank of the label whose place this label has taken. It is not in a file: after a
	// restart ranks are hits.
	base int64
	at   int // index in the heap
}

func (r *usedRow) rank() int64 { return wire.Sum(r.base, r.hits) }

func newAccounts() accounts {
	a := accounts{days: map[usedDay]*usedRows{}, most: maxUsed, last: newFair[uint64](maxAccountants)}
	a.last.spared = uint64(store.UsedSenderLife)
	return a
}

// Account implements [store.Store].
func (s *Store) Account(ctx context.Context, u *wire.Used) (done store.Accounted, err error) {
	if err := store.CheckUsed(u); err != nil {
		return done, err
	}
	if err := ctx.Err(); err != nil {
		return done, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, calendar := &s.accounts, store.Calendar{NowNanos: uint64(s.now().UnixNano())}
	a.last.sweep(calendar.NowNanos, 2)
	s.forgetDays(calendar)
	sender := owned{u.Namespace, u.Sender}
	row := a.last.put(sender, calendar.NowNanos, calendar.NowNanos+uint64(store.UsedSenderLife), 1)
	if row == nil {
		return done, fmt.Errorf("%w: %d are kept, and namespace %s has most of them", store.ErrFull, maxAccountants, u.Namespace)
	}
	noteChange(s, accountantKey(sender))
	if row.value.of >= u.Sequence {
		return store.Accounted{Duplicate: true}, nil
	}
	row.value.of = u.Sequence
	for i := range u.Rows {
		if s.account(u.Namespace, calendar.UsedDay(u.Rows[i].Day), &u.Rows[i]) {
			done.Folded++
		}
	}
	return done, nil
}

// account adds a row, and reports whether hits went to a label of others.
func (s *Store) account(namespace string, day uint32, r *wire.UsedRow) (folded bool) {
	key := usedDay{namespace, day}
	rows, base := s.accounts.of(key), int64(0)
	label, budget := r.Label, r.Budget
	if _, there := rows.of[string(label)]; !there && (len(rows.of) >= store.MaxUsed || !s.usedRoom(namespace)) {
		var least *usedRow
		if day := s.accounts.days[key]; day != nil && !isOthers(string(label)) {
			least = day.least()
		}
		if folded = true; least != nil && store.Displaces(r.Hits, least.hits, rand.Float64()) {
			base = least.rank()
			s.fold(key, least)
		} else {
			label, budget = rows.elsewhere(label), nil
			folded = !bytes.Equal(label, r.Label)
		}
	}
	row := s.accounts.row(key, string(label))
	row.base = max(row.base, base)
	if row.hits = wire.Sum(row.hits, r.Hits); len(budget) > 0 {
		row.budget = bytes.Clone(budget)
	}
	s.accounts.days[key].changed(row)
	noteChange(s, usedKey{key, string(label)})
	return folded
}

// fold moves the hits of a row to a label of others.
func (s *Store) fold(key usedDay, row *usedRow) {
	s.accounts.remove(key, row)
	noteChange(s, usedKey{key, row.label})
	into := s.accounts.row(key, string(s.accounts.days[key].elsewhere([]byte(row.label))))
	into.hits = wire.Sum(into.hits, row.hits)
	noteChange(s, usedKey{key, into.label})
}

// usedRoom reports whether there is room for another label of a namespace. If there is none, the
// namespace with the most labels makes room: the hits of its oldest days move to labels of others.
func (s *Store) usedRoom(namespace string) bool {
	a := &s.accounts
	for a.rows >= a.most {
		if a.rows == 0 {
			return false
		}
		largest, oldest := a.shares.MakesRoom(namespace).Owner, usedDay{}
		if largest == namespace {
			return false
		}
		for key, day := range a.days {
			if key.namespace == largest && len(day.of) > day.others && (oldest.namespace == "" || key.day < oldest.day) {
				oldest = key
			}
		}
		if oldest.namespace == "" {
			return false
		}
		s.foldDay(oldest)
	}
	return true
}

// foldDay moves all hits of a day to labels of others.
func (s *Store) foldDay(key usedDay) {
	for label, row := range s.accounts.days[key].of {
		if !isOthers(label) {
			s.fold(key, row)
		}
	}
}

// forgetDays removes expired days, once a day.
func (s *Store) forgetDays(c store.Calendar) {
	if s.accounts.swept == c.Day() {
		return
	}
	s.accounts.swept = c.Day()
	for key, rows := range s.accounts.days {
		if store.UsedUntil(key.day) > c.NowNanos {
			continue
		}
		for label := range rows.of {
			noteChange(s, usedKey{key, label})
		}
		s.accounts.rows -= len(rows.of)
		s.accounts.shares.Grow(key.namespace, -len(rows.of))
		delete(s.accounts.days, key)
	}
}

// Used implements [store.Store]. It locks the store for one day's rows at a time.
func (s *Store) Used(ctx context.Context, namespace string, from, to uint32, visit func(wire.UsedRow) error) error {
	calendar := store.Calendar{NowNanos: uint64(s.now().UnixNano())}
	for day := max(from, calendar.UsedDay(from)); day <= min(to, calendar.UsedDay(to)); day++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, r := range s.usedOn(namespace, day) {
			if err := visit(r); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

func (s *Store) usedOn(namespace string, day uint32) (rows []wire.UsedRow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for label, of := range s.accounts.of(usedDay{namespace, day}).of {
		rows = append(rows, wire.UsedRow{Label: []byte(label), Day: day, Hits: of.hits, Budget: of.budget})
	}
	return rows
}

// Keys of records of usage begin with these letters.
const (
	usedRecord       = 'u'
	accountantRecord = 'v'
)

// IsUsed reports whether a record's key is about usage. Versions of Weir without such records can't
// read them.
func IsUsed(key []byte) bool {
	return len(key) > 0 && (key[0] == usedRecord || key[0] == accountantRecord)
}

type (
	usedKey struct {
		usedDay
		label string
	}
	accountantKey owned
)

func (k usedKey) appendKey(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(appendNamespace(b, usedRecord, k.namespace), k.day), k.label...)
}

func (k usedKey) appendValue(b []byte, s *Store) ([]byte, bool) {
	of := s.accounts.of(k.usedDay).of[k.label]
	if of == nil {
		return nil, false
	}
	return append(binary.AppendVarint(b, of.hits), of.budget...), true
}

func (k accountantKey) appendKey(b []byte) []byte { return owned(k).append(b, accountantRecord) }

func (k accountantKey) appendValue(b []byte, s *Store) ([]byte, bool) {
	e := s.accounts.last.rows[owned(k)]
	if e == nil {
		return nil, false
	}
	return binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(b, e.expires), e.value.at), e.value.of), true
}

// readUsed reads a record of usage.
func (r *restoring) readUsed(letter byte, namespace string, k, v *reader) {
	if letter == accountantRecord {
		sender := owned{namespace, k.fixed()}
		expires, at, last := v.number(), v.number(), v.number()
		if r.lives(expires, accountantKey(sender)) {
			r.accountants = append(r.accountants, restored[uint64]{sender, at, expires, last})
		}
		return
	}
	key := usedDay{namespace: namespace}
	if day := k.next(4); day != nil {
		key.day = binary.BigEndian.Uint32(day)
	}
	label := string(k.rest)
	k.rest = nil
	hits, budget := v.signed(), slices.Clone(v.rest)
	v.rest = nil
	if store.UsedUntil(key.day) <= r.calendar.NowNanos {
		noteChange(r.Store, usedKey{key, label})
		return
	}
	row := r.accounts.row(key, label)
	row.hits, row.budget = hits, budget
}
