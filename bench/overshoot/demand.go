package main

import (
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strconv"

	"weir/bench/sim"
	"weir/internal/counter"
	"weir/internal/wire"
	"weir/window"
)

// population is many keys, near their limits or not, whose requests come to many nodes evenly.
type population struct {
	nodes, keys int
	perNode     float64 // requests per second
	rate        int64   // sync_rate
	limit       uint64
	window      int64
	// Only span is measured, after warm.
	warm, span int64
	// idle is how long no requests come after that.
	idle int64
	// repeats counts keys that a node has pushed twice within an interval.
	repeats bool
	seed    uint64
}

// partitions are numbers of partitions of a store's counters by their identity: those of the Redis
// Cluster store, and a larger number.
var partitions = [...]uint32{32, 256}

// mostPartitions bounds partitions.
const mostPartitions = 256

// split counts the commands of all partitions: a push sends a command to each partition that it
// touches. busiest is the most commands of a single partition.
type split struct{ commands, busiest int }

// keySkew is the exponent of Zipf's law: the key of rank k has about k^-keySkew of the requests of
// the hottest key.
const keySkew = 1.1

// settles is how long nodes have, besides two intervals, to push their hits and to give back hits
// that they don't need.
const settles = 30 * second

// demand is the load of a population on a backend.
type demand struct {
	population
	sim.Load
	requests, passed, callouts int
	// sharedBytes is the average size of a node's shared data.
	sharedBytes float64
	// split has the load of a store's partitions, for each number of partitions.
	split [len(partitions)]split
	waits sim.Waits
	// settling counts the callouts while nodes settle after the last request, and idleCallouts the
	// later callouts, without any requests.
	settling, idleCallouts int
	// repeated counts pushes of a key within an interval of the node's last push of that key.
	repeated int
}

// perSecond returns a number per second of the measured time.
func (d *demand) perSecond(n int) float64 { return float64(n) / seconds(d.span) }

// per1000 returns a number per thousand requests.
func (d *demand) per1000(n int) float64 { return 1000 * float64(n) / float64(max(d.requests, 1)) }

func (p population) measure() (demand, error) {
	d := demand{population: p}
	w, err := sim.New(sim.Options{
		Seed: p.seed, Places: p.nodes, Workers: workers, Network: sim.Near, Counters: 8 * p.keys,
		Limit:    window.Limit{Shape: window.Shape{Kind: window.SlidingWindow, Width: p.window}, Max: p.limit},
		Capacity: max(1024, min(4*p.keys, 65536)), SyncRate: p.rate,
	})
	if err != nil {
		return d, err
	}
	var touched [len(partitions)][mostPartitions]int
	last := map[pushedKey]int64{}
	measuring := false
	w.Backend.Pushed = func(push *wire.Push, _, _ int) {
		if p.repeats && len(push.Takes) == 0 {
			d.repeated += repeats(last, push, w.Now, p.rate)
		}
		if measuring {
			for i, n := range partitions {
				d.split[i].commands += touch(&touched[i], n, push)
			}
		}
	}
	random := rand.New(rand.NewPCG(p.seed, 4))
	zipf := rand.NewZipf(random, keySkew, 1, uint64(p.keys-1))
	gap := float64(second) / (p.perNode * float64(p.nodes))
	from, end := monday+p.warm, monday+p.warm+p.span
	var before sim.Load
	var requests, callouts int
	w.At(from, func() {
		before, requests, callouts = w.Backend.Load, w.Requests, w.Sent
		w.Waits = sim.Waits{}
		measuring = true
	})
	w.Passed = func(*sim.Request) {
		if measuring {
			d.passed++
		}
	}
	var user, key []byte
	for at := monday + int64(random.ExpFloat64()*gap); at < end; at += int64(random.ExpFloat64() * gap) {
		w.Advance(at)
		user = strconv.AppendUint(user[:0], zipf.Uint64(), 10)
		key = counter.AppendPart(counter.AppendPart(key[:0], "user"), user)
		w.Request(random.IntN(p.nodes), random.IntN(workers), key, 0)
	}
	w.Advance(end)
	d.Load = w.Backend.Minus(before)
	d.requests, d.callouts, d.waits = w.Requests-requests, w.Sent-callouts, w.Waits
	measuring = false
	for i := range partitions {
		d.split[i].busiest = slices.Max(touched[i][:])
	}
	d.sharedBytes = float64(w.SharedBytes()) / float64(p.nodes)
	if p.idle > 0 {
		before := w.Sent
		w.Advance(end + 2*p.rate + settles)
		d.settling = w.Sent - before
		w.Advance(w.Now + p.idle)
		d.idleCallouts = w.Sent - before - d.settling
	}
	return d, w.Failure()
}

// touch counts the partitions, out of n, that a push touches, each once.
func touch(touched *[mostPartitions]int, n uint32, push *wire.Push) (commands int) {
	var seen [mostPartitions]bool
	visit := func(id wire.ID) {
		if part := crc32.ChecksumIEEE(id[:]) % n; !seen[part] {
			seen[part] = true
			touched[part]++
			commands++
		}
	}
	for i := range push.Items {
		visit(push.Items[i].ID)
	}
	for i := range push.Takes {
		for j := range push.Takes[i].Rooms {
			visit(push.Takes[i].Rooms[j].ID)
		}
	}
	return commands
}

type pushedKey struct {
	node uint64
	id   wire.ID
}

// repeats counts a push's keys that the node has pushed less than an interval ago. Keys whose hits
// are given back don't count, because that is done at once.
func repeats(last map[pushedKey]int64, push *wire.Push, now, rate int64) (n int) {
	for i := range push.Items {
		key := pushedKey{push.Node, push.Items[i].ID}
		// One push may have travelled for a shorter time than the other.
		soon := now-last[key] < rate-2*sim.Near.Jitter-2*millisecond
		if soon && !slices.ContainsFunc(push.Items[i].Hits, func(hits int64) bool { return hits < 0 }) {
			n++
		}
		last[key] = now
	}
	return n
}
