package redis

import (
	"context"
	_ "embed"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/panics"
	"weir/internal/store"
	"weir/internal/store/far"
	"weir/internal/wire"
)

//go:embed commit.lua
var commitNamed string

var commitScript = newScript(commitNamed)

// script is a script that counts.
type script struct {
	source string
	*goredis.Script
}

func newScript(named string) *script {
	source := placed(named)
	return &script{source, goredis.NewScript(source)}
}

// committer decides batches by the last known contents of their counters, and lets commit.lua write
// the result. If others have written since, it learns the present contents and decides again.
//
// If batches for a counter come while another is being sent, they wait and are decided together.
//
// Hits are added to windows of the clock even if these have changed, within bounds that don't
// change the decision. So backends that count for the same key do not block each other. Counters of
// other kinds must be as they were seen. A group that has often lost the race against others locks
// such counters of its partition for some milliseconds.
type committer struct {
	store *Store
	mu    sync.Mutex
	lanes map[line]*lane
	// seen has counters by key. noted has the time until which a sender's record is known to live,
	// in nanoseconds.
	seen   recent[*entry]
	noted  recent[uint64]
	clocks []clock // of the partitions' servers
	// plain has commit.lua write all, for tests.
	plain bool
}

const (
	// seenBytes bounds half of the memory for seen counters, roughly, and seenSenders half of the
	// senders.
	seenBytes   = 16 << 20
	seenSenders = 1 << 15
	// notedLonger is how much longer than necessary a sender's record lives, so that few pushes
	// prolong it.
	notedLonger = time.Minute
	// mostTogether bounds the batches that are decided together.
	mostTogether = 128
	// lockAfter is how many attempts of a group fail before it locks its partition.
	lockAfter = 3
	// exactAfter is how many attempts of a group fail before its counters must be as they were
	// seen.
	exactAfter = 6
)

func newCommitter(s *Store) *committer {
	c := &committer{store: s, lanes: make(map[line]*lane), clocks: make([]clock, s.keys.partitions)}
	c.seen.most, c.noted.most = seenBytes, seenSenders
	return c
}

// lane has the batches that wait for the batch being sent.
type lane struct{ waiting []*pending }

// line tells lanes apart: by the first counter of their batches, or by the sender.
type line struct {
	namespace, sender string
	first             wire.LimitCounter
}

// pending is a batch to be committed.
type pending struct {
	p       *wire.Push
	nodes   uint64
	b       *batch
	out     store.Outcome
	err     error
	done    chan struct{}
	until   time.Time // its sender's deadline; zero if there is none
	granted string    // the grants of its takes, if it was applied before
	noted   uint64    // the time until which its sender's record lives once it is written
}

// commit commits batches of a push, each of another partition, in one round trip for each server.
// It sets their outcomes and errors, and returns the error of any of them.
func (c *committer) commit(ctx context.Context, p *wire.Push, nodes uint64, batches []*batch) (err error) {
	all := make([]*pending, len(batches))
	for i, b := range batches {
		all[i] = &pending{p: p, nodes: nodes, b: b}
		all[i].until, _ = ctx.Deadline()
	}
	if len(all) == 1 {
		c.together(ctx, all[0])
	} else {
		groups := make([]*group, len(all))
		for i, one := range all {
			groups[i] = &group{c: c, all: []*pending{one}}
		}
		c.write(ctx, groups)
	}
	for _, one := range all {
		if one.b.out, one.b.err = one.out, one.err; one.err != nil {
			one.b.missing, err = wire.InDoubt, one.err
		}
	}
	return err
}

// together commits a batch, together with others that come meanwhile.
func (c *committer) together(ctx context.Context, one *pending) {
	key := line{namespace: one.p.Namespace}
	if len(one.b.items) > 0 {
		key.first = one.b.items[0].LimitCounter
	} else if len(one.b.takes) > 0 {
		key.first = one.b.takes[0].Rooms[0].LimitCounter
	} else {
		key.sender = one.b.sender
	}
	c.mu.Lock()
	l := c.lanes[key]
	if l != nil {
		one.done = make(chan struct{})
		l.waiting = append(l.waiting, one)
		c.mu.Unlock()
		<-one.done
		return
	}
	l = &lane{}
	c.lanes[key] = l
	c.mu.Unlock()
	c.write(ctx, []*group{{c: c, all: []*pending{one}}})
	if next := c.next(key, l); next != nil {
		go c.follow(key, l, next)
	}
}

// follow commits the waiting batches of a lane until none waits.
func (c *committer) follow(key line, l *lane, next *group) {
	for ; next != nil; next = c.next(key, l) {
		c.writeNext(next)
		for _, one := range next.all {
			close(one.done)
		}
	}
}

// writeNext writes a group for which nobody has a context.
func (c *committer) writeNext(g *group) {
	ctx, cancel := g.context()
	defer cancel()
	defer panics.Catch("a push to Redis", g.fail)
	c.write(ctx, []*group{g})
}

