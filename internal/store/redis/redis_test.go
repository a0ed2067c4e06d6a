package redis_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
	"weir/internal/store/storetest"
	"weir/internal/wire"
	"weir/window"
)

func open(t testing.TB, url string, now func() time.Time) *redis.Store {
	t.Helper()
	counters := must.Get(redis.Open(url, redis.Options{Now: now}))(t)
	t.Cleanup(func() { must.Report(t, counters.Close()) })
	return counters
}

// begun starts an empty Redis, and returns a store on it, and a client besides.
func begun(t testing.TB, now func() time.Time) (*redis.Store, *goredis.Client) {
	t.Helper()
	server := redistest.Start(t)
	return open(t, server.URL(), now), raw(t, server)
}

func openFresh(t testing.TB, now func() time.Time) store.Store {
	return open(t, redistest.Start(t).URL(), now)
}

func TestStore(t *testing.T)      { storetest.Run(t, openFresh) }
func BenchmarkStore(b *testing.B) { storetest.Bench(b, openFresh) }

// raw returns a client besides the store's.
func raw(t testing.TB, s *redistest.Server) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr})
	t.Cleanup(func() { must.Report(t, c.Close()) })
	return c
}

var (
	epoch, atEpoch   = storetest.Epoch, storetest.AtEpoch
	counter, pushOne = storetest.Counter, storetest.PushOne
	wantTotal        = storetest.WantTotal
)

// key returns a counter's key in Redis, as documented by the package.
func key(c wire.LimitCounter) string {
	k := fmt.Sprintf("weir:{ns}:counter:%x:%d:%d:%d", c.ID, c.Kind, c.Ordinal, c.WidthMillis)
	if c.Precision != 0 {
		k += fmt.Sprintf(":%d", c.Precision)
	}
	return k
}

func buckets(id byte, width, precision time.Duration) wire.LimitCounter {
	c := counter(window.SlidingBuckets, id, width)
	c.Precision = uint64(precision)
	return c
}

// sender is the key of pushOne's sender.
const sender = "weir:{ns}:sender:fffffffffffffffe"

func TestKeysExpire(t *testing.T) {
	counters, client := begun(t, atEpoch)
	lives := map[wire.LimitCounter]time.Duration{
		counter(window.FixedWindow, 1, time.Minute):            time.Minute + store.Grace,
		counter(window.SlidingWindow, 2, time.Hour):            2*time.Hour + store.Grace,
		counter(window.FirstHitWindow, 3, time.Minute):         time.Minute + store.Grace,
		counter(window.SlidingWindow, 4, time.Second):          3 * time.Second,
		counter(window.SlidingWindow, 5, 366*24*time.Hour):     2*366*24*time.Hour + store.Grace,
		counter(window.FixedWindow, 6, 100*366*24*time.Second): 100*366*24*time.Second + store.Grace,
		buckets(7, time.Minute, 15*time.Second):                time.Minute + store.Grace + time.Millisecond,
		buckets(8, time.Hour, 1):                               time.Hour + store.Grace + time.Millisecond,
		counter(window.TokenBucket, 9, time.Hour):              6*time.Minute + store.Grace + time.Millisecond,
	}
	var sequence uint64
	for c, life := range lives {
		sequence++
		must.Get(pushOne(t.Context(), counters, sequence, epoch, c))(t)
		// An aligned window has begun before now, but only its time after now counts.
		begun := time.Duration(0)
		if kind := window.Kind(c.Kind); kind == window.FixedWindow || kind == window.SlidingWindow {
			begun = time.Duration(uint64(epoch.UnixMilli())%c.WidthMillis) * time.Millisecond
		}
		wantTTL(t, client, key(c), life-begun)
	}
	must.AtLeast(t, ttl(t, client, sender), 366*24*time.Hour, "the sender is remembered as long as its longest window, for")
}

