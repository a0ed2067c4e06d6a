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

// run pushes changes to the parent and asks for hits until the region ends.
func (s *Store) run() {
	ticks := time.Tick(s.ticking)
	for {
		select {
		case <-s.ended.Done():
			return
		case <-ticks:
			s.tick()
		case <-s.wake:
			if s.Away() {
				continue // a push in flight will notice that the parent is back, or the next tick tries
			}
		}
		s.contact()
	}
}

// tick makes all funds due that have changes to push or hits to give back, and forgets funds that
// no node asks for.
func (s *Store) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := store.Calendar{NowNanos: uint64(s.Now().UnixNano())}
	namespaces, seen := map[string]bool{}, 0
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
		// A region replaces hits that have lapsed, but only once for each time that nodes have asked.
		lapsed := f.asked && f.known && f.stillHeld(c) < f.wanted/2
		switch {
		case f.dirty || f.held > 2*f.wanted || lapsed:
			s.makeDue(f)
			f.asked = f.asked && !lapsed
		case f.idle > lingering && f.held == 0 && !f.busy && !f.due && f.reserved == 0:
			delete(s.funds, of)
		}
		if seen++; seen%together == 0 { // a million funds take longer than nodes wait
			s.mu.Unlock()
			s.mu.Lock()
		}
	}
	for namespace, l := range s.lists {
		s.refresh(namespace, l)
	}
	s.ping()
	maps.DeleteFunc(s.senders, func(namespace string, from *sender) bool { return len(from.flying) == 0 && !namespaces[namespace] })
	maps.DeleteFunc(s.alone, func(_ string, e excess) bool { return e.untilNanos <= c.NowNanos })
}

// batch is a push to the parent, with its funds: nil after the parent has answered them. Items 2i
// and 2i+1 belong to fund i.
type batch struct {
	message  []byte
	push     wire.Push
	funds    []*fund
	answered []chan struct{}
	// partly means that the parent's answer was incomplete, and lacks are the partitions that it lacked. The
	// store's lock guards both.
	partly bool
	lacks  wire.PartitionSet
}

// lacking returns the counters that an answer has only in part, and the partitions of the items that it lacks. A
// take may also be missing because of others in the push.
func (b *batch) lacking(answer *wire.Answer) (lacks map[wire.LimitCounter]bool, of wire.PartitionSet) {
	lacks = map[wire.LimitCounter]bool{}
	for i, m := range answer.Missing {
		if items := len(b.push.Items); m != wire.Answered && i < items {
			lacks[b.push.Items[i&^1].LimitCounter] = true
			of |= wire.PartitionOf(b.push.Items[i].ID)
		} else if m != wire.Answered {
			lacks[b.push.Takes[i-items].Rooms[0].LimitCounter] = true
		}
	}
	return lacks, of
}

// known reports whether the region may push: the parent knows this process, or has lost the partition that would
// tell, and no other process is known to have the same identity.
func (s *Store) known() bool {
	s.mu.Lock()
	settled, ousted := s.claimed || s.ticks < s.claimsAt, s.ousted
	s.mu.Unlock()
	if settled || ousted != nil {
		return ousted == nil
	}
	err := s.claim(s.ended)
	if errors.Is(err, ErrCopied) {
		s.oust()
	}
	return err == nil || errors.Is(err, errPartly)
}

