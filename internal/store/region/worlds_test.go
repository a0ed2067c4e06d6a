package region

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/backend"
	"weir/internal/nightly"
	"weir/internal/store"
	"weir/internal/store/file"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

var worlds = flag.Int("worlds", nightly.Or(60, 3), "how many worlds of regions are tried")

// ocean is a way to the parent, of 75 ms each. Messages are lost, come twice, or come late.
type ocean struct {
	parent *backend.Backend
	// until is when a partition ends, and lossy the part of messages of which something goes wrong.
	mu     sync.Mutex
	random *rand.Rand
	until  time.Time
	lossy  float64
	trips  int
	// refused is the last error of the parent.
	refused error
}

const oneWay = 75 * time.Millisecond

var errLost = errors.New("lost on the way")

// fate says how a message and its answer fare.
func (o *ocean) fate() (lost, late, unheard bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.trips++
	if time.Now().Before(o.until) {
		return true, false, false
	}
	return o.random.Float64() < o.lossy, o.random.Float64() < o.lossy, o.random.Float64() < o.lossy
}

func (o *ocean) Push(ctx context.Context, message []byte) ([]byte, error) {
	lost, late, unheard := o.fate()
	if lost {
		<-ctx.Done()
		return nil, errLost
	}
	if !pause(ctx, oneWay) {
		return nil, errLost
	}
	reply, err := o.parent.Push(context.WithoutCancel(ctx), message)
	if err != nil {
		o.mu.Lock()
		o.refused = err
		o.mu.Unlock()
	}
	if late { // and it comes again, long after
		again := append([]byte(nil), message...)
		go func() {
			<-time.After(7 * time.Second)
			if _, err := o.parent.Push(context.WithoutCancel(ctx), again); err != nil {
				panic(err)
			}
		}()
	}
	if unheard {
		<-ctx.Done()
		return nil, errLost
	}
	if !pause(ctx, oneWay) {
		return nil, errLost
	}
	return reply.Body, err
}

// world has two regions of a parent, and nodes that ask them.
type world struct {
	t       *testing.T
	random  *rand.Rand
	parent  *memory.Store
	regions [2]*place
	rooms   []wire.Room
	over    chan struct{}
	nodes   sync.WaitGroup

	mu sync.Mutex
	// passed are the hits that nodes have used, by counter and window. uses are those of token buckets.
	passed map[wire.LimitCounter]map[uint64]int64
	uses   map[wire.LimitCounter][]use
}

// use is of some tokens, which were granted at a time.
type use struct {
	atNanos uint64
	tokens  int64
}

// place is a region, which may be killed.
type place struct {
	w      *world
	sea    *ocean
	path   string
	policy Policy

	mu    sync.Mutex // nobody waits for time while it is held, which would stand still
	own   *file.Store
	store *Store
}