// TestSenderOutlivesItsTakes wants a sender's record to live as long as a push may be sent again
// for its takes.
func TestSenderOutlivesItsTakes(t *testing.T) {
	counters, client := begun(t, atEpoch)
	for i, test := range []struct{ width, again time.Duration }{
		{time.Minute, 2 * time.Minute}, {time.Hour, 2 * time.Hour}, {30 * 24 * time.Hour, 24 * time.Hour},
	} {
		room := wire.Room{LimitCounter: counter(window.FixedWindow, 1, test.width), Limit: 10, Cost: 1}
		p := &wire.Push{Namespace: "ns", Sender: storetest.Sender, Sequence: uint64(i + 1), Floor: 1,
			Takes: []wire.Take{{Least: 1, Most: 1, Rooms: []wire.Room{room}}}}
		must.Get(counters.Push(t.Context(), p, 1))(t)
		must.Between(t, ttl(t, client, sender), test.again, test.again+store.SenderLife+time.Minute, "the sender of a take of %v is remembered for", test.width)
		must.OK(t, client.Del(t.Context(), sender).Err())
	}
}

// TestKeysOfHitsAheadExpire pushes hits of a clock that is 5 minutes ahead. The key lives as long
// as with hits of now, and the sender's record as long as a copy would count.
func TestKeysOfHitsAheadExpire(t *testing.T) {
	const ahead = 5 * time.Minute
	counters, client := begun(t, atEpoch)
	for sequence, c := range []wire.LimitCounter{buckets(1, 10*time.Second, 1), buckets(2, 10*time.Second, 2500*time.Millisecond)} {
		must.Get(pushOne(t.Context(), counters, uint64(sequence+1), epoch.Add(ahead), c))(t)
		wantTTL(t, client, key(c), 10*time.Second+store.Grace+time.Millisecond)
	}
	day := buckets(3, 24*time.Hour, time.Hour)
	must.Get(pushOne(t.Context(), counters, 3, epoch.Add(26*time.Hour), day))(t)
	wantTTL(t, client, key(day), 24*time.Hour+store.Grace+time.Millisecond)
	must.AtLeast(t, ttl(t, client, sender), 49*time.Hour, "the sender is remembered as long as the number of its hits counts, for")
}

// wantTTL wants a key's remaining life, less the time that the test takes.
func wantTTL(t *testing.T, client *goredis.Client, key string, want time.Duration) {
	t.Helper()
	must.Between(t, ttl(t, client, key), want/2, want, "%s lives for", key)
}

func ttl(t *testing.T, client *goredis.Client, key string) time.Duration {
	t.Helper()
	return must.Get(client.PTTL(t.Context(), key).Result())(t)
}

// survives wants a store to count a hit of each counter although others have written to its Redis, and to answer with these
// totals, in which each counter has one hit more than [store.Store]'s Counters lists before. look looks at what the push has
// left. When the push comes again, it is a duplicate.
func survives(t *testing.T, commands [][]any, repaired int64, want [3]uint64, look func(*goredis.Client), counted ...wire.LimitCounter) {
	t.Helper()
	counters, client := begun(t, atEpoch)
	for _, command := range commands {
		must.OK(t, client.Do(t.Context(), command...).Err())
	}
	listed := map[wire.LimitCounter]int64{}
	must.Report(t, counters.Counters(t.Context(), "ns", nil, func(c store.LimitCounter) error {
		for _, w := range c.Windows {
			listed[c.LimitCounter] += w.Hits
		}
		return nil
	}))
	out := must.Get(pushOne(t.Context(), counters, 1, epoch, counted...))(t)
	var got [3]uint64
	for i, total := range out.Answer.Totals {
		must.EqualOrEnd(t, len(total.Hits), 1, "outcome %+v, want a total of each", out)
		got[i] = total.Hits[0]
		must.Equal(t, min(listed[counted[i]]+1, wire.MaxHits), int64(got[i]), "%s: a hit more than was listed", key(counted[i]))
	}
	if got != want || out.Applied != 3 || out.Repaired != repaired {
		t.Errorf("totals %v, outcome %+v; want %v, 3 applied, %d repaired", got, out, want, repaired)
	}
	look(client)
	if out, err := pushOne(t.Context(), counters, 1, epoch, counted...); err != nil || !out.Duplicate || out.Repaired != 0 {
		t.Errorf("again: outcome %+v, error %v; want a duplicate", out, err)
	}
}