// contact pushes the funds that are due.
func (s *Store) contact() {
	if !s.known() {
		return
	}
	for namespace, funds := range s.next() {
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

// next returns funds that are due, by namespace: no more than pushes have room for.
func (s *Store) next() map[string][]*fund {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.due) == 0 {
		s.due = map[string]map[*fund]struct{}{} // an empty map that was large is slow to read
	}
	by, pushes := map[string][]*fund{}, 0
	for namespace, due := range s.due { // in no order, so that each gets its turn
		most := maxFlying * maxBatch
		if from := s.senders[namespace]; from != nil {
			most = from.room() * maxBatch
		}
		var funds []*fund
		for f := range due {
			if len(funds) >= most {
				break
			}
			if s.bars(f) {
				s.undue(f)
				continue
			}
			funds = append(funds, f)
		}
		if len(funds) == 0 {
			continue
		}
		by[namespace] = funds
		if pushes += (len(funds) + maxBatch - 1) / maxBatch; pushes >= maxPushes {
			break
		}
	}
	return by
}

// gather makes a push of funds. It returns nil if there is no room for another push.
func (s *Store) gather(namespace string, funds []*fund) (b *batch) {
	s.Look(namespace, func(c store.Calendar, contents func(wire.LimitCounter) *store.Contents) {
		s.mu.Lock()
		defer s.mu.Unlock()
		from := s.sender(namespace)
		if from.room() <= 0 || !s.pushes.Enter(namespace) {
			return
		}
		b = &batch{push: wire.Push{Namespace: namespace, Node: s.node}}
		var leases []wire.Take
		for _, f := range funds {
			if is := s.funds[f.key]; is == nil {
				s.funds[f.key] = f // makeRoom has forgotten it meanwhile
			} else if is != f {
				s.undue(f)
				continue // two pushes of one counter would both have its hits
			}
			own, returns := contents(f.key.of), len(f.back.Windows) > 0
			whole, mine := f.difference(c, own, s.leaving)
			b.push.Items = append(b.push.Items, whole, mine)
			f.held, f.heldAt = f.free(c, own), c.NowNanos
			var answered chan struct{}
			// The parent may lack hits of the region, and must get them first: else it would grant
			// the same hits again.
			if f.known && !returns || len(own.Windows) == 0 {
				if f.need > 0 {
					b.push.Takes = append(b.push.Takes, f.take(f.need, false))
				}
				if f.wanted > f.held && !s.leaving && f.limit > 0 {
					leases = append(leases, f.take(f.wanted-f.held, true))
				}
				f.need, f.answered, answered = 0, nil, f.answered
			}
			f.busy, f.dirty, f.due = true, returns, returns
			s.undue(f)
			b.funds, b.answered = append(b.funds, f), append(b.answered, answered)
		}
		// Needs come first, because nodes wait for them.
		b.push.Takes = append(b.push.Takes, leases...)
		b.push.Sequence, b.push.Floor = from.next()
		b.push.Sender = from.id
		from.flying[b.push.Sequence] = b
	})
	if b != nil {
		b.message = wire.AppendPush(nil, &b.push)
	}
	return b
}

func (s *Store) sender(namespace string) *sender {
	from := s.senders[namespace]
	if from == nil {
		from = &sender{id: rand.Uint64(), flying: map[uint64]*batch{}}
		s.senders[namespace] = from
	}
	return from
}

// take returns a take of a key's hits that the parent also counts for this region.
func (f *fund) take(hits uint64, lease bool) wire.Take {
	whole := wire.Room{LimitCounter: f.key.of, Limit: f.limit, Burst: f.burst, Cost: 1}
	// The same limit refuses nothing more, as the region has no more than all have. By a higher limit
	// its counter would seem unused, and a full store would forget it long before that of the key.
	mine := whole
	mine.LimitCounter = f.mine
	return wire.Take{Least: 1, Most: min(hits, wire.MaxHits), Lease: lease, Rooms: []wire.Room{whole, mine}}
}

// errPartly means that the parent's answer lacks parts of a push.
var errPartly = errors.New("the parent lacks a part of its counters")

// send sends a push until the parent has answered all of it, or has refused it, or the region ends. It sends the
// same push each time: another sequence for what an answer lacks would count hits twice that are only in doubt.
func (s *Store) send(b *batch) {
	place, arrived := &s.pushes, false
	leave := func() {
		if place != nil {
			place.Leave(b.push.Namespace)
		}
		place = nil
	}
	defer leave()
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		ctx, cancel := context.WithTimeout(s.ended, attemptTimeout)
		answer, err := s.attempt(ctx, b.message, len(b.push.Items), len(b.push.Takes))
		cancel()
		if err == nil && s.answered(b, answer) {
			return
		}
		switch {
		case err == nil && place == &s.pushes && s.partly.Enter(b.push.Namespace):
			leave()
			place, arrived = &s.partly, true
		case !errors.Is(err, ErrRefused):
			arrived = true // perhaps, so only an answer can tell
		case arrived:
			leave() // others need not wait for an answer that may never come
		case s.refused(b):
			return
		}
		if s.unanswered(b); !pause(s.ended, wait) {
			return
		}
	}
}

// refused takes back a push that the parent has refused, and lets its counters rest. It does nothing
// and returns false if the region is leaving.
func (s *Store) refused(b *batch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving {
		return false
	}
	delete(s.senders[b.push.Namespace].flying, b.push.Sequence)
	c := store.Calendar{NowNanos: uint64(s.Now().UnixNano())}
	for i, f := range b.funds {
		f.regain(c, &b.push.Items[2*i], &b.push.Items[2*i+1])
		f.refusals = min(f.refusals+1, longestRest)
		f.busy, f.dirty, f.unanswered, f.restsUntil = false, true, true, s.ticks+f.refusals
	}
	s.awake() // other funds may have waited for a push to end
	return true
}

