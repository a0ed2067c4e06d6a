package redis_test

import (
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/redis/redistest"
	"weir/internal/store/storetest"
)

// Documents are kept as the first release keeps them, so backends of both can share a Redis.
func TestDocumentsAreThoseOfTheFirstRelease(t *testing.T) {
	server := redistest.Start(t)
	counters, client, ctx := open(t, server.URL(), atEpoch), raw(t, server), t.Context()
	const member, nodes = "fffffffffffffffe", "weir:{ns}:nodes"
	hashes := map[string]map[string]string{
		"weir:{ns}:overrides": {"version": fmt.Sprint(storetest.ListVersion), "list": storetest.List},
		"weir:{ns}:told":      {member: fmt.Sprint(epoch.UnixMicro(), " ", storetest.Applied)},
		"weir:{ns}:reports":   {member: fmt.Sprint(epoch.UnixMicro(), " ", storetest.Report)},
	}
	for key, fields := range hashes {
		must.OK(t, client.HSet(ctx, key, fields).Err())
	}
	must.OK(t, client.ZAdd(ctx, nodes, goredis.Z{Score: float64(epoch.UnixMicro()), Member: member}).Err())
	storetest.ReadDocuments(t, counters)
	must.OK(t, client.Del(ctx, "weir:{ns}:told", "weir:{ns}:reports", nodes).Err())
	hashes["weir:{ns}:overrides"]["version"] = fmt.Sprint(storetest.WriteDocuments(t, counters))
	for key, want := range hashes {
		must.Same(t, must.Get(client.HGetAll(ctx, key).Result())(t), want, "%s", key)
	}
	joined := float64(epoch.Add(store.Newcomer - store.NodeLife).UnixMicro())
	must.Equal(t, must.Get(client.ZScore(ctx, nodes, member).Result())(t), joined, "a new node joined at")
}

// Who writes to a full log pays for many: to find the oldest notes takes a look at all, which keeps Redis from everything else.
func TestFullLogMakesRoomForMany(t *testing.T) {
	server := redistest.Start(t)
	counters, client, ctx := open(t, server.URL(), atEpoch), raw(t, server), t.Context()
	const most, key = store.MaxTellers, "weir:{ns}:tellers"
	for _, before := range []int{most, 10_000} { // another backend may keep more
		notes := map[string]string{}
		for i := range before {
			notes[fmt.Sprintf("%016x", i)] = fmt.Sprint(epoch.UnixMicro()-int64(i), " idle")
		}
		must.OK(t, client.HSet(ctx, key, notes).Err())
		must.Get(counters.Note(ctx, store.Tellers, "ns", store.Note{Member: 1 << 60}))(t)
		must.Equal(t, int(client.HLen(ctx, key).Val()), most-most/16+1, "notes")
		oldest := fmt.Sprintf("%016x", most-most/16-1)
		if !client.HExists(ctx, key, oldest).Val() || !client.HExists(ctx, key, fmt.Sprintf("%016x", 1<<60)).Val() {
			t.Error("others than the oldest are gone")
		}
		must.OK(t, client.Del(ctx, key).Err())
	}
}

// To find out whether a full topic has room takes a look at all of its notes, which keeps Redis from everything else. So members that
// find no room look once a second, however many they are, and make room for all of them.
func TestFullTopicIsSeldomLookedAt(t *testing.T) {
	server, now := redistest.Start(t), epoch
	counters, client, ctx := open(t, server.URL(), func() time.Time { return now }), raw(t, server), t.Context()
	const key, more = "weir:{ns}:reports", 600
	says := func(from, to uint64) {
		for member := from; member < to; member++ {
			must.Get(counters.Note(ctx, store.Reports, "ns", store.Note{Member: member}))(t)
		}
	}
	looks := func() int { return redistest.BusyWith(t, client, "hgetall").Calls }
	for range 10 {
		says(0, more)
		now = now.Add(200 * time.Millisecond)
	}
	must.Equal(t, looks(), 2, "looks in two seconds")
	now = now.Add(store.ReportLife)
	says(more, 2*more)
	must.Equal(t, looks(), 3, "looks when all others are silent")
	is := must.Get(counters.Notes(ctx, store.Reports, "ns"))(t)
	must.Equal(t, len(is), store.MaxReports, "notes")
	for _, note := range is {
		must.Equal(t, note.Member >= more, true, "the note of %d is new", note.Member)
	}
	before := looks()
	for i, at := range []string{"x", "", "nan", "inf", "-inf", "9e18", "-1"} { // others may write when that was
		must.OK(t, client.HSet(ctx, key, "", at).Err())
		says(2*more, 2*more+1)
		must.Equal(t, looks(), before+1+i, "looks after %q", at)
	}
}
