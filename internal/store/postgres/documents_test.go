package postgres_test

import (
	"fmt"
	"testing"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/postgres/postgrestest"
	"weir/internal/store/storetest"
)

// Documents are kept as the first release keeps them, so backends of both can share a database.
func TestDocumentsAreThoseOfTheFirstRelease(t *testing.T) {
	url := postgrestest.Database(t)
	counters, raw := open(t, url, atEpoch), connect(t, url)
	must.OK(t, counters.Ping(t.Context()))
	const form = "'2006-01-02T15:04:05Z'"
	now, joined := epoch.Format(form), epoch.Add(store.Newcomer-store.NodeLife).Format(form)
	exec(t, raw, "INSERT INTO weir.overrides (namespace, version, list) VALUES ('ns', 7, 'a list')",
		"INSERT INTO weir.told (namespace, node, version, unfit, told_at) VALUES ('ns', -2, 7, 2, "+now+")",
		"INSERT INTO weir.reports (namespace, sender, report, reported_at) VALUES ('ns', -2, 'a report', "+now+")",
		"INSERT INTO weir.nodes (namespace, node, joined_at) VALUES ('ns', -2, "+now+")")
	storetest.ReadDocuments(t, counters)
	exec(t, raw, "TRUNCATE weir.told, weir.reports, weir.nodes")
	for _, want := range []string{
		fmt.Sprintf("overrides WHERE version = %d AND list = 'a list'", storetest.WriteDocuments(t, counters)),
		"told WHERE node = -2 AND version = 7 AND unfit = 2 AND told_at = " + now,
		"reports WHERE sender = -2 AND report = 'a report' AND reported_at = " + now,
		"nodes WHERE node = -2 AND joined_at = " + joined,
	} {
		must.Equal(t, number(t, raw, "SELECT count(*) FROM weir."+want), 1, "rows of %s", want)
	}
}