// pause waits, and reports false if ctx ended meanwhile.
func pause(ctx context.Context, long time.Duration) bool {
	select {
	case <-time.After(long):
		return true
	case <-ctx.Done():
		return false
	}
}

// attempt sends a push once, records whether the parent answered, and corrects the clock. The
// answer may lack parts.
func (s *Store) attempt(ctx context.Context, message []byte, items, takes int) (*wire.Answer, error) {
	sent, before := s.o.Now(), s.answers.Load()
	s.asks.Add(1)
	body, err := s.o.Parent.Push(ctx, message)
	s.asks.Add(-1)
	var answer *wire.Answer
	if err == nil {
		answer, err = wire.DecodeAnswer(body)
	}
	if err == nil && (len(answer.Totals) != items || len(answer.Grants) != takes || len(answer.Missing) > 0 && len(answer.Missing) != items+takes) {
		err = fmt.Errorf("the parent's answer: want %d totals and %d grants, got %d and %d", items, takes, len(answer.Totals), len(answer.Grants))
	}
	if err != nil {
		s.unheard(before, err)
		return nil, err
	}
	var lacks error
	if answer.Missing != nil {
		lacks = errPartly
	}
	s.heard(lacks)
	s.setClock(sent, s.o.Now(), answer.NowNanos)
	return answer, nil
}

// whole is attempt for pushes whose answer is useless unless it is complete.
func (s *Store) whole(ctx context.Context, message []byte, items, takes int) (*wire.Answer, error) {
	answer, err := s.attempt(ctx, message, items, takes)
	if err == nil && answer.Missing != nil {
		err = errPartly
	}
	return answer, err
}

// setClock corrects the region's clock if the answer's travel time can't explain the difference.
func (s *Store) setClock(sent, came time.Time, parentNanos uint64) {
	half := came.Sub(sent) / 2
	if half < 0 {
		return // the machine's clock was set back meanwhile
	}
	s.trip.Store(int64(came.Sub(sent)))
	offset := time.Unix(0, int64(parentNanos)).Sub(sent.Add(half))
	if known := time.Duration(s.offset.Load()); offset-known > half || known-offset > half {
		s.offset.Store(int64(offset))
	}
}

// heard records that the parent has answered. err is its complaint about the message, if any.
func (s *Store) heard(err error) {
	s.answers.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.away.IsZero() {
		s.o.Logger.Info("the parent is back", "after", s.o.Now().Sub(s.away))
		s.away, s.logged = time.Time{}, ""
		s.awake()
	}
	if err != nil {
		s.tell("the parent has not applied all of a push", err)
	}
}

