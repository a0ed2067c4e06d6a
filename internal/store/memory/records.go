package memory

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"weir/internal/store"
	"weir/internal/wire"
)

// RecordsFormat is the version of records. It changes when an older version of Weir could not read
// them.
const RecordsFormat = 1

// Record is a part of a store's state, for a caller that keeps it. [Store.Restore] reads it. There
// are records of counters, senders, grants, nodes, lists of overrides, usage, parts of limits, and
// logs.
// Other state, such as reports, has no records, because nodes repeat it within a minute.
type Record struct {
	Key []byte
	// Value is nil if the store has no state for the key any more.
	Value []byte
}

// Keys begin with a letter for the type of the record. The key of grants begins with the key of
// their sender, and so follows it wherever keys are in order.
const (
	counterRecord   = 'c'
	nodeRecord      = 'n'
	overridesRecord = 'o'
	senderRecord    = 's'
)

type recordKey interface {
	appendKey(b []byte) []byte
	// appendValue appends the record's value. It returns false if there is none.
	appendValue(b []byte, s *Store) ([]byte, bool)
}

type (
	nodeKey      owned
	senderKey    owned
	overridesKey string
	logKey       struct {
		owned
		topic store.Topic
	}
	grantsKey struct {
		owned
		sequence uint64
	}
)

// track makes the store record which records change.
func (s *Store) track() {
	s.changed = map[recordKey]struct{}{}
	s.counters.forgotten = func(key counterKey) { noteChange(s, key) }
	s.notes[store.Nodes].forgotten = func(key owned, _ []byte) { noteChange(s, nodeKey(key)) }
	for topic := range logRecords {
		s.notes[topic].forgotten = func(key owned, _ []byte) { noteChange(s, logKey{key, topic}) }
	}
	s.senders.forgotten = func(key owned, of *sender) {
		s.grants.forgetSender(of)
		noteChange(s, senderKey(key))
	}
	s.grants.forgotten = func(g *pushGrants) { noteChange(s, g.key()) }
	s.accounts.last.forgotten = func(key owned, _ uint64) { noteChange(s, accountantKey(key)) }
}

// noteChange records that a record changes, if the store is tracked. It is generic so that it does
// not allocate in a store that is not tracked.
func noteChange[K recordKey](s *Store, key K) {
	if s.changed != nil {
		s.changed[key] = struct{}{}
	}
}

// Changes returns the records that have changed since the last call, if Options.Tracked is set.
func (s *Store) Changes() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.changed) == 0 {
		return nil
	}
	changes := make([]Record, 0, len(s.changed))
	for key := range s.changed {
		record := Record{Key: key.appendKey(nil)}
		if value, known := key.appendValue(nil, s); known {
			record.Value = value
		}
		changes = append(changes, record)
	}
	s.changed = map[recordKey]struct{}{}
	return changes
}

// All returns all records, if Options.Tracked is set. None of them is a change any more.
func (s *Store) All() []Record {
	s.mu.Lock()
	for key := range s.counters.rows {
		noteChange(s, key)
	}
	for key := range s.notes[store.Nodes].rows {
		noteChange(s, nodeKey(key))
	}
	for topic := range logRecords {
		for key := range s.notes[topic].rows {
			noteChange(s, logKey{key, topic})
		}
	}
	for namespace := range s.overrides {
		noteChange(s, overridesKey(namespace))
	}
	for key, row := range s.senders.rows {
		noteChange(s, senderKey(key))
		for sequence := range row.value.of.grants.bySequence {
			noteChange(s, grantsKey{key, sequence})
		}
	}
	for key := range s.accounts.last.rows {
		noteChange(s, accountantKey(key))
	}
	for key, day := range s.accounts.days {
		for label := range day.Rows {
			noteChange(s, usedKey{key, label})
		}
	}
	for namespace, f := range s.fleets {
		noteChange(s, fleetKey(namespace))
		for id := range f.of {
			noteChange(s, partKey{namespace, id})
		}
	}
	s.mu.Unlock()
	return s.Changes()
}

// Restore fills an empty store from records in the order of their keys. Records that have expired,
// or find no room, are among the next changes. After an error the store is unusable.
func (s *Store) Restore(records iter.Seq2[[]byte, []byte]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := restoring{Store: s, calendar: store.Calendar{NowNanos: uint64(s.now().UnixNano())}}
	for key, value := range records {
		if err := r.read(key, value); err != nil {
			return fmt.Errorf("record %.100q: %w", key, err)
		}
	}
	r.settle()
	return nil
}

type restoring struct {
	*Store
	calendar    store.Calendar
	senders     []restored[*sender]
	grants      []restored[*pushGrants]
	accountants []restored[uint64]
	logs        []restoredNote
}

// restored is a value that is inserted after all records are read. at is when it was last put.
type restored[V any] struct {
	key         owned
	at, expires uint64
	of          V
}

type restoredNote struct {
	restored[[]byte]
	topic store.Topic
}

