package redis

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"weir/internal/panics"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// Push implements [store.Store].
func (s *Store) Push(ctx context.Context, p *wire.Push, nodes uint64) (store.Outcome, error) {
	if err := cmp.Or(store.Check(p), ctx.Err()); err != nil {
		return store.Outcome{}, err
	}
	r := newRun(s, p, nodes)
	s.askFleet(ctx, p)
	err := r.push(ctx)
	if err == nil {
		err = r.account(ctx)
	}
	if err != nil {
		return store.Outcome{}, fmt.Errorf("redis: push: %w", err)
	}
	return r.out, nil
}

// run is a push under way.
type run struct {
	store *Store
	p     *wire.Push
	nodes uint64
	out   store.Outcome
	// applied and known count the batches that have a record, by whether they were applied now.
	applied, known int
	// lost are the partitions that have failed, and why.
	lost map[uint32]error
	// items and takes say where the push's are; items again where they were read again.
	items, again []*batch
	takes        []*shared
}

func newRun(s *Store, p *wire.Push, nodes uint64) *run {
	r := &run{store: s, p: p, nodes: nodes}
	r.out.Answer = wire.Answer{NowNanos: math.MaxUint64, Nodes: nodes, Totals: make([]wire.Total, len(p.Items))}
	if len(p.Takes) > 0 {
		r.out.Answer.Grants = make([]wire.Grant, len(p.Takes))
	}
	return r
}

// push does in one round all but what remains to be done of takes that several partitions share.
func (r *run) push(ctx context.Context) error {
	ctx, cancel := r.store.hasten(ctx)
	defer cancel()
	first := r.round("")
	r.items, r.again = make([]*batch, len(r.p.Items)), make([]*batch, len(r.p.Items))
	for i := range r.p.Items {
		r.items[i] = first.item(&r.p.Items[i], &r.out.Answer.Totals[i])
	}
	var several []*shared
	for i := range r.p.Takes {
		take, grant := &r.p.Takes[i], &r.out.Answer.Grants[i]
		if r.store.keys.partitions == 1 {
			first.take(take, take.Most, modeOf(take), nil, grant)
			continue
		}
		t := newShared(r.store.keys, take, grant)
		r.takes = append(r.takes, t)
		if len(t.parts) == 1 {
			t.parts[0].batch = first.take(take, take.Most, modeOf(take), t.parts[0].rooms, grant)
			continue
		}
		several = append(several, t)
		if err := r.leftAlone(ctx, t); err != nil {
			t.lose(wire.NotApplied)
			first.take(take, take.Most, modeSkipped, t.parts[0].rooms, &t.parts[0].grant)
			continue
		}
		t.ask(first, 0)
	}
	if len(first.waves) == 0 {
		first.at(0, 0) // to know the time
	}
	var last *batch
	waves := len(first.waves)
	if r.p.Advance.Present && r.store.keys.partitions == 1 {
		if last = first.waves[waves-1][0]; last.work > wordWork {
			last = first.at(0, scriptWork)
		}
		last.word = true
	}
	if err := first.do(ctx); err != nil {
		return err
	}
	if err := r.share(ctx, several); err != nil {
		return err
	}
	if waves > 1 {
		if err := r.readAgain(ctx); err != nil {
			return err
		}
	}
	r.out.Duplicate = r.applied == 0 && r.known > 0
	if last != nil {
		r.out.Answer.Near = last.near
		r.store.tendFleet(ctx, r.p.Namespace, last.due)
	}
	return nil
}

// leftAlone is why a part of a take can't be had now. Then the others are not asked: what they would
// grant had to go back.
func (r *run) leftAlone(ctx context.Context, t *shared) error {
	for i := range t.parts {
		key := r.store.keys.prefix(r.p.Namespace, t.parts[i].partition)
		if err := r.store.without(ctx, key); err != nil {
			r.lose(t.parts[i].partition, err)
			return err
		}
	}
	return nil
}

func (r *run) lose(partition uint32, err error) {
	if r.lost == nil {
		r.lost = make(map[uint32]error)
	}
	if r.lost[partition] == nil {
		r.lost[partition] = err
	}
}

// hasten leaves some of a context's time for the answer, which others wait for that do not need the
// servers that are late.
func (s *Store) hasten(ctx context.Context) (context.Context, context.CancelFunc) {
	until, bounded := ctx.Deadline()
	if !bounded || s.keys.partitions == 1 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(until)*4/5)
}