// unheard records that a push got no answer. The parent counts as away unless it has answered
// another push since: before is the number of answers when the push was sent.
func (s *Store) unheard(before uint64, err error) {
	switch {
	case s.ended.Err() != nil:
		return
	case errors.Is(err, ErrRefused):
		s.heard(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers.Load() != before {
		s.tell("the parent does not answer a push", err)
		return
	}
	if s.away.IsZero() {
		s.away = s.o.Now()
	}
	s.tell("the parent does not answer", err)
}

// tell logs how the parent fails, and repeats an error only after a minute. The caller holds the
// lock.
func (s *Store) tell(message string, err error) {
	now := s.o.Now()
	if ago := now.Sub(s.loggedAt); s.logged == err.Error() && ago >= 0 && ago < loggedFor {
		return
	}
	s.logged, s.loggedAt = err.Error(), now
	s.o.Logger.Warn(message, "error", err, "on_parent_failure", s.o.Policy.String())
}

// hurried logs that nodes wait less long than the parent's answers take, at most once a minute.
func (s *Store) hurried(waited time.Duration) {
	trip := time.Duration(s.trip.Load())
	if trip <= waited {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.o.Now()
	if ago := now.Sub(s.hurriedAt); ago >= 0 && ago < loggedFor {
		return
	}
	s.hurriedAt = now
	s.o.Logger.Warn("nodes give up before the parent answers: set their backend.timeout to twice answers_take",
		"answers_take", trip, "waited", waited, "on_parent_failure", s.o.Policy.String())
}

// ping sends the parent an empty push while it is away or owes an answer. So the region can tell a
// push that fails alone from a parent that is away. It also looks whether another process has taken
// over the region's identity. The caller holds the lock.
func (s *Store) ping() {
	s.ticks++
	looks := s.onDisk && s.claimed && s.ousted == nil
	due := !s.away.IsZero() || s.asks.Load() > 0 || looks && s.ticks%lookTicks == 0
	if s.pinging || !due {
		return
	}
	p := &wire.Push{Namespace: identityNamespace, Sequence: 1, Floor: 1}
	if looks {
		of := s.counterOf(s.record.incarnation)
		p.Items = []wire.Item{{LimitCounter: of, Newest: store.NumberAt(of, uint64(s.Now().UnixNano())), Hits: []int64{0}}}
	}
	s.pinging = true
	s.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(s.ended, attemptTimeout)
		defer cancel()
		answer, err := s.whole(ctx, wire.AppendPush(nil, p), len(p.Items), 0)
		if err != nil {
			s.o.Logger.Debug("the parent does not answer an empty push", "error", err)
		} else if looks {
			if successors := contents(&p.Items[0], &answer.Totals[0]); sum(&successors) > 0 {
				s.oust()
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pinging = false
	})
}

// unanswered marks the counters that the parent has not answered.
func (s *Store) unanswered(b *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range b.funds {
		if f != nil {
			f.unanswered = true
		}
	}
}

// answered applies the parent's answer, and reports whether it was complete.
func (s *Store) answered(b *batch, answer *wire.Answer) bool {
	var emptied []wire.Item
	var heard []chan struct{}
	lacks, of := b.lacking(answer)
	c := store.Calendar{NowNanos: answer.NowNanos}
	s.mu.Lock()
	from := s.senders[b.push.Namespace]
	if b.partly, b.lacks = len(lacks) > 0, of; !b.partly {
		delete(from.flying, b.push.Sequence)
	}
	from.lookAway()
	for i, f := range b.funds {
		if f == nil || lacks[f.key.of] {
			continue
		}
		b.funds[i] = nil // the fund may be in another push before the rest of this push is answered
		f.whole = contents(&b.push.Items[2*i], &answer.Totals[2*i])
		granted := contents(&b.push.Items[2*i+1], &answer.Totals[2*i+1])
		f.held += f.gained(c, &granted) // an upper bound until the region looks again
		f.granted = granted
		first := !f.known
		f.known, f.busy, f.unanswered, f.refusals, f.part = true, false, false, 0, nil
		emptied = append(emptied, f.emptied()...)
		if first || f.due || f.answered != nil || s.leaving && f.dirty {
			s.hasten(f)
		}
		if b.answered[i] != nil {
			heard = append(heard, b.answered[i])
		}
	}
	most := s.reckon(answer.Nodes)
	s.awake() // other funds may have waited for a push to end
	s.mu.Unlock()
	s.fix(b.push.Namespace, emptied, most)
	for _, answered := range heard {
		close(answered)
	}
	return len(lacks) == 0
}

// reckon records how many nodes the parent has. It returns the number if it is the greatest so far,
// else 0. The caller holds the lock.
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

// emptied returns items that take hits from the own store which weir counter reset has taken from
// the parent's counter: the parent counts fewer hits of the key than it has granted to this region.
func (f *fund) emptied() (items []wire.Item) {
	if window.Kind(f.key.of.Kind).Refills() {
		return nil // the tokens of an emptied bucket have returned
	}
	for _, w := range f.granted.Windows {
		if gone := w.Hits - f.backed(w.Number); gone > 0 {
			items = append(items, wire.Item{LimitCounter: f.key.of, Newest: w.Number, Hits: []int64{-gone}})
			f.dirty = true
		}
	}
	return items
}

// fix applies corrections to the own store. If most is not 0, it also records it. An error is only
// logged, because pushes report a store that can't be written.
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
		r := s.record
		r.most = s.most // another answer may have come meanwhile
		s.mu.Unlock()
		err = s.keep(ctx, r)
	}
	if len(items) > 0 {
		p := &wire.Push{Namespace: namespace, Sender: s.fixer.id, Items: items}
		p.Sequence, p.Floor = s.fixer.next()
		_, errPush := s.Own.Push(ctx, p, 1)
		err = errors.Join(err, errPush)
	}
	if err != nil {
		s.o.Logger.Warn("the region's own store has not applied a correction", "error", err)
	}
}

// leave ends the wait of Close once no fund is due and no push is unanswered. The caller holds the
// lock.
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
