package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"weir/internal/store"
	"weir/internal/store/postgres/postgrestest"
)

// Documents are kept as the first release keeps them, so backends of both can share a database.
func TestDocumentsAreThoseOfTheFirstRelease(t *testing.T) {
	url := postgrestest.Database(t)
	counters, raw, ctx := open(t, url, atEpoch), connect(t, url), t.Context()
	if err := counters.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	now := epoch.Format("'2006-01-02T15:04:05Z'")
	exec(t, raw, "INSERT INTO weir.overrides (namespace, version, list) VALUES ('ns', 7, 'a list')",
		"INSERT INTO weir.told (namespace, node, version, unfit, told_at) VALUES ('ns', -2, 7, 2, "+now+")",
		"INSERT INTO weir.reports (namespace, sender, report, reported_at) VALUES ('ns', -2, 'a report', "+now+")",
		"INSERT INTO weir.nodes (namespace, node, joined_at) VALUES ('ns', -2, "+now+")")
	const member = 1<<64 - 2
	list, version, errList := counters.Overrides(ctx, "ns", 0)
	if errList != nil || string(list) != "a list" || version != 7 {
		t.Errorf("overrides %q of version %d, %v", list, version, errList)
	}
	applied, err := store.ReadApplied(ctx, counters, "ns")
	if want := []store.AppliedList{{Node: member, Version: 7, Unfit: 2}}; err != nil || !slices.Equal(applied, want) {
		t.Fatalf("applied lists %+v, %v; want %+v", applied, err, want)
	}
	if reports, err := counters.Notes(ctx, store.Reports, "ns"); err != nil || len(reports) != 1 || string(reports[0].Body) != "a report" {
		t.Errorf("reports %+v, %v", reports, err)
	}
	if nodes, err := store.CountNodes(ctx, counters, "ns", member); err != nil || nodes != 1 {
		t.Errorf("%d nodes, %v", nodes, err)
	}

	exec(t, raw, "TRUNCATE weir.told, weir.reports, weir.nodes")
	_, errJoin := store.Join(ctx, counters, "ns", member)
	_, errApplied := counters.Note(ctx, store.AppliedLists, "ns", applied[0].Note())
	_, errReport := counters.Note(ctx, store.Reports, "ns", store.Note{Member: member, Body: []byte("a report")})
	version, errList = counters.SetOverrides(ctx, "ns", 7, []byte("a list"))
	for _, err := range []error{errJoin, errApplied, errReport, errList} {
		if err != nil {
			t.Fatal(err)
		}
	}
	joined := epoch.Add(store.Newcomer - store.NodeLife).Format("'2006-01-02T15:04:05Z'")
	for _, want := range []string{
		fmt.Sprintf("overrides WHERE version = %d AND list = 'a list'", version),
		"told WHERE node = -2 AND version = 7 AND unfit = 2 AND told_at = " + now,
		"reports WHERE sender = -2 AND report = 'a report' AND reported_at = " + now,
		"nodes WHERE node = -2 AND joined_at = " + joined,
	} {
		if n := number(t, raw, "SELECT count(*) FROM weir."+want); n != 1 {
			t.Errorf("%d rows of %s, want one", n, want)
		}
	}
}