// settle inserts senders and grants, the oldest first, so that the oldest also make room first. All
// senders find room, because the push of a forgotten sender could count twice.
func (r *restoring) settle() {
	now, most := r.calendar.NowNanos, r.Store.senders.most
	r.Store.senders.most = math.MaxInt
	slices.SortStableFunc(r.senders, byTime)
	for _, s := range r.senders {
		row := r.Store.senders.put(s.key, now, s.expires, 1)
		row.value.of, row.value.at = s.of, s.at
	}
	r.Store.senders.most = most
	slices.SortStableFunc(r.accountants, byTime)
	for _, a := range r.accountants {
		if row := r.accounts.last.put(a.key, now, a.expires, 1); row != nil {
			row.value.of, row.value.at = a.of, a.at
		}
	}
	slices.SortStableFunc(r.logs, func(a, b restoredNote) int { return byTime(a.restored, b.restored) })
	for _, c := range r.logs {
		row := r.notes[c.topic].put(c.key, now, c.expires, sizeOf(c.topic, store.Note{Body: c.of}))
		row.value.of, row.value.at = c.of, c.at
	}
	slices.SortStableFunc(r.grants, byTime)
	for _, g := range r.grants {
		row := r.Store.senders.rows[g.key]
		if row == nil {
			noteChange(r.Store, grantsKey{g.key, g.of.sequence})
			continue
		}
		g.of.sender = row.value.of
		r.Store.grants.keep(g.of)
	}
}

func byTime[V any](a, b restored[V]) int { return cmp.Compare(a.at, b.at) }

var errRecord = errors.New("unreadable")

func (r *restoring) read(key, value []byte) error {
	k, v := reader{rest: key}, reader{rest: value}
	letter := k.byte()
	namespace := string(k.next(uint64(k.byte())))
	switch letter {
	case counterRecord:
		c := counterKey{namespace: namespace}
		copy(c.ID[:], k.next(uint64(len(c.ID))))
		c.Kind, c.Ordinal = k.byte(), k.byte()
		c.WidthMillis, c.Precision = k.number(), k.number()
		if expires := v.number(); k.whole() && r.lives(expires, c) {
			quota, contents := v.number(), v.contents()
			if !v.whole() || !store.ValidCounter(c.LimitCounter) {
				return errRecord
			}
			e := r.counters.insert(c, r.calendar.NowNanos, expires)
			e.value.Contents = contents
			r.counters.place(e, r.calendar.Used(&contents, c.LimitCounter), quota)
			r.counters.fit(e, r.calendar.NowNanos)
			return nil
		}
	case nodeRecord:
		node := owned{namespace, k.fixed()}
		if expires := v.number(); k.whole() && r.lives(expires, nodeKey(node)) {
			r.notes[store.Nodes].put(node, r.calendar.NowNanos, expires, 1)
		}
	case overridesRecord:
		version := v.number()
		r.overrides[namespace] = overrides{list: slices.Clone(v.rest), version: version}
		v.rest = nil
	case senderRecord:
		r.readSender(owned{namespace, k.fixed()}, &k, &v)
	case fleetRecord:
		if err := r.readFleet(namespace, &v); err != nil {
			return err
		}
	case partRecord:
		r.readPart(owned{namespace, k.fixed()}, &v)
	case logRecords[store.Changes], logRecords[store.Rules], logRecords[store.Namespaces], logRecords[store.Tellers]:
		key, expires, at := logKey{owned{namespace, k.fixed()}, topicOf(letter)}, v.number(), v.number()
		if r.lives(expires, key) {
			r.logs = append(r.logs, restoredNote{restored[[]byte]{key.owned, at, expires, slices.Clone(v.rest)}, key.topic})
		}
	case usedRecord, accountantRecord:
		r.readUsed(letter, namespace, &k, &v)
	default:
		return errRecord
	}
	if !k.whole() || v.bad {
		return errRecord
	}
	return nil
}

// readSender reads a sender's record, or the grants of a push.
func (r *restoring) readSender(key owned, k, v *reader) {
	if len(k.rest) > 0 {
		sequence, at := k.fixed(), v.number()
		r.grants = append(r.grants, restored[*pushGrants]{key: key, at: at, of: &pushGrants{
			sequence: sequence, at: at, units: slices.Clone(v.rest),
		}})
		v.rest = nil
		return
	}
	s := &sender{namespace: key.namespace, id: key.id}
	expires, at := v.number(), v.number()
	s.floor = v.number()
	for len(v.rest) > 0 && len(s.applied) <= store.MaxAhead/64 {
		s.applied = append(s.applied, v.fixed())
	}
	if r.lives(expires, senderKey(key)) {
		r.senders = append(r.senders, restored[*sender]{key, at, expires, s})
	}
}

// lives reports whether a record has not expired. An expired record becomes a change.
func (r *restoring) lives(expires uint64, key recordKey) bool {
	if expires > r.calendar.NowNanos {
		return true
	}
	noteChange(r.Store, key)
	return false
}

func appendNamespace(b []byte, letter byte, namespace string) []byte {
	return append(append(b, letter, byte(len(namespace))), namespace...)
}

func (o owned) append(b []byte, letter byte) []byte {
	return binary.BigEndian.AppendUint64(appendNamespace(b, letter, o.namespace), o.id)
}

