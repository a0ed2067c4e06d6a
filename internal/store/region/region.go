package region

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/share"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// Parent is a connection to the parent backend. Its method is safe for concurrent use.
type Parent interface {
	// Push sends a message to the parent and returns its answer. If the parent was reached but
	// refuses this message, the error wraps [ErrRefused]. After any other error the message may
	// have arrived.
	Push(ctx context.Context, message []byte) (answer []byte, err error)
}

// ErrRefused is wrapped by the error of a message that the parent has refused. Nothing has changed
// there, and it may accept other messages.
var ErrRefused = errors.New("the parent refuses it")

// Policy decides takes while the parent does not answer.
type Policy uint8

const (
	// Share lets the region give out an even share of each limit, and the hits that it holds ahead.
	Share Policy = iota
	// Local lets the region decide alone, by its own hits and the last known hits of the other
	// regions.
	Local
	// Deny lets the region give out only the hits that it holds ahead.
	Deny
)

var policies = [...]string{Share: "share", Local: "local", Deny: "deny"}

// String returns the policy's name.
func (p Policy) String() string { return policies[p] }

// ParsePolicy returns the policy with a name.
func ParsePolicy(name string) (Policy, error) {
	if p := slices.Index(policies[:], name); p >= 0 {
		return Policy(p), nil
	}
	return 0, fmt.Errorf("want share, local or deny, got %.80q", name)
}

// Own is the region's own store: a [memory.Store], or a store in a file. The [Store] must be its
// Granter, and [Store.Now] its clock.
type Own interface {
	store.Store
	Look(namespace string, look func(c store.Calendar, contents func(wire.LimitCounter) *store.Contents))
	Namespaces() []string
	Size() memory.Size
}

// Options configure a region. Only Parent is required.
type Options struct {
	Parent Parent
	Policy Policy
	// Logger logs when the parent stops answering, and when it is back. nil means slog.Default.
	Logger *slog.Logger
	// Now is the machine's clock; nil means time.Now. The region corrects it to the parent's clock.
	Now func() time.Time
}

// Store is a [store.Store]. [New] makes one, Start gives it its own store, and Close ends it. It is
// safe for concurrent use after Start.
//
// Reports and usage go to the parent, and overrides come from there. The methods that read reports
// and usage or set overrides therefore return an error here.
type Store struct {
	Own
	o       Options
	offset  atomic.Int64  // of the parent's clock from the machine's, in nanoseconds
	answers atomic.Uint64 // how many the parent has given
	asks    atomic.Int64  // messages to the parent without an answer yet
	trip    atomic.Int64  // round trip of the last answer, in nanoseconds
	waits   time.Duration // how long a push waits for the parent: attemptTimeout
	ticking time.Duration // between ticks: every
	ended   context.Context
	end     context.CancelFunc
	tasks   sync.WaitGroup
	wake    chan struct{}

	// fixing is held while the region changes its own store: counters, as the sender fixer, and its
	// record, which has a version.
	fixing  sync.Mutex
	fixer   sender
	version uint64

	onDisk bool // the own store is in a file, which can be copied
	// inherits means that the record's successor is from an earlier process. Only Start and run use it.
	inherits bool

	mu sync.Mutex // guards the fields below; if the own store is locked too, mu is locked after it
	// record is the record in the own store. claimed means that the parent knows of this
	// incarnation. ousted is why the region answers no push; nil if it does.
	record  record
	claimed bool
	ousted  error
	// claimsAt is the tick of the next claim if the last one's counters were in a partition that the parent
	// lacked, else 0.
	claimsAt uint64
	ticks    uint64
	node     uint64
	funds    map[key]*fund
	// due has the funds, by namespace, that are to be in the next push and in none yet.
	due     map[string]map[*fund]struct{}
	senders map[string]*sender
	lists   map[string]*list
	reports int // being sent
	// lacking is why the last answer that lacked a part of what is relayed did, and lackedAt when that was.
	lacking  error
	lackedAt time.Time
	// pushes has a place for each push without an answer, partly for each that the parent has answered
	// only in part, and relays for each that is sent on.
	pushes, partly, relays share.Room[string]
	// most is the number of nodes at the parent to divide by: regions, and others that ask it. It
	// may be newer than the record's. mostAt is when the parent last had that number.
	most   uint64
	mostAt time.Time
	// away is when the parent stopped answering; zero if it answers. pinging means that an empty
	// push is on its way. logged is the last error in the log, and loggedAt when it was.
	away     time.Time
	pinging  bool
	logged   string
	loggedAt time.Time
	// hurriedAt is when the log last said that nodes do not wait long enough.
	hurriedAt time.Time
	// Close sets leaving. left is closed when the parent has every hit.
	leaving bool
	left    chan struct{}
	alone   map[string]excess
}