func TestHostileContents(t *testing.T) {
	sliding, first := counter(window.SlidingWindow, 1, time.Minute), counter(window.FirstHitWindow, 2, time.Minute)
	good := counter(window.FixedWindow, 3, time.Minute)
	current := strconv.FormatInt(epoch.UnixMilli()/60_000, 10)
	for name, test := range map[string]struct {
		commands [][]any
		repaired int64
		sliding  uint64
	}{
		"nothing":          {sliding: 1},
		"a string":         {commands: [][]any{{"set", key(sliding), "x"}, {"set", key(first), "x"}}, repaired: 2, sliding: 1},
		"a list":           {commands: [][]any{{"rpush", key(sliding), "x"}}, repaired: 1, sliding: 1},
		"a sender's":       {commands: [][]any{{"set", sender, "x"}}, repaired: 1, sliding: 1},
		"no floor":         {commands: [][]any{{"zadd", sender, "inf", "floor"}}, repaired: 1, sliding: 1},
		"half a floor":     {commands: [][]any{{"zadd", sender, "1.5", "floor"}}, repaired: 1, sliding: 1},
		"no numbers":       {commands: [][]any{{"hset", key(sliding), current, "many", "now", "1"}}, repaired: 1, sliding: 1},
		"no integers":      {commands: [][]any{{"hset", key(sliding), current, "1e3"}}, repaired: 1, sliding: 1},
		"inf":              {commands: [][]any{{"hset", key(sliding), current, "inf"}}, repaired: 1, sliding: 1},
		"leading zeros":    {commands: [][]any{{"hset", key(sliding), current, "007"}}, repaired: 1, sliding: 1},
		"too many":         {commands: [][]any{{"hset", key(sliding), current, "9007199254740992"}}, repaired: 1, sliding: 1},
		"bad beside good":  {commands: [][]any{{"hset", key(sliding), current, "41", "x", "y"}}, repaired: 1, sliding: 42},
		"far ahead":        {commands: [][]any{{"hset", key(sliding), current, "41", "9007199254740991", "1"}}, sliding: 42},
		"no first hit":     {commands: [][]any{{"hset", key(first), "123", "5"}}, repaired: 1, sliding: 1},
		"first hit, never": {commands: [][]any{{"hset", key(first), "99999999999999999999", "5"}}, sliding: 1},
		"many stale":       {commands: [][]any{append([]any{"hset", key(sliding), current, "41"}, stale(20_000)...)}, sliding: 42},
	} {
		t.Run(name, func(t *testing.T) {
			survives(t, test.commands, test.repaired, [3]uint64{1, test.sliding, 1}, func(client *goredis.Client) {
				want := map[string]string{current: strconv.FormatUint(test.sliding, 10)}
				must.Same(t, must.Get(client.HGetAll(t.Context(), key(sliding)).Result())(t), want, "fields")
				wantTTL(t, client, key(sliding), 2*time.Minute+store.Grace)
			}, good, sliding, first)
		})
	}
}

