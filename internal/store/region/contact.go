package region

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// run tells the parent what has changed, and asks it for what is wanted, until the region ends.
func (s *Store) run() {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-s.ended.Done():
			return
		case <-ticker.C:
			s.tick()
		case <-s.wake:
			if s.Away() {
				continue // what is under way tells when the parent is back, or the next tick tries
			}
		}
		s.contact()
	}
}

// tick has all funds be due that have something to tell, to hear or to give back, and forgets those that
// nobody asks for.
func (s *Store) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	namespaces := map[string]bool{}
	for of, f := range s.funds {
		namespaces[of.namespace] = true
		f.wanted = max(2*f.given, f.wanted/2)
		if f.held > 0 || f.given > 0 {
			f.wanted = max(f.wanted, f.standing)
		}
		if f.idle++; f.idle > lingering || f.standing == 0 {
			f.wanted = 0
		}
		f.given = 0
		switch {
		case f.dirty || f.held > 2*f.wanted:
			f.due, f.dirty = true, true
			s.due[f] = struct{}{}
		case f.idle > lingering && f.held == 0 && !f.busy && !f.due && f.reserved == 0:
			delete(s.funds, of)
		}
	}
	for namespace, l := range s.lists {
		s.refresh(namespace, l)
	}
	maps.DeleteFunc(s.senders, func(namespace string, from *sender) bool { return len(from.flying) == 0 && !namespaces[namespace] })
	now := uint64(s.Now().UnixNano())
	maps.DeleteFunc(s.alone, func(_ string, e excess) bool { return e.untilNanos <= now })
}

// batch is a push to the parent, with the funds that it is of.
type batch struct {
	message  []byte
	push     wire.Push
	funds    []*fund
	answered []chan struct{}
}

