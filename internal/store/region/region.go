package region

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// Parent is a backend. It is asked from any number of goroutines.
type Parent interface {
	// Push brings a message to the parent, and returns its answer. If the parent is there and does not take
	// this message, the error wraps [ErrRefused]. After any other error the message may have arrived.
	Push(ctx context.Context, message []byte) (answer []byte, err error)
}

// ErrRefused is wrapped by the error of a message that the parent has answered without taking it, while it
// may take others. Nothing has changed there.
var ErrRefused = errors.New("the parent refuses it")

// Policy says what holds for takes while the parent does not answer.
type Policy uint8

const (
	// Share has the region give out its even part of each limit, and what it holds ahead.
	Share Policy = iota
	// Local has it decide by itself, by what it last knew of the other regions.
	Local
	// Deny has it give out no more than it holds ahead.
	Deny
)

var policies = [...]string{Share: "share", Local: "local", Deny: "deny"}

// String is the name of a policy.
func (p Policy) String() string { return policies[p] }

// Policies are the names of all policies, the default first.
func Policies() []string { return policies[:] }

// ParsePolicy reads the name of a policy.
func ParsePolicy(name string) (Policy, error) {
	for p, known := range policies {
		if name == known {
			return Policy(p), nil
		}
	}
	return 0, fmt.Errorf("want share, local or deny, got %.80q", name)
}

// Own is the region's own store: a [memory.Store] or one in a file. Its Granter is the [Store], and its
// clock [Store.Now].
type Own interface {
	store.Store
	Look(namespace string, look func(c store.Calendar, contents func(wire.LimitCounter) *store.Contents))
	Namespaces() []string
	Size() memory.Size
}

// Options has what a region can be told. The zero value is good, but for the parent.
type Options struct {
	Parent Parent
	Policy Policy
	// Logger is told when the parent does not answer, and when it is back; slog.Default if nil.
	Logger *slog.Logger
	// Now is the machine's clock, time.Now if nil. The region corrects it to the parent's.
	Now func() time.Time
}

// Store is a [store.Store]. [New] makes one, Start gives it its own store, and Close ends it.
//
// Reports and usage go to the parent, and overrides come from there. So nobody reads reports and usage
// here, or sets overrides: these methods return an error.
type Store struct {
	Own
	o       Options
	offset  atomic.Int64  // of the parent's clock, in nanoseconds
	answers atomic.Uint64 // that the parent has given
	asks    atomic.Int64  // that are under way
	trip    atomic.Int64  // how long the last answer took, in nanoseconds
	ended   context.Context
	end     context.CancelFunc
	tasks   sync.WaitGroup
	wake    chan struct{}

	// fixing is held while the region changes its own store by itself: its counters as the sender fixer, and
	// what it keeps of itself, which has a version.
	fixing  sync.Mutex
	fixer   sender
	version uint64

	onDisk bool // the own store is, and can be copied

	mu sync.Mutex // of what follows; it is taken while the own store is locked, and not before
	// record has all that the own store keeps of the region. claimed says that the parent knows of this
	// incarnation, and ousted is why the region answers nobody.
	record  record
	claimed bool
	ousted  error
	ticks   uint64
	node    uint64
	funds   map[key]*fund
	due     map[*fund]struct{}
	senders map[string]*sender
	lists   map[string]*list
	reports int // under way
	// most is the record's, or what is to be: regions, and others that ask the parent. At mostAt it had that
	// number last.
	most   uint64
	mostAt time.Time
	// away is when the parent began not to answer anything, zero if it answers. pinging says that it is being
	// asked for nothing. told is the error that the log has, since toldAt.
	away    time.Time
	pinging bool
	told    string
	toldAt  time.Time
	// hurriedAt is when the log was told last that nodes wait for too short.
	hurriedAt time.Time
	// leaving is set once by Close. left is closed when the parent has heard all.
	leaving bool
	left    chan struct{}
	alone   map[string]excess
}

// sender is the region as the parent sees it in a namespace.
type sender struct {
	id, sequence uint64
	flying       map[uint64]struct{} // pushes that have no answer yet
}

// next is the next push's sequence, and the floor with it.
func (s *sender) next() (sequence, floor uint64) {
	s.sequence++
	floor = s.sequence
	for flies := range s.flying {
		floor = min(floor, flies)
	}
	return s.sequence, floor
}

// excess is the most that may have passed above a limit since the parent was away.
type excess struct{ hits, untilNanos uint64 }

