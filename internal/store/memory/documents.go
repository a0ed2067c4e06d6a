package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"

	"weir/internal/store"
)

// overrides is the list of a namespace with its version.
type overrides struct {
	list    []byte
	version uint64
}

// Overrides implements [store.Store].
func (s *Store) Overrides(ctx context.Context, namespace string, known uint64) (list []byte, version uint64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.overrides[namespace]
	if o.version != known {
		list = bytes.Clone(o.list)
	}
	return list, o.version, nil
}

// SetOverrides implements [store.Store]. The store keeps the lists of [store.MaxOverridden]
// namespaces.
func (s *Store) SetOverrides(ctx context.Context, namespace string, from uint64, list []byte) (version uint64, err error) {
	if err := cmp.Or(store.CheckOverrides(namespace, list), ctx.Err()); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, known := s.overrides[namespace]
	switch {
	case o.version != from:
		return 0, store.ErrChanged
	case !known && len(s.overrides) >= store.MaxOverridden:
		return 0, fmt.Errorf("%w: overrides: want at most %d namespaces with overrides in memory", store.ErrInvalid, store.MaxOverridden)
	}
	size := len(list) - len(o.list)
	for _, other := range s.overrides {
		size += len(other.list)
	}
	if size > maxOverrideBytes && len(list) > len(o.list) {
		return 0, fmt.Errorf("%w: overrides: want at most %d bytes in all namespaces in memory", store.ErrInvalid, maxOverrideBytes)
	}
	o = overrides{list: bytes.Clone(list), version: store.NextVersion(from, s.now())}
	s.overrides[namespace] = o
	noteChange(s, overridesKey(namespace))
	return o.version, nil
}

const (
	// maxOverrideBytes bounds the lists of all namespaces.
	maxOverrideBytes = store.MaxOverridden << 20
	// maxNotes bounds the notes of all namespaces on a topic.
	maxNotes = 1 << 16
	// maxReportBytes bounds the memory of all reports, maxTellerBytes that of all senders of usage, and
	// maxLogBytes that of each other log.
	maxReportBytes = 64 << 20
	maxTellerBytes = 64 << 20
	maxLogBytes    = 16 << 20
	// rowBytes bounds the memory of such a note besides its own bytes.
	rowBytes = 512
)

// notes has the notes on a topic.
type notes = fair[[]byte]

func newNotes() (all [store.Topics]*notes) {
	for topic := range all {
		all[topic] = newFair[[]byte](maxNotes)
		if store.Topic(topic).Terms().Log {
			all[topic].most = maxLogBytes
		}
	}
	all[store.Reports].most, all[store.Tellers].most = maxReportBytes, maxTellerBytes
	return all
}

// sizeOf returns how much of its topic's bound a note takes: only reports and logs have
// bodies of any size.
func sizeOf(topic store.Topic, note store.Note) int {
	if topic == store.Reports || topic.Terms().Log {
		return len(note.Body) + rowBytes
	}
	return 1
}

// Note implements [store.Store].
func (s *Store) Note(ctx context.Context, topic store.Topic, namespace string, note store.Note) (nodes uint64, err error) {
	if err := cmp.Or(store.CheckNote(topic, namespace, note), ctx.Err()); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all, terms, now := s.notes[topic], topic.Terms(), uint64(s.now().UnixNano())
	all.sweepAll(now)
	key, life := owned{namespace, note.Member}, terms.Newcomer
	before := all.rows[key]
	if before != nil {
		life = terms.Life
	}
	if terms.Log && before == nil && all.count(namespace) >= terms.Most {
		all.remove(all.shares.Of(namespace).Of.Front().Value.(*fairRow[[]byte]))
	}
	if !note.Asks && (before != nil || all.count(namespace) < terms.Most) {
		if before != nil {
			all.remove(before) // its size may change
		}
		before = all.put(key, now, now+uint64(life), sizeOf(topic, note))
		before.value.of = bytes.Clone(note.Body)
		switch {
		case topic == store.Nodes:
			noteChange(s, nodeKey(key))
		case terms.Log:
			noteChange(s, logKey{key, topic})
		}
	}
	if nodes = uint64(all.count(namespace)); before == nil {
		nodes++
	}
	return nodes, nil
}

// Notes implements [store.Store].
func (s *Store) Notes(ctx context.Context, topic store.Topic, namespace string) (found []store.Note, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.notes[topic]
	all.sweepAll(uint64(s.now().UnixNano()))
	all.each(namespace, func(row *fairRow[[]byte]) {
		found = append(found, store.Note{Member: row.key.id, Body: row.value.of})
	})
	return found, nil
}
