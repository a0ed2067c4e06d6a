package region

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// identityNamespace is where the own store keeps what a region is, in place of a list of overrides, and the
// parent the counters by which copies of a region's file are told apart.
const (
	identityNamespace = "weir.region"
	identityBytes     = sha256.Size
	// leastRecord is the size of a record without bounds, and maxBounds how many bounds it has at most.
	leastRecord = identityBytes + 3*8
	maxBounds   = 4096
	// lookTicks is after how many ticks a region looks whether a copy of its file has begun.
	lookTicks = 10
)

// ErrCopied is the error of a region whose file is a copy of another's, or was copied: both would take all
// hits that the parent has granted to them for their own.
var ErrCopied = errors.New("a copy of this region's file is in use, or was: start the region with a new file, as the parent counts its hits")

// record has all that a region keeps of itself in its own store.
type record struct {
	// identity is the region's at the parent.
	identity []byte
	// most is the greatest number of nodes that the parent had in a day.
	most uint64
	// incarnation is a number of the process, known to the parent. successor is the number of the next process,
	// from its start until the parent knows it; else 0. An incarnation has a single successor: a copy of the file
	// would have a second.
	incarnation, successor uint64
	// bounds are by namespace what may pass above its limits.
	bounds map[string]excess
}

// encode returns the record's bytes.
func (r *record) encode() (dst []byte) {
	dst = append(dst, r.identity...)
	for _, n := range []uint64{r.most, r.incarnation, r.successor} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	for namespace, e := range r.bounds {
		dst = append(append(dst, byte(len(namespace))), namespace...)
		dst = binary.LittleEndian.AppendUint64(dst, e.hits)
		dst = binary.LittleEndian.AppendUint64(dst, e.untilNanos)
	}
	return dst
}

var errRecord = errors.New("the record of it is damaged")

// parseRecord reads what encode has written.
func parseRecord(kept []byte) (r record, err error) {
	if len(kept) < leastRecord {
		return r, errRecord
	}
	next := func(n int) (part []byte) {
		part, kept = kept[:n:n], kept[n:]
		return part
	}
	number := func() uint64 { return binary.LittleEndian.Uint64(next(8)) }
	r.identity = bytes.Clone(next(identityBytes))
	r.most, r.incarnation, r.successor = number(), number(), number()
	r.bounds = map[string]excess{}
	for len(kept) > 0 {
		size := int(next(1)[0])
		if len(kept) < size+16 {
			return r, errRecord
		}
		namespace := string(next(size))
		r.bounds[namespace] = excess{hits: number(), untilNanos: number()}
	}
	return r, nil
}

// be reads what the own store keeps of the region, or makes a region that is new.
func (s *Store) be(ctx context.Context) error {
	kept, version, err := s.Own.Overrides(ctx, identityNamespace, 0)
	if err != nil {
		return err
	}
	s.version = version
	if len(kept) == 0 {
		s.record = record{incarnation: rand.Uint64(), bounds: map[string]excess{}}
		for len(s.record.identity) < identityBytes {
			s.record.identity = binary.LittleEndian.AppendUint64(s.record.identity, rand.Uint64())
		}
		s.claimed = true
	} else if s.record, err = parseRecord(kept); err != nil {
		return err
	} else if s.record.successor == 0 {
		s.record.successor = max(1, rand.Uint64())
	}
	s.alone = maps.Clone(s.record.bounds)
	s.node = binary.LittleEndian.Uint64(s.record.identity) | 1
	_, s.onDisk = s.Own.(store.OnDisk)
	return s.keep(ctx, s.record)
}

// keep writes down what the region is from now on. Only Start and the holder of fixing call it.
func (s *Store) keep(ctx context.Context, r record) error {
	kept := r.encode()
	version, err := s.Own.SetOverrides(ctx, identityNamespace, s.version, kept)
	if errors.Is(err, store.ErrChanged) { // by a call that was not waited for
		if _, s.version, err = s.Own.Overrides(ctx, identityNamespace, 0); err == nil {
			version, err = s.Own.SetOverrides(ctx, identityNamespace, s.version, kept)
		}
	}
	if err != nil {
		return err
	}
	s.version = version
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record = r
	return nil
}

// counterOf is a counter at the parent that says something of this region's incarnations.
func (s *Store) counterOf(incarnations ...uint64) wire.LimitCounter {
	named := append([]byte("incarnation"), s.record.identity...)
	for _, n := range incarnations {
		named = binary.LittleEndian.AppendUint64(named, n)
	}
	of := wire.LimitCounter{Kind: uint8(window.FixedWindow), WidthMillis: wire.MaxWidthMillis}
	sum := sha256.Sum256(named)
	copy(of.ID[:], sum[:])
	return of
}