func (p *place) start() {
	r := New(Options{Parent: p.sea, Policy: p.policy, Logger: slog.New(slog.DiscardHandler)})
	own, err := file.Open(p.path, file.Options{Now: r.Now, Granter: r, NoSync: true})
	if err == nil {
		err = r.Start(context.Background(), own)
	}
	if err != nil {
		p.w.t.Error(err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.store, p.own = r, own
}

// now is the region that is up. It may be killed meanwhile.
func (p *place) now() *Store {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.store
}

// kill has the region forget all but its file, and start again.
func (p *place) kill() {
	p.store.end()
	p.store.tasks.Wait()
	if err := p.own.Close(); err != nil {
		p.w.t.Error(err)
	}
	p.start()
}

// node asks a region for hits, uses some, and gives back the others.
func (w *world) node(p *place, id uint64, seed uint64) {
	random := rand.New(rand.NewPCG(seed, id))
	sequence := uint64(0)
	push := func(items []wire.Item, takes []wire.Take) *wire.Answer {
		sequence++
		message := &wire.Push{Namespace: "shop", Sender: id, Node: id, Sequence: sequence, Floor: sequence, Items: items, Takes: takes}
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
			out, err := p.now().Push(ctx, message, 2)
			cancel()
			if err == nil && random.IntN(30) > 0 { // some answers are lost
				return &out.Answer
			}
			<-time.After(time.Second)
		}
	}
	for {
		select {
		case <-w.over:
			return
		case <-time.After(time.Duration(random.IntN(600)) * time.Millisecond):
		}
		room := w.rooms[random.IntN(len(w.rooms))]
		take := wire.Take{Least: 1, Most: 1, Rooms: []wire.Room{room}}
		if take.Lease = random.IntN(2) == 0; take.Lease {
			take.Most += random.Uint64N(30)
		}
		grant := push(nil, []wire.Take{take}).Grants[0]
		if grant.Units == 0 {
			continue
		}
		number := store.NumberAt(room.LimitCounter, grant.AtNanos)
		used := 1 + random.Uint64N(grant.Units)
		w.mu.Lock()
		if window.Kind(room.Kind).Refills() {
			w.uses[room.LimitCounter] = append(w.uses[room.LimitCounter], use{grant.AtNanos, int64(used)})
		} else if w.passed[room.LimitCounter] == nil {
			w.passed[room.LimitCounter] = map[uint64]int64{}
		}
		if !window.Kind(room.Kind).Refills() {
			w.passed[room.LimitCounter][number] += int64(used)
		}
		w.mu.Unlock()
		if back := grant.Units - used; back > 0 {
			item := store.Calendar{NowNanos: grant.AtNanos}.RoomItem(&room, 0)
			item.Hits[0] = -int64(back)
			push([]wire.Item{item}, nil)
		}
	}
}

// run has a world go on for a while, with a partition of ten minutes for one of its regions, or both.
func (w *world) run(seed uint64, policy Policy, dir string) {
	w.random = rand.New(rand.NewPCG(seed, 1))
	w.parent = memory.New(memory.Options{})
	w.over = make(chan struct{})
	w.passed, w.uses = map[wire.LimitCounter]map[uint64]int64{}, map[wire.LimitCounter][]use{}
	for i := range 9 {
		kind := []window.Kind{window.FixedWindow, window.SlidingWindow, window.TokenBucket}[i%3]
		w.rooms = append(w.rooms, hourly(byte(i), kind, []uint64{40, 300, 2000}[i/3]))
	}
	// A window begins soon.
	<-time.After(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)) - time.Duration(w.random.IntN(600))*time.Second)
	parent := backend.New(w.parent)
	for i := range w.regions {
		p := &place{w: w, path: filepath.Join(dir, fmt.Sprintf("%d.db", i)), policy: policy}
		p.sea = &ocean{parent: parent, random: rand.New(rand.NewPCG(seed, uint64(i+2))), lossy: 0.03}
		p.start()
		w.regions[i] = p
		for n := range uint64(3) {
			w.nodes.Go(func() { w.node(p, uint64(i+1)*100+n, seed) })
		}
	}
	wait := func(most time.Duration) { <-time.After(time.Duration(w.random.Int64N(int64(most)))) }
	wait(10 * time.Minute)
	w.regions[1].sea.cut(10 * time.Minute)
	for range 3 {
		wait(5 * time.Minute)
		w.regions[w.random.IntN(2)].kill()
	}
	wait(12 * time.Minute)
	close(w.over)
	w.nodes.Wait()
	<-time.After(11 * time.Minute) // the partition is over, and what was late has come
	for _, p := range w.regions {
		p.sea.calm()
	}
	<-time.After(time.Minute)
	for _, p := range w.regions {
		if err := errors.Join(p.store.Close(), p.own.Close()); err != nil {
			w.t.Error(err)
		}
	}
}

func (o *ocean) cut(long time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.until = time.Now().Add(long)
}

// refusal is the last error of the parent, nil if there was none.
func (o *ocean) refusal() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refused
}

func (o *ocean) calm() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lossy = 0
}