// sender is the region's identity as a sender in a namespace of the parent.
type sender struct {
	id, sequence uint64
	first        uint64            // the sequence of the first push with this id
	flying       map[uint64]*batch // pushes without a complete answer, also those with an earlier id
	away         wire.PartitionSet // what their answers lack
}

// next returns the sequence of the next push and the floor to send with it. It changes the id if the floor is too far
// below, as a push with another id holds up no floor.
func (s *sender) next() (sequence, floor uint64) {
	s.sequence++
	floor = s.sequence
	for flies := range s.flying {
		if flies >= s.first {
			floor = min(floor, flies)
		}
	}
	if s.sequence-floor >= maxBehind {
		s.id, s.first, floor = rand.Uint64(), s.sequence, s.sequence
	}
	return s.sequence, floor
}

// room returns how many more pushes may be on their way. Those that the parent has answered in part are sent again rarely,
// and delay no others unless there are too many in all.
func (s *sender) room() int {
	open := 0
	for _, b := range s.flying {
		if !b.partly {
			open++
		}
	}
	return min(maxFlying-open, maxUnanswered-len(s.flying))
}

// lookAway updates the set of partitions that are away.
func (s *sender) lookAway() {
	s.away = 0
	for _, b := range s.flying {
		s.away |= b.lacks
	}
}

// excess bounds the hits that may have passed above a limit since the parent went away.
type excess struct{ hits, untilNanos uint64 }

const (
	// every is how often a region pushes its changes to the parent and reads the hits of others.
	every = time.Second
	// A region holds at least standing hits of a key that nodes ask for, until no node has asked
	// for lingering ticks.
	standing  = 8
	lingering = 60
	// The tokens of a bucket come back even if a region holds them. So a region holds the tokens of the
	// time lapsing besides, but at most the burst divided by lapsingShare.
	lapsing      = int64(10 * time.Second)
	lapsingShare = 32
	// attemptTimeout is how long the region waits for an answer. Then it sends the same push again
	// after a pause, which doubles each time.
	attemptTimeout = 2 * time.Second
	firstPause     = 250 * time.Millisecond
	lastPause      = 5 * time.Second
	// lookAgain is the pause before the region asks again a parent that has not read its overrides
	// yet.
	lookAgain = 20 * time.Millisecond
	// loggedFor is how long the log does not repeat an error.
	loggedFor = time.Minute
	// lackingFor is how long what is relayed counts as lacking after an answer lacked a part of it. Nodes
	// push such a part again within a second, and wait attemptTimeout for the answer at most.
	lackingFor = 5 * time.Second
	// maxFlying bounds the unanswered pushes of a namespace, maxPushes those of all, and maxBatch the
	// counters in a push. maxUnanswered bounds those of a namespace together with pushes that were answered
	// in part, of which there are maxPushes more in all. maxRelays bounds the pushes of nodes that are being
	// relayed.
	maxFlying     = 16
	maxUnanswered = 4 * maxFlying
	maxPushes     = 1024
	maxBatch      = 160
	maxRelays     = 4096
	// maxBehind is how far below a push its floor may be. A backend remembers more.
	maxBehind = store.MaxAhead / 2
	// A counter of a push that the parent has refused is pushed again after a tick, and after one more
	// each time, but at most longestRest.
	longestRest = 5
	// maxWindows bounds the windows of a counter in a push. Only a wrong clock has hits farther
	// ahead, and they are pushed when their windows come nearer.
	maxWindows = 16
	// maxFunds bounds the counters whose state at the parent the region remembers.
	maxFunds = 1 << 20
	// mostFor is how long a greatest number of nodes holds after the parent last had it.
	mostFor = 24 * time.Hour
	// together is how many funds a tick looks at before it lets others have the lock.
	together = 1 << 10
	// maxReports bounds the reports being sent at once.
	maxReports = 64
	// leaveTimeout is how long Close waits for the parent.
	leaveTimeout = 3 * time.Second
)

// errAtParent answers questions about data that only the parent has.
var errAtParent = errors.New("ask the parent: it has this data for all regions")

