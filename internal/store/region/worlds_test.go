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
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/store"
	"weir/internal/store/file"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

var worlds = flag.Int("worlds", nightly.Or(60, 2), "how many worlds of regions are tried")

// ocean is a connection to the parent with 75 ms in each direction. Messages are lost, come twice,
// or come late.
type ocean struct {
	parent *backend.Backend
	// until is the end of a partition, and lossy the share of messages with a fault.
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

// fate decides the faults of a message and its answer.
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
	if late { // the message also comes again, much later
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

// world has two regions of a parent, and nodes that use them.
type world struct {
	t       *testing.T
	random  *rand.Rand
	parent  *memory.Store
	regions [2]*place
	rooms   []wire.Room
	over    chan struct{}
	nodes   sync.WaitGroup

	mu sync.Mutex
	// passed has the hits that nodes have used, by counter and window. uses has those of token
	// buckets.
	passed map[wire.LimitCounter]map[uint64]int64
	uses   map[wire.LimitCounter][]use
}

// use is a use of tokens, with the time of their grant.
type use struct {
	atNanos uint64
	tokens  int64
}

// place is a region that may be killed.
type place struct {
	w      *world
	sea    *ocean
	path   string
	policy Policy

	mu    sync.Mutex // must not be held while waiting for time, which would stand still
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

// now returns the running region. It may be killed meanwhile.
func (p *place) now() *Store {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.store
}

// kill starts the region again with only its file.
func (p *place) kill() {
	p.store.end()
	p.store.tasks.Wait()
	must.Report(p.w.t, p.own.Close())
	p.start()
}

// node takes hits from a region, uses some, and gives back the others.
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

// run runs a world for a while, with a partition of ten minutes for one of its regions, or both.
func (w *world) run(seed uint64, policy Policy, dir string) {
	w.random = rand.New(rand.NewPCG(seed, 1))
	w.parent = memory.New(memory.Options{})
	w.over = make(chan struct{})
	w.passed, w.uses = map[wire.LimitCounter]map[uint64]int64{}, map[wire.LimitCounter][]use{}
	for i := range 9 {
		kind := heldKinds[i%3]
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
	<-time.After(11 * time.Minute) // the partition is over, and late messages have come
	for _, p := range w.regions {
		p.sea.calm()
	}
	<-time.After(time.Minute)
	for _, p := range w.regions {
		must.Report(w.t, errors.Join(p.store.Close(), p.own.Close()))
	}
}

func (o *ocean) cut(long time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.until = time.Now().Add(long)
}

// refusal returns the parent's last error; nil if there was none.
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

// TestWorlds runs two regions with a round trip of 150 ms to their parent, lost and repeated
// messages, partitions of ten minutes, and kills. At the end the parent's sums are exact. No more
// passes above a limit than the policy's bound.
func TestWorlds(t *testing.T) {
	// Else two timers of a bubble may fire at once, and the race detector crashes:
	// https://go.dev/issue/78156.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
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
			must.AtMost(w.t, uint64(passed), room.Limit+bound, "limit %d, window %d: hits that passed", room.Limit, number)
			if uint64(passed) >= room.Limit {
				full++
			}
		}
		counted := map[uint64]int64{}
		must.Report(w.t, w.parent.Counters(context.Background(), "shop", nil, func(c store.LimitCounter) error {
			if c.LimitCounter == room.LimitCounter {
				for _, window := range c.Windows {
					counted[window.Number] = window.Hits
				}
			}
			return nil
		}))
		now := store.NumberAt(room.LimitCounter, uint64(time.Now().UnixNano()))
		must.Equal(w.t, counted[now], w.passed[room.LimitCounter][now], "limit %d: hits that the parent has", room.Limit)
	}
	must.Equal(w.t, full > 0, true, "a limit was reached")
}

// wholeTokens is the error in tokens that two regions may cause. Six counts are in whole tokens:
// the use of each region's nodes, the parent's grants to each, the parent's count of all, and the
// test's own.
const wholeTokens = 6

// checkBucket replays all tokens taken from a bucket. It never lacks more than the burst plus the
// bound, and at the end the parent's bucket lacks no fewer. The result reports whether the bucket
// was ever empty.
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
	must.AtMost(w.t, uint64(most), room.Burst+bound+wholeTokens, "burst %d: tokens that were lacking at once", room.Burst)
	now := store.Calendar{NowNanos: uint64(time.Now().UnixNano())}
	want, got := now.Taken(room.LimitCounter, room.Limit, &one), int64(0)
	must.Report(w.t, w.parent.Counters(context.Background(), "shop", nil, func(c store.LimitCounter) error {
		if c.LimitCounter == room.LimitCounter {
			got = now.Taken(room.LimitCounter, room.Limit, &store.Contents{Limit: c.Limit, Windows: c.Windows})
		}
		return nil
	}))
	// While a region is cut off, its tokens return independently of the others'.
	if lost := want - got; lost > wholeTokens && (policy == Deny || lost > int64(room.Limit)/6+wholeTokens) {
		w.t.Errorf("burst %d: the parent lacks %d tokens, want %d", room.Burst, got, want)
	}
	if uint64(most) >= room.Burst {
		return 1
	}
	return 0
}