// TestHostileBuckets is TestHostileContents for buckets of a precision and token buckets.
func TestHostileBuckets(t *testing.T) {
	coarse, log, bucket := buckets(1, time.Minute, 15*time.Second), buckets(2, time.Minute, 1), counter(window.TokenBucket, 3, time.Minute)
	at, nanos, number := epoch.UnixNano(), fmt.Sprintf("%020d", epoch.UnixNano()), fmt.Sprintf("%020d", epoch.Unix()/15)
	for name, test := range map[string]struct {
		commands [][]any
		repaired int64
		want     [3]uint64
	}{
		"nothing":            {want: [3]uint64{1, 1, 1}},
		"what it writes":     {commands: [][]any{{"hset", key(coarse), number, 4}, {"set", key(log), record(at, 5), "ex", 65}, {"hset", key(bucket), nanos, 6, "limit", 10}}, want: [3]uint64{5, 6, 7}},
		"strings":            {commands: [][]any{{"set", key(coarse), 1}, {"set", key(log), 1}, {"set", key(bucket), 1}}, repaired: 3, want: [3]uint64{1, 1, 1}},
		"short numbers":      {commands: [][]any{{"hset", key(coarse), number[10:], 4}, {"set", key(log), record(at, 5)[1:]}, {"hset", key(bucket), nanos[1:], 6}}, repaired: 3, want: [3]uint64{1, 1, 1}},
		"no hits":            {commands: [][]any{{"hset", key(coarse), number, "x"}, {"set", key(log), record(at, 0)}, {"hset", key(bucket), nanos, "inf", "limit", "nan"}}, repaired: 3, want: [3]uint64{1, 1, 1}},
		"bad beside good":    {commands: [][]any{{"hset", key(coarse), "x", 1, number, 4}, {"set", key(log), record(at, 5) + record(at-1, 5)}, {"hset", key(bucket), "x", 1, nanos, 6}}, repaired: 3, want: [3]uint64{5, 1, 7}},
		"far ahead":          {commands: [][]any{{"hset", key(coarse), strings.Repeat("9", 20), 4}, {"set", key(log), record(math.MaxInt64, 5)}, {"hset", key(bucket), strings.Repeat("9", 20), 6}}, want: [3]uint64{1, 1, 1}},
		"long ago":           {commands: [][]any{{"hset", key(coarse), strings.Repeat("0", 20), 4}, {"set", key(log), record(0, 5)}, {"hset", key(bucket), strings.Repeat("0", 20), 6}}, want: [3]uint64{1, 1, 1}},
		"negative hits":      {commands: [][]any{{"hset", key(coarse), number, -4}, {"set", key(log), record(at, -5)}, {"hset", key(bucket), nanos, -6}}, repaired: 3, want: [3]uint64{1, 1, 1}},
		"a negative limit":   {commands: [][]any{{"hset", key(bucket), nanos, 6, "limit", -1}}, repaired: 1, want: [3]uint64{1, 1, 7}},
		"only a limit":       {commands: [][]any{{"hset", key(bucket), "limit", 5}}, want: [3]uint64{1, 1, 1}},
		"many stale":         {commands: [][]any{{"set", key(log), staleRecords(20_000) + record(at, 5)}}, want: [3]uint64{1, 6, 1}},
		"a hash":             {commands: [][]any{{"hset", key(log), nanos, 5}}, repaired: 1, want: [3]uint64{1, 1, 1}},
		"text":               {commands: [][]any{{"set", key(log), strings.Repeat("weir", 400)}}, repaired: 1, want: [3]uint64{1, 1, 1}},
		"too many hits":      {commands: [][]any{{"set", key(log), record(at, wire.MaxHits+1)}}, repaired: 1, want: [3]uint64{1, 1, 1}},
		"extremes of tokens": {commands: [][]any{{"hset", key(bucket), nanos, wire.MaxHits, "limit", 0}}, want: [3]uint64{1, 1, wire.MaxHits}},
	} {
		t.Run(name, func(t *testing.T) {
			survives(t, test.commands, test.repaired, test.want, func(client *goredis.Client) {
				for _, want := range []struct {
					key    string
					fields map[string]string
				}{
					{key(coarse), map[string]string{number: strconv.FormatUint(test.want[0], 10)}},
					{key(bucket), map[string]string{nanos: strconv.FormatUint(test.want[2], 10), "limit": "10"}},
				} {
					must.Same(t, must.Get(client.HGetAll(t.Context(), want.key).Result())(t), want.fields, "%s: fields", want.key)
				}
				must.Equal(t, must.Get(client.Get(t.Context(), key(log)).Result())(t), record(at, int64(test.want[1])), "%s", key(log))
				wantTTL(t, client, key(log), time.Minute+store.Grace+time.Millisecond)
			}, coarse, log, bucket)
		})
	}
}