// New returns a region, which does nothing before Meet and Start.
func New(o Options) *Store {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Store{
		waits: attemptTimeout, ticking: every,
		o: o, wake: make(chan struct{}, 1), fixer: sender{id: rand.Uint64()},
		funds: map[key]*fund{}, due: map[string]map[*fund]struct{}{}, senders: map[string]*sender{}, lists: map[string]*list{}, alone: map[string]excess{},
		left:   make(chan struct{}),
		pushes: share.Room[string]{Most: maxPushes}, partly: share.Room[string]{Most: maxPushes}, relays: share.Room[string]{Most: maxRelays},
	}
	s.ended, s.end = context.WithCancel(context.Background())
	return s
}

// Now returns the parent's time as well as the region knows it. With it, windows begin when they
// begin at the parent.
func (s *Store) Now() time.Time { return s.o.Now().Add(time.Duration(s.offset.Load())) }

// Meet asks the parent for its time. Call it before the own store is opened: by a clock that is ahead, a
// store in a file would forget counters of windows that have not ended, and the region would give
// out their hits again.
func (s *Store) Meet(ctx context.Context) error {
	sent := s.o.Now()
	body, err := s.o.Parent.Push(ctx, wire.AppendPush(nil, &wire.Push{Namespace: store.TrialNamespace, Sequence: 1, Floor: 1}))
	if err != nil {
		return err
	}
	answer, err := wire.DecodeAnswer(body)
	if err == nil {
		s.setClock(sent, s.o.Now(), answer.NowNanos)
	}
	return err
}