// claim has the parent note that this process goes on with its store. It is nil if the parent has, or does not
// let the region ask. The error is [ErrCopied] if another process did so before. Start and run call it, in turn.
func (s *Store) claim(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	s.mu.Lock()
	succeeded, by := s.counterOf(s.record.incarnation), s.counterOf(s.record.incarnation, s.record.successor)
	s.mu.Unlock()
	p := &wire.Push{
		Namespace: identityNamespace, Sender: rand.Uint64(), Sequence: 1, Floor: 1,
		Takes: []wire.Take{{Least: 1, Most: 1, Rooms: []wire.Room{{LimitCounter: succeeded, Limit: 1, Cost: 1}, {LimitCounter: by, Limit: wire.MaxHits, Cost: 1}}}},
	}
	// Nothing is locked meanwhile: pushes of nodes would wait.
	answer, err := s.whole(ctx, wire.AppendPush(nil, p), 0, 1)
	switch {
	case errors.Is(err, ErrRefused):
		s.o.Logger.Warn("copies of the region's file can't be told apart", "error", err)
	case err != nil:
		return err
	case len(answer.Grants[0].Totals) != 2:
		return fmt.Errorf("the parent's answer: want totals of 2 rooms, got %d", len(answer.Grants[0].Totals))
	// This process may have asked before, and not heard.
	case answer.Grants[0].Units == 0 && !slices.ContainsFunc(answer.Grants[0].Totals[1].Hits, func(n uint64) bool { return n > 0 }):
		return ErrCopied
	default:
		s.fixing.Lock()
		defer s.fixing.Unlock()
		r := s.record
		r.incarnation, r.successor = r.successor, 0
		if err := s.keep(ctx, r); err != nil {
			return fmt.Errorf("the region's own store: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed = true
	return nil
}

// oust ends a region that is not alone with its identity.
func (s *Store) oust() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ousted == nil {
		s.ousted = ErrCopied
		s.o.Logger.Error("the region stops answering", "error", ErrCopied)
	}
}

// usable is why the region answers nobody, nil if it does.
func (s *Store) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ousted
}

// foresee keeps the bound of what a push can have pass that the parent has not granted, before it does: so that
// no kill has it forgotten.
func (s *Store) foresee(ctx context.Context, p *wire.Push, a *asking) {
	if len(a.alone) == 0 || s.o.Policy == Deny {
		return
	}
	if _, lacks := s.foreseen(p, a); !lacks {
		return
	}
	s.fixing.Lock()
	defer s.fixing.Unlock()
	r, lacks := s.foreseen(p, a)
	if !lacks {
		return // another push had the same
	}
	if err := s.keep(ctx, r); err != nil && ctx.Err() == nil { // else the own store takes no push, either
		s.o.Logger.Warn("a restart would forget the bound of what passes above limits", "error", err)
	}
}

// foreseen is the record with the bound of a push's namespace. lacks says that what is kept has less.
func (s *Store) foreseen(p *wire.Push, a *asking) (r record, lacks bool) {
	const soon = 5e9 // the own store decides within that
	s.mu.Lock()
	defer s.mu.Unlock()
	now := uint64(s.Now().UnixNano())
	r = s.record
	r.bounds = maps.Clone(r.bounds)
	maps.DeleteFunc(r.bounds, func(_ string, e excess) bool { return e.untilNanos <= now })
	for i := range p.Takes {
		for j := range p.Takes[i].Rooms {
			room := &p.Takes[i].Rooms[j]
			f := s.funds[key{p.Namespace, room.LimitCounter}]
			if room.Cost == 0 || !a.alone[f] {
				continue
			}
			kept, want := r.bounds[p.Namespace], s.exceeding(now+soon, room)
			if want.hits <= kept.hits && want.untilNanos <= kept.untilNanos {
				continue
			}
			// Longer than need be: the next push soon is of the same bound.
			want.untilNanos += max(room.WidthMillis*1e6/4, 10e9)
			r.bounds[p.Namespace], lacks = larger(kept, want), true
		}
	}
	return r, lacks && (len(r.bounds) <= maxBounds)
}

// larger is an excess that covers both.
func larger(a, b excess) excess {
	return excess{hits: max(a.hits, b.hits), untilNanos: max(a.untilNanos, b.untilNanos)}
}