const (
	// every is how often a region tells the parent what has changed, and hears of others.
	every = time.Second
	// standing is how many hits a region holds of a key at least that nodes ask for, and lingering for how
	// many ticks after the last node was here.
	standing  = 8
	lingering = 60
	// attemptTimeout is how long the parent has for an answer. Then it is away, and the same push is sent
	// again after a pause, which doubles.
	attemptTimeout = 2 * time.Second
	firstPause     = 250 * time.Millisecond
	lastPause      = 5 * time.Second
	// lookAgain is after how long a parent is asked again that has not read its overrides yet.
	lookAgain = 20 * time.Millisecond
	// toldFor is for how long the log is not told of the same error again.
	toldFor = time.Minute
	// maxFlying bounds the pushes of a namespace that have no answer yet, and maxBatch the counters in one.
	maxFlying = 16
	maxBatch  = 160
	// maxWindows bounds the windows of a counter in a push: farther ahead are only hits of clocks that are off,
	// and these are told when they come nearer.
	maxWindows = 16
	// maxFunds is how many counters a region keeps what it knows of the parent's.
	maxFunds = 1 << 20
	// mostFor is for how long a region is reckoned with that the parent does not hear of any more.
	mostFor = 24 * time.Hour
	// maxReports bounds the reports that are under way.
	maxReports = 64
	// leaveTimeout is how long Close waits for the parent.
	leaveTimeout = 3 * time.Second
)

// errAtParent is for what only the parent has.
var errAtParent = errors.New("ask the parent: it has that for all regions")

// New makes a region, which does nothing before Start.
func New(o Options) *Store {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Store{
		o: o, wake: make(chan struct{}, 1), fixer: sender{id: rand.Uint64()},
		funds: map[key]*fund{}, due: map[*fund]struct{}{}, senders: map[string]*sender{}, lists: map[string]*list{}, alone: map[string]excess{},
		left: make(chan struct{}),
	}
	s.ended, s.end = context.WithCancel(context.Background())
	return s
}

// Now is the parent's time, as far as the region knows it: windows begin when they do at the parent.
func (s *Store) Now() time.Time { return s.o.Now().Add(time.Duration(s.offset.Load())) }

// Start gives the region its own store. If that has counters, the region compares them with the parent's.
// A store that keeps its counters keeps the region's identity with them. If the parent knows of a process that
// has gone on with a copy of the store, the error is [ErrCopied].
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

// fund is that of a counter. The lock is held.
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

// makeRoom forgets a fund that has least to tell: a counter that comes back is asked for anew, and then the
// parent hears of its hits. The lock is held.
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
		delete(s.due, last)
		delete(s.funds, last.key)
	}
}

// hasten has a fund be in a push as soon as can be. The lock is held.
func (s *Store) hasten(f *fund) {
	f.due, f.dirty = true, true
	s.due[f] = struct{}{}
	s.awake()
}

func (s *Store) awake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Close tells the parent what it has not heard, gives back what the region holds, and ends. It waits for
// the parent for 3 seconds at most. The own store is the caller's to close.
func (s *Store) Close() error {
	if s.usable() != nil {
		s.end()
		s.tasks.Wait()
		return nil // what it has to tell is the other's, too
	}
	s.mu.Lock()
	s.leaving = true
	for _, f := range s.funds {
		s.hasten(f)
	}
	s.mu.Unlock()
	s.awake()
	timer := time.NewTimer(leaveTimeout)
	defer timer.Stop()
	var err error
	select {
	case <-s.left:
	case <-timer.C:
		err = errors.New("the parent has not heard the region's last hits")
	}
	s.end()
	s.tasks.Wait()
	return err
}

// Overshoot is how many hits may have passed above the limits of a namespace while the parent was away,
// for each key, until the windows concerned have ended.
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

// Away reports whether the parent does not answer.
func (s *Store) Away() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.away.IsZero()
}

// Ping implements [store.Store].
func (s *Store) Ping(ctx context.Context) error { return cmp.Or(s.usable(), s.Own.Ping(ctx)) }

// Account implements [store.Accounts]: the parent counts what keys have used.
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

// Used implements [store.Accounts].
func (s *Store) Used(context.Context, string, uint32, uint32, func(wire.UsedRow) error) error {
	return errAtParent
}

// Report implements [store.Reports]: the parent has the reports of all. Nobody waits for that, and while
// many are under way others are lost, as their senders soon send the next.
func (s *Store) Report(ctx context.Context, namespace string, _ uint64, report []byte) error {
	if err := store.CheckReport(namespace, report); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving || s.reports == maxReports {
		return ctx.Err()
	}
	s.reports++
	s.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(s.ended, attemptTimeout)
		defer cancel()
		if _, err := s.o.Parent.Push(ctx, report); err != nil {
			s.o.Logger.Debug("report not sent", "error", err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reports--
	})
	return ctx.Err()
}

// Reports implements [store.Reports].
func (s *Store) Reports(context.Context, string) ([][]byte, error) { return nil, errAtParent }