// contact sends pushes with the funds that are due, and not under way already.
func (s *Store) contact() {
	s.mu.Lock()
	by := map[string][]*fund{}
	for f := range s.due {
		if !f.busy {
			by[f.key.namespace] = append(by[f.key.namespace], f)
		}
	}
	s.mu.Unlock()
	for namespace, funds := range by {
		for len(funds) > 0 {
			n := min(len(funds), maxBatch)
			b := s.gather(namespace, funds[:n])
			if b == nil {
				break
			}
			funds = funds[n:]
			s.tasks.Go(func() { s.send(b) })
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave()
}

// gather makes a push of funds. It is nil while maxFlying pushes are under way.
func (s *Store) gather(namespace string, funds []*fund) (b *batch) {
	s.Look(namespace, func(c store.Calendar, contents func(wire.LimitCounter) *store.Contents) {
		s.mu.Lock()
		defer s.mu.Unlock()
		from := s.sender(namespace)
		if len(from.flying) >= maxFlying {
			return
		}
		b = &batch{push: wire.Push{Namespace: namespace, Sender: from.id, Node: s.node}}
		var leases []wire.Take
		for _, f := range funds {
			if is := s.funds[f.key]; is == nil {
				s.funds[f.key] = f // makeRoom has forgotten it meanwhile
			} else if is != f {
				delete(s.due, f)
				continue // two pushes of one counter would tell the same hits
			}
			own := contents(f.key.of)
			whole, mine := f.difference(c, own, s.leaving)
			b.push.Items = append(b.push.Items, whole, mine)
			f.held = f.free(c, own)
			var answered chan struct{}
			// The parent first has to hear of hits that it may not have: or it would grant the same again.
			if f.known || len(own.Windows) == 0 {
				if f.need > 0 {
					b.push.Takes = append(b.push.Takes, f.take(f.need, false))
				}
				if f.wanted > f.held && !s.leaving && f.limit > 0 {
					leases = append(leases, f.take(f.wanted-f.held, true))
				}
				f.need, f.answered, answered = 0, nil, f.answered
			}
			f.busy, f.dirty, f.due = true, false, false
			delete(s.due, f)
			b.funds, b.answered = append(b.funds, f), append(b.answered, answered)
		}
		// Needs come first: somebody waits for these.
		b.push.Takes = append(b.push.Takes, leases...)
		b.push.Sequence, b.push.Floor = from.next()
		from.flying[b.push.Sequence] = struct{}{}
	})
	if b != nil {
		b.message = wire.AppendPush(nil, &b.push)
	}
	return b
}

func (s *Store) sender(namespace string) *sender {
	from := s.senders[namespace]
	if from == nil {
		from = &sender{id: rand.Uint64(), flying: map[uint64]struct{}{}}
		s.senders[namespace] = from
	}
	return from
}

// take asks the parent for hits of the key, which it counts for this region, too.
func (f *fund) take(hits uint64, lease bool) wire.Take {
	whole := wire.Room{LimitCounter: f.key.of, Limit: f.limit, Burst: f.burst, Cost: 1}
	mine := wire.Room{LimitCounter: f.mine, Limit: wire.MaxHits, Cost: 1}
	if window.Kind(f.key.of.Kind).Refills() {
		mine.Limit, mine.Burst = f.limit, wire.MaxHits
	}
	return wire.Take{Least: 1, Most: min(hits, wire.MaxHits), Lease: lease, Rooms: []wire.Room{whole, mine}}
}

// send sends a push until the parent answers, or the region ends.
func (s *Store) send(b *batch) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		ctx, cancel := context.WithTimeout(s.ended, attemptTimeout)
		answer, err := s.attempt(ctx, b.message, len(b.push.Items), len(b.push.Takes))
		cancel()
		if err == nil {
			s.answered(b, answer)
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-s.ended.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// attempt sends a push once, and notes whether the parent has answered, and its time.
func (s *Store) attempt(ctx context.Context, message []byte, items, takes int) (*wire.Answer, error) {
	sent := s.o.Now()
	body, err := s.o.Parent.Push(ctx, message)
	var answer *wire.Answer
	if err == nil {
		answer, err = wire.DecodeAnswer(body)
	}
	if err == nil && (len(answer.Totals) != items || len(answer.Grants) != takes) {
		err = fmt.Errorf("the parent's answer: want %d totals and %d grants, got %d and %d", items, takes, len(answer.Totals), len(answer.Grants))
	}
	if err == nil && len(answer.Missing) > 0 {
		err = errors.New("the parent lacks a part of its counters")
	}
	s.heard(err)
	if err != nil {
		return nil, err
	}
	s.setClock(sent, s.o.Now(), answer.NowNanos)
	return answer, nil
}

// setClock corrects the region's clock if it is off by more than the way of an answer explains.
func (s *Store) setClock(sent, came time.Time, parentNanos uint64) {
	half := came.Sub(sent) / 2
	if half < 0 {
		return // the machine's clock was set back meanwhile
	}
	offset := time.Unix(0, int64(parentNanos)).Sub(sent.Add(half))
	if known := time.Duration(s.offset.Load()); offset-known > half || known-offset > half {
		s.offset.Store(int64(offset))
	}
}

// heard notes whether the parent answers.
func (s *Store) heard(err error) {
	if err != nil && s.ended.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && !s.away.IsZero():
		s.o.Logger.Info("the parent is back", "after", s.o.Now().Sub(s.away))
		s.away, s.told = time.Time{}, ""
		s.awake()
	case err != nil:
		if s.away.IsZero() {
			s.away = s.o.Now()
		}
		if s.told != err.Error() {
			s.told = err.Error()
			s.o.Logger.Warn("the parent does not answer", "error", err, "on_parent_failure", s.o.Policy.String())
		}
	}
}

// answered takes over what the parent has answered.
func (s *Store) answered(b *batch, answer *wire.Answer) {
	var emptied []wire.Item
	s.mu.Lock()
	delete(s.senders[b.push.Namespace].flying, b.push.Sequence)
	for i, f := range b.funds {
		f.whole = contents(&b.push.Items[2*i], &answer.Totals[2*i])
		granted := contents(&b.push.Items[2*i+1], &answer.Totals[2*i+1])
		f.held += uint64(max(0, sum(&granted)-sum(&f.granted))) // at most: the next look says
		f.granted = granted
		first := !f.known
		f.known, f.busy = true, false
		emptied = append(emptied, f.emptied()...)
		if first || f.due || f.answered != nil || s.leaving && f.dirty {
			s.hasten(f)
		}
	}
	most := s.reckon(answer.Nodes)
	s.awake() // others may have waited for a push to end
	s.mu.Unlock()
	s.fix(b.push.Namespace, emptied, most)
	for _, answered := range b.answered {
		if answered != nil {
			close(answered)
		}
	}
}

// reckon notes how many nodes the parent has. It returns their number if it is the greatest so far, else
// 0. The lock is held.
func (s *Store) reckon(nodes uint64) (most uint64) {
	now := s.o.Now()
	switch {
	case nodes > s.most:
		s.most, s.mostAt = nodes, now
		return nodes
	case nodes == s.most || now.Sub(s.mostAt) > mostFor:
		s.most, s.mostAt = nodes, now
	}
	return 0
}

// emptied returns items that take from the own store the hits that somebody has taken from the parent's
// counter, by weir counter reset: the parent counts less of the key than it has granted to this region.
func (f *fund) emptied() (items []wire.Item) {
	if window.Kind(f.key.of.Kind).Refills() {
		return nil // tokens of an emptied bucket are back
	}
	for _, w := range f.granted.Windows {
		if gone := w.Hits - f.backed(w.Number); gone > 0 {
			items = append(items, wire.Item{LimitCounter: f.key.of, Newest: w.Number, Hits: []int64{-gone}})
			f.dirty = true
		}
	}
	return items
}

// fix changes the own store, and keeps how many nodes the parent has, if that is not 0. A store that can't
// be written is told of by those that push.
func (s *Store) fix(namespace string, items []wire.Item, most uint64) {
	if len(items) == 0 && most == 0 {
		return
	}
	s.fixing.Lock()
	defer s.fixing.Unlock()
	ctx, cancel := context.WithTimeout(s.ended, attemptTimeout)
	defer cancel()
	var err error
	if most > 0 {
		s.mu.Lock()
		most = s.most // another answer may have come meanwhile
		s.mu.Unlock()
		err = s.keep(ctx, most)
	}
	if len(items) > 0 {
		p := &wire.Push{Namespace: namespace, Sender: s.fixer.id, Items: items}
		p.Sequence, p.Floor = s.fixer.next()
		_, errPush := s.Own.Push(ctx, p, 1)
		err = errors.Join(err, errPush)
	}
	if err != nil {
		s.o.Logger.Warn("the region's own store has not taken a correction", "error", err)
	}
}

// leave ends a region that is leaving, once nothing is due or under way. The lock is held.
func (s *Store) leave() {
	if !s.leaving || len(s.due) > 0 {
		return
	}
	for _, from := range s.senders {
		if len(from.flying) > 0 {
			return
		}
	}
	select {
	case <-s.left:
	default:
		close(s.left)
	}
}
