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

// identityNamespace is where the own store keeps the region's record, in place of a list of
// overrides. At the parent it has the counters that tell copies of a region's file apart.
const (
	identityNamespace = "weir.region"
	identityBytes     = sha256.Size
	// leastRecord is the size of a record without bounds, and maxBounds the most bounds in a
	// record.
	leastRecord = identityBytes + 3*8
	maxBounds   = 4096
	// lookTicks is the number of ticks between checks for a process with a copy of the file.
	lookTicks = 10
)

// ErrCopied is the error of a region whose file is or was in use as a copy elsewhere. Both regions
// would claim all hits that the parent has granted.
var ErrCopied = errors.New("a copy of this region's file is or was in use: start the region with a new file; the parent has counted its hits")

// record is the region's state in its own store.
type record struct {
	// identity names the region at the parent.
	identity []byte
	// most is the greatest number of nodes that the parent had in a day.
	most uint64
	// incarnation is a number of the process that the parent knows. successor is the number of the
	// next process from its start until the parent knows it, else 0. An incarnation has a single
	// successor: a copy of the file would have a second.
	incarnation, successor uint64
	// bounds limit, by namespace, the hits that may pass above a limit.
	bounds map[string]excess
}

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

var errRecord = errors.New("its record is damaged")

// parseRecord is the inverse of encode.
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

// be reads the region's record from its own store, or makes a new region.
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
	} else if s.inherits = s.record.successor != 0; !s.inherits {
		s.record.successor = max(1, rand.Uint64())
	}
	s.alone = maps.Clone(s.record.bounds)
	s.node = binary.LittleEndian.Uint64(s.record.identity) | 1
	_, s.onDisk = s.Own.(store.OnDisk)
	return s.keep(ctx, s.record)
}

// keep writes the record to the own store. Only Start and the holder of fixing call it.
func (s *Store) keep(ctx context.Context, r record) error {
	kept := r.encode()
	version, err := s.Own.SetOverrides(ctx, identityNamespace, s.version, kept)
	if errors.Is(err, store.ErrChanged) { // an earlier call timed out, but has written
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

// counterOf returns the counter at the parent for some of this region's incarnations.
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

// claim records at the parent that this process continues with its store. It returns nil if it
// succeeded, or if the parent refuses such a push. The error is [ErrCopied] if another process
// claimed first, and errPartly if the parent lacks the counters that tell. Start and run call it, never at once.
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
	// Hold no lock meanwhile: pushes of nodes would wait.
	answer, err := s.whole(ctx, wire.AppendPush(nil, p), 0, 1)
	switch {
	case errors.Is(err, ErrRefused):
		s.o.Logger.Warn("copies of the region's file can't be told apart", "error", err)
	case errors.Is(err, errPartly): // keys in other partitions need not wait
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.claimsAt == 0 {
			s.o.Logger.Warn("copies of the region's file can't be told apart for now", "error", err)
		}
		s.claimsAt = s.ticks + lookTicks
		return err
	case err != nil:
		return err
	case len(answer.Grants[0].Totals) != 2:
		return fmt.Errorf("the parent's answer: want totals of 2 rooms, got %d", len(answer.Grants[0].Totals))
	// This process may have claimed before without getting the answer.
	case answer.Grants[0].Units == 0 && !slices.ContainsFunc(answer.Grants[0].Totals[1].Hits, func(n uint64) bool { return n > 0 }):
		return ErrCopied
	default:
		if err := s.succeed(ctx); err != nil {
			return fmt.Errorf("the region's own store: %w", err)
		}
		if s.inherits {
			s.inherits = false
			return s.claim(ctx)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claimed = true; err == nil && s.claimsAt != 0 {
		s.o.Logger.Info("copies of the region's file are told apart again")
	}
	return nil
}

// succeed records that the parent knows the successor. If this process has its number from an earlier one, a copy of the
// file may have it, too: so this process is to be the next.
func (s *Store) succeed(ctx context.Context) error {
	s.fixing.Lock()
	defer s.fixing.Unlock()
	r := s.record
	if r.incarnation, r.successor = r.successor, 0; s.inherits {
		r.successor = max(1, rand.Uint64())
	}
	return s.keep(ctx, r)
}

// oust stops a region whose identity another process uses.
func (s *Store) oust() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ousted == nil {
		s.ousted = ErrCopied
		s.o.Logger.Error("the region stops answering", "error", ErrCopied)
	}
}

// usable returns why the region answers no push; nil if it does.
func (s *Store) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ousted
}

// foresee records the bound of the hits that a push may pass without the parent's grant. It does so
// before they pass, so a kill can't lose the bound.
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
		return // another push has recorded it
	}
	if err := s.keep(ctx, r); err != nil && ctx.Err() == nil { // if ctx ended, the own store refuses the push too
		s.o.Logger.Warn("a restart would forget the bound of the hits that pass above limits", "error", err)
	}
}

// foreseen returns the record with the bound for a push. lacks reports that the recorded bounds are
// too small.
func (s *Store) foreseen(p *wire.Push, a *asking) (r record, lacks bool) {
	const soon = 5e9 // nanoseconds within which the own store decides
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
			// Longer than necessary, so the next pushes need no new record.
			want.untilNanos += max(room.WidthMillis*1e6/4, 10e9)
			r.bounds[p.Namespace], lacks = larger(kept, want), true
		}
	}
	return r, lacks && (len(r.bounds) <= maxBounds)
}

// larger returns an excess that covers both.
func larger(a, b excess) excess {
	return excess{hits: max(a.hits, b.hits), untilNanos: max(a.untilNanos, b.untilNanos)}
}
