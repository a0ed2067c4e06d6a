package redis_test

import (
	"fmt"
	"slices"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/store"
	"weir/internal/store/redis/redistest"
)

// Documents are kept as the first release keeps them, so backends of both can share a Redis.
func TestDocumentsAreThoseOfTheFirstRelease(t *testing.T) {
	server := redistest.Start(t)
	counters, client, ctx := open(t, server.URL(), atEpoch), raw(t, server), t.Context()
	micros := epoch.UnixMicro()
	const member = "00000000000000ab"
	hashes := map[string]map[string]string{
		"weir:{ns}:overrides": {"version": "7", "list": "a list"},
		"weir:{ns}:told":      {member: fmt.Sprint(micros, " 7 2")},
		"weir:{ns}:reports":   {member: fmt.Sprint(micros, " a report")},
	}
	for key, fields := range hashes {
		if err := client.HSet(ctx, key, fields).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.ZAdd(ctx, "weir:{ns}:nodes", goredis.Z{Score: float64(micros), Member: member}).Err(); err != nil {
		t.Fatal(err)
	}
	list, version, errList := counters.Overrides(ctx, "ns", 0)
	if errList != nil || string(list) != "a list" || version != 7 {
		t.Errorf("overrides %q of version %d, %v", list, version, errList)
	}
	applied, err := store.ReadApplied(ctx, counters, "ns")
	if want := []store.AppliedList{{Node: 0xab, Version: 7, Unfit: 2}}; err != nil || !slices.Equal(applied, want) {
		t.Errorf("applied lists %+v, %v; want %+v", applied, err, want)
	}
	if reports, err := counters.Notes(ctx, store.Reports, "ns"); err != nil || len(reports) != 1 || string(reports[0].Body) != "a report" {
		t.Errorf("reports %+v, %v", reports, err)
	}
	if nodes, err := store.CountNodes(ctx, counters, "ns", 0xab); err != nil || nodes != 1 {
		t.Errorf("%d nodes, %v", nodes, err)
	}

	if err := client.Del(ctx, "weir:{ns}:told", "weir:{ns}:reports", "weir:{ns}:nodes").Err(); err != nil {
		t.Fatal(err)
	}
	_, errJoin := store.Join(ctx, counters, "ns", 0xab)
	_, errApplied := counters.Note(ctx, store.AppliedLists, "ns", applied[0].Note())
	_, errReport := counters.Note(ctx, store.Reports, "ns", store.Note{Member: 0xab, Body: []byte("a report")})
	version, errList = counters.SetOverrides(ctx, "ns", 7, []byte("a list"))
	for _, err := range []error{errJoin, errApplied, errReport, errList} {
		if err != nil {
			t.Fatal(err)
		}
	}
	hashes["weir:{ns}:overrides"]["version"] = fmt.Sprint(version)
	for key, want := range hashes {
		if got, err := client.HGetAll(ctx, key).Result(); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %q, %v; want %q", key, got, err, want)
		}
	}
	joined := float64(epoch.Add(store.Newcomer - store.NodeLife).UnixMicro())
	if got, err := client.ZScore(ctx, "weir:{ns}:nodes", member).Result(); err != nil || got != joined {
		t.Errorf("a new node joined at %f, %v; want %f", got, err, joined)
	}
}