func (k counterKey) appendKey(b []byte) []byte {
	b = append(appendNamespace(b, counterRecord, k.namespace), k.ID[:]...)
	b = append(b, k.Kind, k.Ordinal)
	return binary.AppendUvarint(binary.AppendUvarint(b, k.WidthMillis), k.Precision)
}

func (k counterKey) appendValue(b []byte, s *Store) ([]byte, bool) {
	e := s.counters.rows[k]
	if e == nil {
		return nil, false
	}
	b = binary.AppendUvarint(binary.AppendUvarint(b, e.expires), e.value.quota)
	b = binary.AppendUvarint(b, e.value.Limit)
	b = binary.AppendUvarint(b, uint64(len(e.value.Windows)))
	before := uint64(0)
	for _, w := range e.value.Windows {
		b = binary.AppendVarint(b, int64(w.Number-before))
		b = binary.AppendUvarint(b, uint64(w.Hits))
		before = w.Number
	}
	return b, true
}

func (r *reader) contents() (c store.Contents) {
	c.Limit = r.number()
	number := uint64(0)
	for n := r.number(); n > 0 && !r.bad; n-- {
		number += uint64(r.signed())
		w := store.Window{Number: number, Hits: int64(r.number())}
		if w.Hits < 0 || w.Hits > wire.MaxHits {
			r.bad = true
		}
		c.Windows = append(c.Windows, w)
	}
	return c
}

func (k nodeKey) appendKey(b []byte) []byte { return owned(k).append(b, nodeRecord) }

func (k nodeKey) appendValue(b []byte, s *Store) ([]byte, bool) {
	e := s.notes[store.Nodes].rows[owned(k)]
	if e == nil {
		return nil, false
	}
	return binary.AppendUvarint(b, e.expires), true
}

func (k logKey) appendKey(b []byte) []byte { return k.append(b, logRecords[k.topic]) }

func (k logKey) appendValue(b []byte, s *Store) ([]byte, bool) {
	e := s.notes[k.topic].rows[k.owned]
	if e == nil {
		return nil, false
	}
	return append(binary.AppendUvarint(binary.AppendUvarint(b, e.expires), e.value.at), e.value.of...), true
}

// logRecords are the letters of the records of logs, whose notes outlast the process.
var logRecords = map[store.Topic]byte{store.Changes: 'h', store.Rules: 'r', store.Namespaces: 'w', store.Tellers: 'z'}

// topicOf returns the topic of a log's letter; 0 if it is none.
func topicOf(letter byte) (of store.Topic) {
	for topic, known := range logRecords {
		if known == letter {
			of = topic
		}
	}
	return of
}

// IsLog reports whether a record's key is that of a log's note. Versions of Weir without such
// records can't read them.
func IsLog(key []byte) bool { return len(key) > 0 && topicOf(key[0]) != 0 }

func (k senderKey) appendKey(b []byte) []byte { return owned(k).append(b, senderRecord) }

func (k senderKey) appendValue(b []byte, s *Store) ([]byte, bool) {
	e := s.senders.rows[owned(k)]
	if e == nil {
		return nil, false
	}
	b = binary.AppendUvarint(binary.AppendUvarint(b, e.expires), e.value.at)
	b = binary.AppendUvarint(b, e.value.of.floor)
	for _, word := range e.value.of.applied {
		b = binary.BigEndian.AppendUint64(b, word)
	}
	return b, true
}

func (k grantsKey) appendKey(b []byte) []byte {
	return binary.BigEndian.AppendUint64(senderKey(k.owned).appendKey(b), k.sequence)
}

func (k grantsKey) appendValue(b []byte, s *Store) ([]byte, bool) {
	e := s.senders.rows[k.owned]
	if e == nil {
		return nil, false
	}
	g := e.value.of.grants.of(k.sequence)
	if g == nil {
		return nil, false
	}
	return append(binary.AppendUvarint(b, g.at), g.units...), true
}

func (k overridesKey) appendKey(b []byte) []byte {
	return appendNamespace(b, overridesRecord, string(k))
}

func (k overridesKey) appendValue(b []byte, s *Store) ([]byte, bool) {
	o := s.overrides[string(k)]
	return append(binary.AppendUvarint(b, o.version), o.list...), true
}

// reader reads appended values. It returns zero for a value that it can't read, and bad stays true
// from then on.
type reader struct {
	rest []byte
	bad  bool
}

// whole reports whether everything was read, without errors.
func (r *reader) whole() bool { return !r.bad && len(r.rest) == 0 }

func (r *reader) next(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.rest, r.bad = nil, true
		return nil
	}
	next := r.rest[:n]
	r.rest = r.rest[n:]
	return next
}

func (r *reader) byte() byte {
	if b := r.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) fixed() uint64 {
	if b := r.next(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) number() uint64 {
	n, length := binary.Uvarint(r.rest)
	r.bad = r.bad || length <= 0
	r.rest = r.rest[max(0, length):]
	return n
}

func (r *reader) signed() int64 {
	n, length := binary.Varint(r.rest)
	r.bad = r.bad || length <= 0
	r.rest = r.rest[max(0, length):]
	return n
}
