package memory

import (
	"bytes"
	"context"
	"fmt"

	"weir/internal/store"
)

// overrides are those of one namespace.
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
	if err := store.CheckOverrides(namespace, list); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, known := s.overrides[namespace]
	switch {
	case o.version != from:
		return 0, store.ErrChanged
	case !known && len(s.overrides) >= store.MaxOverridden:
		return 0, fmt.Errorf("%w: overrides: want them of at most %d namespaces in memory", store.ErrInvalid, store.MaxOverridden)
	}
	o = overrides{list: bytes.Clone(list), version: store.NextVersion(from, s.now())}
	s.overrides[namespace] = o
	return o.version, nil
}

// Heard implements [store.Store].
func (s *Store) Heard(ctx context.Context, namespace string, told store.Told) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := uint64(s.now().UnixNano())
	s.sweepTold(now)
	key := nodeKey{namespace, told.Node}
	if s.told.rows[key] == nil {
		if s.telling[namespace] >= store.MaxNodes {
			return nil
		}
		if len(s.told.queue) >= s.told.max {
			s.forgetTold()
		}
		s.telling[namespace]++
	}
	s.told.add(key, now, now+uint64(store.HeardLife)).value = told
	return nil
}

// Told implements [store.Store].
func (s *Store) Told(ctx context.Context, namespace string) (all []store.Told, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepTold(uint64(s.now().UnixNano()))
	for key, row := range s.told.rows {
		if key.namespace == namespace {
			all = append(all, row.value)
		}
	}
	return all, nil
}

func (s *Store) sweepTold(now uint64) {
	for len(s.told.queue) > 0 && s.told.queue[0].expires <= now {
		s.forgetTold()
	}
}

// forgetTold forgets what is to be forgotten first.
func (s *Store) forgetTold() {
	namespace := s.told.queue[0].key.namespace
	s.told.removeFirst()
	if s.telling[namespace]--; s.telling[namespace] == 0 {
		delete(s.telling, namespace)
	}
}
