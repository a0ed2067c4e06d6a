package memory

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
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

type accounts struct {
	days map[usedDay]*store.UsedDay
	// rows is the number of labels, of which each namespace has a share. A label that is none of
	// others is new only while there are fewer than most.
	rows, most int
	shares     share.Shares[string, struct{}]
	// swept is the day on which old days were last removed.
	swept uint32
	// last has the last sequence of each sender.
	last *fair[uint64]
}

type usedDay struct {
	namespace string
	day       uint32
}

func newAccounts() accounts {
	a := accounts{days: map[usedDay]*store.UsedDay{}, most: maxUsed, last: newFair[uint64](maxAccountants)}
	a.last.spared = uint64(store.UsedSenderLife)
	return a
}

// day returns a day, which it makes if there is none.
func (a *accounts) day(key usedDay) *store.UsedDay {
	if a.days[key] == nil {
		a.days[key] = store.NewUsedDay()
	}
	return a.days[key]
}

// changeDay has a day changed, and notes which of its labels have.
func (s *Store) changeDay(key usedDay, change func(*store.UsedDay)) {
	day := s.accounts.day(key)
	before := day.Labels
	change(day)
	s.accounts.grow(key.namespace, day.Labels-before)
	for label := range day.Changed {
		noteChange(s, usedKey{key, label})
	}
	clear(day.Changed)
}

func (a *accounts) grow(namespace string, labels int) {
	a.rows += labels
	a.shares.Grow(namespace, labels)
}

// Account implements [store.Store].
func (s *Store) Account(ctx context.Context, u *wire.Used) (done store.Accounted, err error) {
	if err := cmp.Or(store.CheckUsed(u), ctx.Err()); err != nil {
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
	room := func() bool { return s.usedRoom(u.Namespace) }
	for i := range u.Rows {
		s.changeDay(usedDay{u.Namespace, calendar.UsedDay(u.Rows[i].Day)}, func(day *store.UsedDay) {
			if day.Add(&u.Rows[i], room) {
				done.Folded++
			}
		})
	}
	return done, nil
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
			if key.namespace == largest && day.Labels > day.Others && (oldest.namespace == "" || key.day < oldest.day) {
				oldest = key
			}
		}
		if oldest.namespace == "" {
			return false
		}
		s.changeDay(oldest, (*store.UsedDay).Fold)
	}
	return true
}

// forgetDays removes expired days, once a day.
func (s *Store) forgetDays(c store.Calendar) {
	if s.accounts.swept == c.Day() {
		return
	}
	s.accounts.swept = c.Day()
	for key, day := range s.accounts.days {
		if store.UsedUntil(key.day) > c.NowNanos {
			continue
		}
		for label := range day.Rows {
			noteChange(s, usedKey{key, label})
		}
		s.accounts.grow(key.namespace, -day.Labels)
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
	found := s.accounts.days[usedDay{namespace, day}]
	if found == nil {
		return nil
	}
	for label, of := range found.Rows {
		rows = append(rows, wire.UsedRow{Label: []byte(label), Day: day, Hits: of.Hits, Budget: of.Budget})
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
	day := s.accounts.days[k.usedDay]
	if day == nil || day.Rows[k.label] == nil {
		return nil, false
	}
	of := day.Rows[k.label]
	return append(binary.AppendVarint(b, of.Hits), of.Budget...), true
}

func (k accountantKey) appendKey(b []byte) []byte { return owned(k).append(b, accountantRecord) }

func (k accountantKey) appendValue(b []byte, s *Store) ([]byte, bool) {
	e := s.accounts.last.rows[owned(k)]
	if e == nil {
		return nil, false
	}
	return binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(b, e.expires), e.value.at), e.value.of), true
}

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
	r.accounts.day(key).Put(&store.UsedLabel{Label: label, Hits: hits, Budget: budget}, true)
	r.accounts.grow(namespace, 1)
}