// TestWorlds has two regions with a way of 150 ms to and from their parent, on which messages are lost and
// come twice, partitions of ten minutes, and kills. In the end the parent's sums are exact. Nothing passes
// above a limit beyond the bound of the policy.
func TestWorlds(t *testing.T) {
	for seed := range uint64(*worlds) {
		policy := Policy(seed % 3)
		t.Run(fmt.Sprintf("%d %s", seed, policy), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				w := &world{t: t}
				w.run(seed, policy, dir)
				w.check(policy)
			})
		})
	}
}

func (w *world) check(policy Policy) {
	full := 0
	for _, room := range w.rooms {
		if window.Kind(room.Kind).Refills() {
			full += w.checkBucket(policy, room)
			continue
		}
		bound := map[Policy]uint64{Share: room.Limit / 2, Local: room.Limit}[policy]
		for number, passed := range w.passed[room.LimitCounter] {
			if uint64(passed) > room.Limit+bound {
				w.t.Errorf("limit %d, window %d: %d hits passed, want %d at most above it", room.Limit, number, passed, bound)
			}
			if uint64(passed) >= room.Limit {
				full++
			}
		}
		counted := map[uint64]int64{}
		err := w.parent.Counters(context.Background(), "shop", nil, func(c store.LimitCounter) error {
			if c.LimitCounter == room.LimitCounter {
				for _, window := range c.Windows {
					counted[window.Number] = window.Hits
				}
			}
			return nil
		})
		if err != nil {
			w.t.Error(err)
		}
		now := store.NumberAt(room.LimitCounter, uint64(time.Now().UnixNano()))
		if got, want := counted[now], w.passed[room.LimitCounter][now]; got != want {
			w.t.Errorf("limit %d: the parent has %d hits, want %d", room.Limit, got, want)
		}
	}
	if full == 0 {
		w.t.Error("no limit was reached")
	}
}

// wholeTokens is how many tokens two regions may be off. There are six counts in whole tokens: what each region's
// nodes use, what the parent has granted to each, what it counts of all, and the test's own.
const wholeTokens = 6

// checkBucket has a bucket of one place that all tokens were taken from. It never lacks more than the burst, but
// for the bound, and the parent's lacks no fewer in the end. It returns whether the bucket was empty once.
func (w *world) checkBucket(policy Policy, room wire.Room) (empty int) {
	bound := map[Policy]uint64{Share: (room.Burst + room.Limit) / 2, Local: room.Burst + room.Limit}[policy]
	uses := w.uses[room.LimitCounter]
	slices.SortFunc(uses, func(a, b use) int { return cmp.Compare(a.atNanos, b.atNanos) })
	one, most := store.Contents{}, int64(0)
	for _, u := range uses {
		c := store.Calendar{NowNanos: u.atNanos}
		c.CountTokens(&wire.Item{LimitCounter: room.LimitCounter, Limit: room.Limit, Newest: u.atNanos, Hits: []int64{u.tokens}}, &one)
		most = max(most, c.Taken(room.LimitCounter, room.Limit, &one))
	}
	if uint64(most) > room.Burst+bound+wholeTokens {
		w.t.Errorf("burst %d: %d tokens were lacking at once, want %d at most above it", room.Burst, most, bound)
	}
	now := store.Calendar{NowNanos: uint64(time.Now().UnixNano())}
	want, got := now.Taken(room.LimitCounter, room.Limit, &one), int64(0)
	err := w.parent.Counters(context.Background(), "shop", nil, func(c store.LimitCounter) error {
		if c.LimitCounter == room.LimitCounter {
			got = now.Taken(room.LimitCounter, room.Limit, &store.Contents{Limit: c.Limit, Windows: c.Windows})
		}
		return nil
	})
	if err != nil {
		w.t.Error(err)
	}
	// While a region is cut off, its tokens come back beside those of the others.
	if lost := want - got; lost > wholeTokens && (policy == Deny || lost > int64(room.Limit)/6+wholeTokens) {
		w.t.Errorf("burst %d: the parent lacks %d tokens, want %d", room.Burst, got, want)
	}
	if uint64(most) >= room.Burst {
		return 1
	}
	return 0
}