// next returns waiting batches of a lane, at most one of each sender, because a push of a sender is
// decided by the record that its earlier push leaves. If no batch waits, the lane ends.
func (c *committer) next(key line, l *lane) *group {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(l.waiting) == 0 {
		delete(c.lanes, key)
		return nil
	}
	g := &group{c: c}
	senders := make(map[string]bool, len(l.waiting))
	var later []*pending
	for _, one := range l.waiting {
		if senders[one.b.sender] || len(g.all) == mostTogether || len(g.all) > 0 && g.work+one.b.work > scriptWork {
			later = append(later, one)
			continue
		}
		senders[one.b.sender] = true
		g.work += one.b.work
		g.all = append(g.all, one)
	}
	l.waiting = later
	return g
}

// group is batches of one partition that are decided together.
type group struct {
	c    *committer
	all  []*pending
	work int
	// lock is the group's name for the lock, once it has needed a name.
	lock  string
	tries int
	// left is how many hits of near keys are left for others, as was learnt in vain.
	left map[string]far.Left
	// repaired is how many fleets were begun anew in vain.
	repaired int64
}

// context returns a context that ends when no sender waits any more.
func (g *group) context() (context.Context, context.CancelFunc) {
	var last time.Time
	for _, one := range g.all {
		if one.until.IsZero() {
			return context.WithCancel(context.Background())
		}
		if one.until.After(last) {
			last = one.until
		}
	}
	return context.WithDeadline(context.Background(), last)
}

func (g *group) fail(err error) {
	for _, one := range g.all {
		one.err = err
	}
}

// write decides groups and writes the results until all are written or have failed.
func (c *committer) write(ctx context.Context, groups []*group) {
	for len(groups) > 0 {
		attempts := make([]*attempt, len(groups))
		for i, g := range groups {
			attempts[i] = g.decide()
		}
		c.send(ctx, attempts)
		groups = groups[:0]
		busy := false
		for _, a := range attempts {
			switch {
			case a.err != nil:
				a.group.fail(a.err)
			case !a.written && ctx.Err() != nil:
				a.group.fail(hurried{ctx.Err()}) // the server has answered
			case a.full != "":
				if err := c.store.makeRoom(ctx, a.group.all[0].p.Namespace, a.full); err != nil {
					a.group.fail(err)
					continue
				}
				groups = append(groups, a.group)
			case !a.written:
				busy = busy || a.busy
				groups = append(groups, a.group)
			}
		}
		if busy {
			wait(ctx)
		}
	}
}

// wait gives the holder of the lock time to write.
func wait(ctx context.Context) {
	t := time.NewTimer(time.Millisecond + rand.N(2*time.Millisecond))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// send sends attempts to their servers, in one round trip for each server, and reads the replies.
func (c *committer) send(ctx context.Context, attempts []*attempt) {
	cmds := make([]*goredis.Cmd, len(attempts))
	acks := &acks{}
	sent := time.Since(began)
	if len(attempts) == 1 && c.store.replicas == 0 {
		cmds[0] = attempts[0].script.Run(ctx, c.store.client, attempts[0].keys, attempts[0].args...)
	} else {
		c.pipeline(context.WithValue(ctx, acksKey{}, acks), attempts, cmds)
	}
	for i, a := range attempts {
		reply, err := cmds[i].Slice()
		switch replied := goredis.Error(nil); {
		case err == nil:
			err = a.hear(reply, sent)
		case a.lone && errors.As(err, &replied):
			err = nil // nothing was written, and commit.lua tells why
		}
		switch {
		case late(err) && time.Since(began)-sent < leastPatience: // with less time, nothing is the server's fault
			err = hurried{err}
		case err == nil && a.written && c.store.replicas > 0 && a.waits():
			err = acks.lacks(cmds[i])
		}
		if a.err = err; err == nil {
			continue
		}
		for _, one := range a.noted {
			c.noted.put(one.b.sender, 0, 1) // another server may have taken over, without the record
		}
	}
}

// pipeline sends attempts that may belong to several servers. The commands hold the errors.
func (c *committer) pipeline(ctx context.Context, attempts []*attempt, cmds []*goredis.Cmd) {
	pipe := c.store.client.Pipeline()
	for i, a := range attempts {
		cmds[i] = pipe.EvalSha(ctx, a.script.Hash(), a.keys, a.args...)
	}
	execute(ctx, pipe)
	// A new or restarted server does not know the script.
	for i, a := range attempts {
		if goredis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
			cmds[i] = pipe.Eval(ctx, a.script.source, a.keys, a.args...)
		}
	}
	if pipe.Len() > 0 {
		execute(ctx, pipe)
	}
}

// execute sends commands, which hold the errors. If the server refuses the connection, as for a wrong password, go-redis
// leaves them without one and without a reply.
func execute(ctx context.Context, pipe goredis.Pipeliner) {
	cmds, err := pipe.Exec(ctx)
	if err == nil || slices.ContainsFunc(cmds, func(cmd goredis.Cmder) bool { return cmd.Err() != nil }) {
		return
	}
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
}

// name returns the group's name for the lock.
func (g *group) name() string {
	if g.lock == "" {
		g.lock = strconv.FormatUint(rand.Uint64(), 36)
	}
	return g.lock
}