// account says what the answer lacks. It is an error if nobody is left who has the time.
func (r *run) account(ctx context.Context) error {
	if len(r.lost) == 0 {
		return nil
	}
	missing := make([]wire.Missing, 0, len(r.items)+len(r.takes))
	for i, b := range r.items {
		lacks := b.missing
		if again := r.again[i]; again != nil && again.missing != wire.Answered {
			lacks = wire.InDoubt
		}
		if missing = append(missing, lacks); lacks != wire.Answered {
			r.out.Answer.Totals[i] = wire.Total{}
		}
	}
	for i, t := range r.takes {
		lacks := t.missing
		if len(t.parts) == 1 {
			lacks = t.parts[0].batch.missing
		}
		if missing = append(missing, lacks); lacks != wire.Answered {
			r.out.Answer.Grants[i] = wire.Grant{}
		}
	}
	if r.out.Answer.NowNanos == math.MaxUint64 {
		calendar, err := r.store.calendar(ctx, r.p.Namespace)
		if err != nil {
			return err
		}
		r.out.Answer.NowNanos = calendar.NowNanos
	}
	if slices.ContainsFunc(missing, func(m wire.Missing) bool { return m != wire.Answered }) {
		r.out.Answer.Missing = missing
		for _, err := range r.lost {
			r.out.Lacking = err
		}
	}
	return nil
}

// readAgain asks for the totals of items whose counters the push names again. Another script, later,
// may have added to these.
func (r *run) readAgain(ctx context.Context) error {
	named := make(map[wire.LimitCounter]int)
	for i := range r.p.Items {
		named[r.p.Items[i].LimitCounter]++
	}
	for i := range r.p.Takes {
		for j := range r.p.Takes[i].Rooms {
			named[r.p.Takes[i].Rooms[j].LimitCounter]++
		}
	}
	reads := r.round("")
	for i := range r.p.Items {
		if item := r.p.Items[i]; named[item.LimitCounter] > 1 {
			item.Hits = make([]int64, len(item.Hits))
			r.again[i] = reads.item(&item, &r.out.Answer.Totals[i])
		}
	}
	return reads.do(ctx)
}

func modeOf(t *wire.Take) string {
	if t.Lease {
		return modeLease
	}
	return modeTake
}

// round is a step of a push: scripts, one for each partition, or several one after the other if they
// have much to read. So Redis serves others in between, which it would not do for scripts that come
// together.
type round struct {
	run  *run
	name string
	// waves are scripts that are sent together, at most one for each partition.
	waves [][]*batch
	last  []*batch // of each partition
}

// scriptWork is how much work a script does at most, if a single item or take is not more: some
// milliseconds, for which Redis serves nobody else.
const scriptWork = 2048

// wordWork is how much work a script does at most that has a word on advanced hits, too. Often the word needs commit.lua, which
// then had to do all of the work, as lone.lua would do in less than half of the time.
const wordWork = 96

// workOf is about how many windows a script has to look at for a counter, at a limit.
func workOf(c wire.LimitCounter, limit uint64) int {
	switch {
	case !window.Kind(c.Kind).Bucketed():
		return 2
	case c.Shape().IsLog():
		return 2 * store.MostBuckets(limit)
	}
	return 2 * wire.MaxWindows
}

func (r *run) round(name string) *round { return &round{run: r, name: name} }

// at is the batch of a partition that has room for so much more work. That batch is the same
// whenever the push comes, as each batch is noted by itself.
func (r *round) at(partition uint32, work int) *batch {
	at, number := slices.IndexFunc(r.last, func(b *batch) bool { return b.partition == partition }), 0
	if at >= 0 {
		b := r.last[at]
		if b.work == 0 || b.work+work <= scriptWork {
			b.work += work
			return b
		}
		number = b.number + 1
	}
	b := &batch{partition: partition, sender: r.run.store.keys.sender(r.run.p.Namespace, partition, r.run.p.Sender, r.name), number: number, work: work}
	if at >= 0 {
		r.last[at] = b
	} else {
		r.last = append(r.last, b)
	}
	if number == len(r.waves) {
		r.waves = append(r.waves, nil)
	}
	r.waves[number] = append(r.waves[number], b)
	return b
}

// do runs the round's scripts, and takes in their answers. On a single server any that fails is an
// error, after which some of them may have been applied. If they are sent again, each is applied once.
func (r *round) do(ctx context.Context) error {
	for _, wave := range r.waves {
		if err := r.run.send(ctx, wave); err != nil {
			return err
		}
	}
	return nil
}