// Start gives the region its own store, and compares any counters in it with the parent's. A
// durable store also keeps the region's identity. If the parent knows that another process has gone
// on with a copy of the store, the error wraps [ErrCopied].
func (s *Store) Start(ctx context.Context, own Own) error {
	s.Own = own
	if err := s.be(ctx); err != nil {
		return fmt.Errorf("the region's identity: %w", err)
	}
	s.most, s.mostAt = s.record.most, s.o.Now()
	if !s.claimed {
		if err := s.claim(ctx); errors.Is(err, ErrCopied) || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	for _, namespace := range own.Namespaces() {
		if namespace == store.TrialNamespace || namespace == identityNamespace {
			continue
		}
		err := own.Counters(ctx, namespace, nil, func(c store.LimitCounter) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if Holds(&c.LimitCounter) {
				f := s.fund(key{namespace, c.LimitCounter})
				f.limit = c.Limit
				s.hasten(f)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("the region's counters: %w", err)
		}
	}
	s.tasks.Go(s.run)
	return nil
}

// fund returns the fund of a counter, which it makes if necessary. The caller holds the lock.
func (s *Store) fund(of key) *fund {
	f := s.funds[of]
	if f == nil {
		if len(s.funds) >= maxFunds {
			s.makeRoom()
		}
		f = &fund{key: of, mine: of.of}
		sum := sha256.Sum256(append(append([]byte(nil), s.record.identity...), of.of.ID[:]...))
		copy(f.mine.ID[:], sum[:])
		s.funds[of] = f
	}
	return f
}

// makeRoom forgets a fund, if possible without unsent changes. If its counter is used again, the
// region asks the parent anew, and then pushes the hits that the parent lacks. The caller holds the
// lock.
func (s *Store) makeRoom() {
	tried := 0
	var last *fund
	for _, f := range s.funds { // in no order
		if !f.busy && f.reserved == 0 {
			last = f
			if !f.due && !f.dirty {
				break
			}
		}
		if tried++; tried == 64 {
			break
		}
	}
	if last != nil {
		s.undue(last)
		delete(s.funds, last.key)
	}
}

// hasten puts a fund into the next push. The caller holds the lock.
func (s *Store) hasten(f *fund) {
	s.makeDue(f)
	s.awake()
}

// makeDue makes a fund due. If it is in a push, rests or is barred, it joins the others after that. The
// caller holds the lock.
func (s *Store) makeDue(f *fund) {
	f.due, f.dirty = true, true
	if f.busy || f.restsUntil > s.ticks || s.bars(f) {
		return
	}
	of := s.due[f.key.namespace]
	if of == nil {
		of = map[*fund]struct{}{}
		s.due[f.key.namespace] = of
	}
	of[f] = struct{}{}
}

// bars reports whether a fund is in no push now, because the answers to others lack one of its partitions:
// see [wire.PartitionSet]. A region that leaves bars nothing. The caller holds the lock.
func (s *Store) bars(f *fund) bool {
	from := s.senders[f.key.namespace]
	return from != nil && !s.leaving && (from.away.Has(f.key.of.ID) || from.away.Has(f.mine.ID))
}

// undue removes a fund from those that are due. The caller holds the lock.
func (s *Store) undue(f *fund) {
	of := s.due[f.key.namespace]
	if delete(of, f); len(of) == 0 {
		delete(s.due, f.key.namespace)
	}
}

func (s *Store) awake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Close pushes the last hits to the parent, gives back the hits held ahead, and ends the region. It
// waits for the parent for at most 3 seconds, and returns an error if the parent lacks hits then.
// The caller must close the own store.
func (s *Store) Close() error {
	if s.usable() != nil {
		s.end()
		s.tasks.Wait()
		return nil // the other copy has the same hits to push
	}
	s.mu.Lock()
	s.leaving = true
	for _, f := range s.funds {
		f.restsUntil = 0
		s.hasten(f)
	}
	s.mu.Unlock()
	s.awake()
	var err error
	select {
	case <-s.left:
	case <-time.After(leaveTimeout):
		err = errors.New("the parent has not received the region's last hits")
	}
	s.end()
	s.tasks.Wait()
	return err
}

// Overshoot bounds, by namespace, the hits that may have passed above a key's limits while the
// parent was away. A bound disappears when the windows concerned have ended.
func (s *Store) Overshoot() map[string]uint64 {
	now := uint64(s.Now().UnixNano())
	s.mu.Lock()
	defer s.mu.Unlock()
	bounds := map[string]uint64{}
	for namespace, e := range s.alone {
		if e.untilNanos <= now {
			delete(s.alone, namespace)
			continue
		}
		bounds[namespace] = e.hits
	}
	return bounds
}

// Away reports whether the parent has stopped answering.
func (s *Store) Away() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.away.IsZero()
}

// Ping implements [store.Store]. A parent that takes hits of some relayed keys only is told of as long as
// nodes push those of others.
func (s *Store) Ping(ctx context.Context) error {
	if err := cmp.Or(s.usable(), s.Own.Ping(ctx)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ago := s.o.Now().Sub(s.lackedAt); s.lacking != nil && ago >= 0 && ago < lackingFor {
		return fmt.Errorf("%w: %w", store.ErrPartly, s.lacking)
	}
	return nil
}

// Account implements [store.Documents]. It sends the message on to the parent.
func (s *Store) Account(ctx context.Context, u *wire.Used) (store.Accounted, error) {
	if err := store.CheckUsed(u); err != nil {
		return store.Accounted{}, err
	}
	answer, err := s.o.Parent.Push(ctx, wire.AppendUsed(nil, u))
	if err == nil && !wire.AnswersUsed(answer, u.Sequence) {
		err = errors.New("the parent's answer is to another message")
	}
	return store.Accounted{}, err
}

// Used implements [store.Documents].
func (s *Store) Used(context.Context, string, uint32, uint32, func(wire.UsedRow) error) error {
	return errAtParent
}

// Note implements [store.Documents]. It sends a report on to the parent without waiting. While many
// are being sent, further reports are dropped: each sender soon sends its next.
func (s *Store) Note(ctx context.Context, topic store.Topic, namespace string, note store.Note) (nodes uint64, err error) {
	if topic == store.Tellers {
		return 0, ctx.Err() // the parent has noted the message that Account sent on
	}
	if topic != store.Reports {
		return s.Own.Note(ctx, topic, namespace, note)
	}
	if err := store.CheckNote(topic, namespace, note); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving || s.reports == maxReports {
		return 0, ctx.Err()
	}
	s.reports++
	s.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(s.ended, attemptTimeout)
		defer cancel()
		answer, err := s.o.Parent.Push(ctx, note.Body)
		if err == nil && string(answer) == wire.TellRules {
			err = s.tellRules(ctx, note.Body)
		}
		if err != nil {
			s.o.Logger.Debug("report not sent", "error", err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reports--
	})
	return 0, ctx.Err()
}

// tellRules sends a report to the parent again, with the rules that it names, if they are known here.
func (s *Store) tellRules(ctx context.Context, report []byte) error {
	r, err := wire.DecodeReport(report)
	if err != nil {
		return err
	}
	notes, err := s.Own.Notes(ctx, store.Rules, r.Namespace)
	for _, n := range notes {
		if n.Member != r.Digest {
			continue
		}
		if _, r.Told = store.RulesOf(n); len(report)+len(r.Told) > wire.MaxReport {
			r.Rules = nil // the next report has them again
		}
		_, err = s.o.Parent.Push(ctx, wire.AppendReport(nil, r))
	}
	return err
}

// Notes implements [store.Documents].
func (s *Store) Notes(ctx context.Context, topic store.Topic, namespace string) ([]store.Note, error) {
	if topic == store.Reports || topic == store.Tellers {
		return nil, errAtParent
	}
	return s.Own.Notes(ctx, topic, namespace)
}
