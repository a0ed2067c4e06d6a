package redis_test

import (
	"fmt"
	"testing"

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
		if got, err := client.HGetAll(ctx, key).Result(); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %q, %v; want %q", key, got, err, want)
		}
	}
	joined := float64(epoch.Add(store.Newcomer - store.NodeLife).UnixMicro())
	must.Equal(t, must.Get(client.ZScore(ctx, nodes, member).Result())(t), joined, "a new node joined at")
}