// record returns a log's bucket as it is stored.
func record(number, hits int64) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(number/1000))[1:]
	b = binary.BigEndian.AppendUint16(b, uint16(number%1000))
	return string(append(b, binary.BigEndian.AppendUint64(nil, uint64(hits))[1:]...))
}

// staleRecords returns records of old buckets.
func staleRecords(n int64) string {
	var records strings.Builder
	for i := range n {
		records.WriteString(record(i, 1))
	}
	return records.String()
}

// TestTakePrecision takes all that is left, with numbers whose products doubles can't represent.
func TestTakePrecision(t *testing.T) {
	now := epoch
	clock := func() time.Time { return now }
	counters, exact := open(t, redistest.Start(t).URL(), clock), memory.New(memory.Options{Now: clock})
	random := rand.New(rand.NewPCG(10, 11))
	for seq := uint64(1); seq <= 1000; seq++ {
		of := wire.LimitCounter{ID: wire.ID{byte(seq >> 8), byte(seq)}, Kind: uint8(window.TokenBucket),
			WidthMillis: []uint64{60_000, 3_600_000, 86_400_000, wire.MaxWidthMillis}[random.IntN(4)]}
		limit := 1 + random.Uint64N(1<<(1+random.UintN(53)))
		limit = min(limit, wire.MaxHits)
		used := int64(1 + random.Uint64N(limit))
		width := time.Duration(of.WidthMillis) * time.Millisecond
		start := epoch.Add(time.Duration(random.Int64N(int64(time.Second))))
		it := wire.Item{LimitCounter: of, Limit: limit, Newest: uint64(start.UnixNano()), Hits: []int64{used}}
		now = epoch.Add(time.Second + time.Duration(random.Int64N(int64(width))/1000*1000))
		if random.IntN(2) == 0 {
			it.Kind = uint8(window.SlidingWindow)
			it.Newest = uint64(now.UnixNano())/uint64(width) - 1
		}
		p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: seq, Floor: seq, Items: []wire.Item{it}, Takes: []wire.Take{{
			Least: 1, Most: wire.MaxHits, Rooms: []wire.Room{{LimitCounter: it.LimitCounter, Limit: limit, Burst: limit, Cost: 1}},
		}}}
		got := must.Get(counters.Push(t.Context(), p, 1))(t)
		want := must.Get(exact.Push(t.Context(), p, 1))(t)
		must.EqualOrEnd(t, got.Answer.Grants[0].Units, want.Answer.Grants[0].Units, "%+v of %d at %v: units", it, limit, now)
	}
}

// stale returns fields and values of old windows.
func stale(n int) (fields []any) {
	for i := range n {
		fields = append(fields, i, 1)
	}
	return fields
}

func TestForeignKeysAreNotCounted(t *testing.T) {
	counters, client := begun(t, atEpoch)
	current := strconv.FormatInt(epoch.UnixMilli()/60_000, 10)
	id := strings.Repeat("00", 16)
	for _, k := range []string{"x", id + ":4:0:60000", id + ":4:0:60000:0", id + ":4:0:60000:7", id + ":4:0:1:5000", id + ":6:0:60000",
		id + ":5:0:60000:1", id + ":4:0:60000:18446744073709551616", id + ":1:0:0", id + ":1:0:060000", id + ":1:0", id + ":256:0:60000", id + ":1:0:60000:1", "zz" + id[2:] + ":1:0:60000"} {
		must.OK(t, client.HSet(t.Context(), "weir:{ns}:counter:"+k, current, 7).Err())
	}
	must.Report(t, counters.Counters(t.Context(), "ns", nil, func(c store.LimitCounter) error {
		t.Errorf("visited %+v", c)
		return nil
	}))
}

