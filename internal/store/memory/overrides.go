package memory

import (
	"bytes"
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
		return 0, fmt.Errorf("%w: overrides: want at most %d namespaces with overrides in memory", store.ErrInvalid, store.MaxOverridden)
	}
	o = overrides{list: bytes.Clone(list), version: store.NextVersion(from, s.now())}
	s.overrides[namespace] = o
	noteChange(s, overridesKey(namespace))
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
	s.told.sweepAll(now)
	key := owned{namespace, told.Node}
	if s.told.rows[key] == nil && s.told.count(namespace) >= store.MaxNodes {
		return nil
	}
	s.told.put(key, now, now+uint64(store.HeardLife), 1).value.of = told
	return nil
}

// Told implements [store.Store].
func (s *Store) Told(ctx context.Context, namespace string) (all []store.Told, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told.sweepAll(uint64(s.now().UnixNano()))
	return s.told.all(namespace), nil
}
