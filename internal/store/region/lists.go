package region

import (
	"context"
	"errors"
	"slices"

	"weir/internal/store"
	"weir/internal/wire"
)

// list is the region's copy of a namespace's overrides, which the parent has.
type list struct {
	bytes   []byte
	version uint64
	known   bool
	asking  bool
	idle    int           // ticks since a node last asked
	asked   chan struct{} // closed when the request to the parent ends, even if it failed
}

// errUnlisted means that the parent has not sent its overrides.
var errUnlisted = errors.New("the parent's overrides are not known")

// Overrides implements [store.Documents]. It returns the parent's list as of the last tick.
func (s *Store) Overrides(ctx context.Context, namespace string, known uint64) (bytes []byte, version uint64, err error) {
	s.mu.Lock()
	l := s.lists[namespace]
	if l == nil {
		if len(s.lists) >= store.MaxOverridden {
			s.mu.Unlock()
			return nil, 0, errors.New("too many namespaces have overrides")
		}
		l = &list{}
		s.lists[namespace] = l
	}
	l.idle = 0
	if !l.known {
		s.refresh(namespace, l)
		away, asked := !s.away.IsZero(), l.asked
		s.mu.Unlock()
		if away || asked == nil { // asked is nil if the region is leaving
			return nil, 0, errUnlisted
		}
		select {
		case <-asked:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if !l.known {
		return nil, 0, errUnlisted
	}
	if l.version == known {
		return nil, known, nil
	}
	return l.bytes, l.version, nil
}

// SetOverrides implements [store.Documents].
func (s *Store) SetOverrides(context.Context, string, uint64, []byte) (uint64, error) {
	return 0, errAtParent
}

// refresh asks the parent for a list, unless a request is on its way or no node has asked for the
// list for long. The caller holds the lock.
func (s *Store) refresh(namespace string, l *list) {
	if l.idle++; l.idle > lingering && !l.asking {
		delete(s.lists, namespace)
	}
	if l.asking || l.idle > lingering || s.leaving {
		return
	}
	l.asking, l.asked = true, make(chan struct{})
	had, known := l.bytes, l.version
	s.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(s.ended, attemptTimeout)
		defer cancel()
		bytes, version, err := s.fetch(ctx, namespace, had, known)
		s.mu.Lock()
		defer s.mu.Unlock()
		l.asking = false
		close(l.asked)
		if err == nil { // else the next tick asks again
			l.bytes, l.version, l.known = bytes, version, true
		}
	})
}

// fetch reads the parent's list in parts, unless its version is known. It also reports to the
// parent, as a single node, which version the region's nodes have.
func (s *Store) fetch(ctx context.Context, namespace string, had []byte, known uint64) (bytes []byte, version uint64, err error) {
	applied, err := store.ReadApplied(ctx, s, namespace)
	if err != nil {
		return nil, 0, err
	}
	p := wire.Push{Namespace: namespace, Sender: s.fixer.id, Sequence: 1, Floor: 1, Node: s.node}
	p.Known = wire.Known{Asks: true, Version: known} // the parent does not send a list of this version
	for _, node := range applied {
		p.Known.Version = min(p.Known.Version, node.Version)
		p.Known.Unfit += node.Unfit
	}
	p.Known.Of, p.Known.From = known, wire.HasAll
	for bytes, version = had, known; ; p.Known.Of, p.Known.From = version, uint64(len(bytes)) {
		answer, err := s.whole(ctx, wire.AppendPush(nil, &p), 0, 0)
		if err != nil {
			return nil, 0, err
		}
		o := &answer.Overrides
		if !o.Known { // the parent is still reading its list
			if !pause(ctx, lookAgain) {
				return nil, 0, errUnlisted
			}
			continue
		}
		size := uint64(len(had))
		switch {
		case o.Of == known && known != 0 && o.From <= size && o.Keep <= size-o.From:
			return slices.Concat(had[:o.From], o.Part, had[size-o.Keep:]), o.Version, nil
		case o.Of != 0, o.Version != version && o.From > 0:
			return nil, 0, errUnlisted // another list came meanwhile: the next tick asks for it
		}
		if o.Version != version || o.From == 0 && len(o.Part) > 0 {
			bytes, version = nil, o.Version
		}
		bytes = append(bytes[:len(bytes):len(bytes)], o.Part...)
		if len(o.Part) == 0 || uint64(len(bytes)) >= o.Size {
			return bytes, version, nil
		}
	}
}