// TestGrants checks the remembered grants: they cover all pushes that may be sent again, and
// foreign values in their place do no harm.
func TestGrants(t *testing.T) {
	counters, client := begun(t, atEpoch)
	push := func(sequence, floor uint64) store.Outcome {
		t.Helper()
		room := wire.Room{LimitCounter: counter(window.FixedWindow, 1, time.Minute), Limit: 1000, Cost: 1}
		out := must.Get(counters.Push(t.Context(), &wire.Push{Namespace: "ns", Sender: storetest.Sender, Sequence: sequence, Floor: floor,
			Takes: []wire.Take{{Least: 1, Most: 3, Rooms: []wire.Room{room}}, {Least: 1, Most: 1, Rooms: []wire.Room{room}}}}, 1))(t)
		must.EqualOrEnd(t, len(out.Answer.Grants), 2, "outcome %+v", out)
		return out
	}
	for sequence := uint64(1); sequence <= 20; sequence++ {
		push(sequence, sequence-min(sequence, 2))
	}
	grants := fmt.Sprintf("20:%020d:3,1", epoch.UnixNano())
	if got, err := client.ZRange(t.Context(), sender, 0, -1).Result(); err != nil || len(got) != 7 || !slices.Contains(got, grants) {
		t.Errorf("record %q, error %v; want the floor, and three sequences with their grants", got, err)
	}
	for name, test := range map[string]struct {
		members []string
		want    [2]uint64
	}{
		"as it was":       {[]string{grants}, [2]uint64{3, 1}},
		"gone":            {nil, [2]uint64{0, 0}},
		"of another push": {[]string{strings.Replace(grants, "20:", "19:", 1), strings.Replace(grants, "20:", "200:", 1)}, [2]uint64{0, 0}},
		"too short":       {[]string{strings.TrimSuffix(grants, ",1")}, [2]uint64{3, 0}},
		"too long":        {[]string{grants + ",7"}, [2]uint64{3, 1}},
		"no numbers":      {[]string{strings.Replace(grants, "3,1", "x,-1", 1)}, [2]uint64{0, 0}},
		"too large":       {[]string{strings.Replace(grants, "3,1", "9007199254740992,1", 1)}, [2]uint64{0, 1}},
		"no time":         {[]string{"20:7:3,1"}, [2]uint64{0, 0}},
		"empty":           {[]string{"", ":", "20:", "20::"}, [2]uint64{0, 0}},
	} {
		must.OK(t, client.ZRemRangeByScore(t.Context(), sender, "20", "20").Err())
		for _, member := range append(test.members, "20") {
			must.OK(t, client.ZAdd(t.Context(), sender, goredis.Z{Score: 20, Member: member}).Err())
		}
		out := push(20, 18)
		if got := [2]uint64{out.Answer.Grants[0].Units, out.Answer.Grants[1].Units}; got != test.want || !out.Duplicate {
			t.Errorf("%s: %v, outcome %+v; want %v of a duplicate", name, got, out, test.want)
		}
	}
}

func TestForeignNodes(t *testing.T) {
	counters, client := begun(t, atEpoch)
	const nodes = "weir:{ns}:nodes"
	for name, command := range map[string][]any{
		"string": {"set", nodes, 1}, "hash": {"hset", nodes, "x", 1}, "never": {"zadd", nodes, "inf", "x"},
		"always": {"zadd", nodes, "-inf", "x"}, "far ahead": {"zadd", nodes, epoch.Add(time.Hour).UnixMicro(), "x"},
	} {
		must.OK(t, client.Do(t.Context(), "del", nodes).Err())
		must.OK(t, client.Do(t.Context(), command...).Err())
		must.Equal(t, must.Get(store.Join(t.Context(), counters, "ns", 1))(t), 1, "%s", name)
		wantTTL(t, client, nodes, store.NodeLife)
	}
}