// send sends batches of different partitions together. Those of a cluster's partitions that have
// failed are missing.
func (r *run) send(ctx context.Context, batches []*batch) error {
	if r.store.keys.partitions == 1 {
		if err := r.store.committer.commit(ctx, r.p, r.nodes, batches); err != nil {
			return err
		}
	} else if err := r.sendApart(ctx, batches); err != nil {
		return err
	}
	for _, b := range batches {
		if b.err != nil {
			r.lose(b.partition, b.err)
			continue
		}
		r.out.Answer.NowNanos = min(r.out.Answer.NowNanos, b.out.Answer.NowNanos)
		r.out.Applied, r.out.Returned = wire.Sum(r.out.Applied, b.out.Applied), wire.Sum(r.out.Returned, b.out.Returned)
		r.out.Dropped, r.out.Repaired = wire.Sum(r.out.Dropped, b.out.Dropped), wire.Sum(r.out.Repaired, b.out.Repaired)
		switch {
		case !b.noted():
		case b.state == stateApplied:
			r.applied++
		default:
			r.known++
		}
	}
	return nil
}

// sendApart sends to each of a cluster's masters by itself, so that none waits for another. An error
// says that none can be reached; if one fails, its batches say so.
func (r *run) sendApart(ctx context.Context, batches []*batch) error {
	var group sync.WaitGroup
	groups := make(map[string][]*batch)
	for _, b := range batches {
		if b.err = r.lost[b.partition]; b.err != nil {
			b.missing = wire.NotApplied // what comes after what has failed would be decided without that
			continue
		}
		addr, err := r.store.master(ctx, b.sender)
		if err != nil {
			return err
		}
		groups[addr] = append(groups[addr], b)
	}
	for addr, batches := range groups {
		if err := r.store.leftAlone(addr); err != nil {
			for _, b := range batches {
				b.missing, b.err = wire.NotApplied, err
			}
			continue
		}
		group.Go(func() {
			defer panics.Catch("a push to Redis", func(err error) {
				for _, b := range batches {
					b.missing, b.err = wire.InDoubt, err
				}
			})
			err := r.store.committer.commit(ctx, r.p, r.nodes, batches)
			if err != nil {
				r.store.reload(ctx)
			}
			if cause := blame(batches); err == nil || cause != nil {
				r.store.masters.note(addr, cause)
			}
		})
	}
	group.Wait()
	return nil
}

// batch is one script of a round: what that has for one partition, or a part of it.
type batch struct {
	partition uint32
	sender    string
	number    int // in the partition
	work      int
	items     []*wire.Item
	totals    []*wire.Total // of items
	takes     []part
	state     string
	out       store.Outcome
	// err is why the batch is missing.
	err     error
	missing wire.Missing
	// word says that the push has a word on advanced hits: after this batch its items are counted. near
	// answers it, and due says that the list of near keys is to be reviewed.
	word, due bool
	near      wire.Near
	// review are near keys that go if they are far.
	review []string
}

// part is a take, or what of one lies in one partition.
type part struct {
	*wire.Take
	mode  string
	grant *wire.Grant
}

// item adds an item, whose total is put where it says.
func (r *round) item(item *wire.Item, total *wire.Total) *batch {
	b := r.at(r.run.store.keys.partition(item.ID), workOf(item.LimitCounter, item.Limit)+len(item.Hits))
	b.items, b.totals = append(b.items, item), append(b.totals, total)
	return b
}

// take adds these rooms of a take, or all, which are in one partition, and whose grant is put where it says.
func (r *round) take(t *wire.Take, most uint64, mode string, rooms []int, grant *wire.Grant) *batch {
	if rooms != nil {
		all := t.Rooms
		t = &wire.Take{Least: t.Least, Most: most, Lease: mode == modeLease, Rooms: make([]wire.Room, len(rooms))}
		for i, room := range rooms {
			t.Rooms[i] = all[room]
		}
	}
	work := 0
	for i := range t.Rooms {
		work += workOf(t.Rooms[i].LimitCounter, t.Rooms[i].Limit)
	}
	b := r.at(r.run.store.keys.partition(t.Rooms[0].ID), work)
	b.takes = append(b.takes, part{t, mode, grant})
	return b
}

// How a part is decided.
const (
	modeTake  = "0"
	modeLease = "1"
	// modeRefused is for a take that another partition has refused: what is left to do is counting
	// rejected hits.
	modeRefused = "2"
	// modeSkipped is for a take that is not asked for, as another of its partitions can't be had.
	// The grants of other takes in its script keep their places in the sender's record.
	modeSkipped = "3"
)

// commit.lua answers one of these for a batch that has a record.
const (
	stateApplied = "0"
	stateKnown   = "1"
	// stateForgotten is of a push below its sender's floor: the sender has its answer.
	stateForgotten = "2"
)

// noted reports whether a batch is more than a read.
func (b *batch) noted() bool {
	return slices.ContainsFunc(b.takes, func(t part) bool { return t.mode != modeSkipped }) || slices.ContainsFunc(b.items, func(item *wire.Item) bool {
		return slices.ContainsFunc(item.Hits, func(h int64) bool { return h != 0 })
	})
}