func TestScriptIsLoadedAgain(t *testing.T) {
	counters, client := begun(t, atEpoch)
	c := counter(window.FixedWindow, 1, time.Minute)
	for sequence := uint64(1); sequence <= 3; sequence++ {
		wantTotal(t, counters, sequence, epoch, c, sequence)
		must.OK(t, client.ScriptFlush(t.Context()).Err())
	}
}

func TestRestart(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	storetest.Restart(t, open(t, server.URL(), nil), server.Stop, server.Restart)
}

// TestFullRedis checks that a push for which Redis has no memory changes nothing.
func TestFullRedis(t *testing.T) {
	counters, client := begun(t, atEpoch)
	c := counter(window.FixedWindow, 1, time.Minute)
	must.Get(pushOne(t.Context(), counters, 1, epoch, c))(t)
	must.OK(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	d := counter(window.FixedWindow, 2, time.Minute)
	_, err := pushOne(t.Context(), counters, 2, epoch, c, d)
	must.Contains(t, fmt.Sprint(err), "OOM", "Redis's error")
	must.OK(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	out, err := pushOne(t.Context(), counters, 2, epoch, c, d)
	if err != nil || out.Duplicate || out.Answer.Totals[0].Hits[0] != 2 || out.Answer.Totals[1].Hits[0] != 1 {
		t.Errorf("outcome %+v, error %v; want totals 2 and 1", out, err)
	}
}

func TestRedisClock(t *testing.T) {
	counters, client := begun(t, nil)
	storetest.ServersClock(t, counters, func() time.Time { return must.Get(client.Time(t.Context()).Result())(t) })
}

func TestPasswordAndDatabase(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "s3cret/:@")
	c := counter(window.FixedWindow, 1, time.Minute)
	for number := range 2 {
		url := fmt.Sprintf("redis://:s3cret%%2F%%3A%%40@%s/%d", server.Addr, number)
		wantTotal(t, open(t, url, atEpoch), 1, epoch, c, 1)
	}
	_, err := pushOne(t.Context(), open(t, "redis://:hunter2@"+server.Addr, atEpoch), 1, epoch, c)
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v, want one without the password", err)
	}
}

func TestBadURL(t *testing.T) {
	for _, url := range []string{
		"redis://:hunter2/x@host:6379", "redis://user:hunter2 @host", "redis://host/hunter2", "redis://:%zzhunter2@host",
		"http://hunter2@host", "redis://host?hunter2=1", "hunter2",
		"redis+sentinel://hunter2@host", "redis+sentinel://:hunter2@host/", "redis+sentinel://host/m/hunter2",
		"redis+sentinel://host/m/0?sentinel_pasword=hunter2",
	} {
		if _, err := redis.Open(url, redis.Options{}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v, want one that does not repeat it", url, err)
		}
	}
}

func TestGrantsOfASenderAreBounded(t *testing.T) {
	s, client := begun(t, atEpoch)
	const pushes, most, shed = 40, 16, 1 + 2*16 // the second time
	storetest.GrantsAreBounded(t, s, pushes, shed-most+2, func(sequence uint64) {
		grants := 0
		for _, member := range must.Get(client.ZRange(t.Context(), "weir:{ns}:sender:0000000000000001", 0, -1).Result())(t) {
			if strings.Count(member, ":") == 2 {
				grants += 1 + strings.Count(member, ",")
			}
		}
		if grants < wire.MaxItems || grants > 2*most*wire.MaxItems {
			t.Fatalf("after sequence %d the sender has %d grants", sequence, grants)
		}
	})
}
