package main

import (
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// Usage is shown as a table, CSV and JSON.
func TestUsage(t *testing.T) {
	now := func() time.Time { return time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC) }
	counters := memory.New(memory.Options{Now: now})
	day := uint32(now().Unix() / 86400)
	label := func(id byte, model string, values ...string) (b []byte) {
		l := wire.UsedLabel{Rule: "dollars", Model: model}
		if len(values) > 0 {
			l.ID = wire.ID{id}
		}
		for _, v := range values {
			text, cut := strings.CutSuffix(v, "…")
			l.Name = wire.AppendValue(l.Name, []byte(text), cut)
		}
		return wire.AppendUsedLabel(nil, &l)
	}
	budget := wire.AppendBudget(nil, &wire.Budget{
		AtSeconds: uint64(now().Unix()), StartSeconds: uint64(now().Unix()) - 15*86400, EndSeconds: uint64(now().Unix()) + 15*86400, Used: 750, Quota: 1000,
	})
	must.Get(counters.Account(t.Context(), &wire.Used{Namespace: "shop", Sender: 1, Sequence: 1, Rows: []wire.UsedRow{
		{Label: label(1, "gpt-5", "ann", "team a"), Day: day, Hits: 700, Budget: budget},
		{Label: label(2, "gpt-5-mini", "=1+2", "b…"), Day: day - 1, Hits: 50},
		{Label: label(0, ""), Day: day - 20, Hits: 9},
		{Label: label(4, "\x1b]0;mine\a", "eve"), Day: day - 50, Hits: 1}, // an invented label
		{Label: label(3, "", ""), Day: day - 1, Hits: -4},
	}}))(t)
	url := serveHere(t, counters, server.Options{Now: now})
	const hash1, hash2, hash3 = "01000000000000000000000000000000", "02000000000000000000000000000000", "03000000000000000000000000000000"
	for _, test := range []lineTest{
		{"usage shop", 0, "RULE     KEY           USED  BUDGET                                      AT THIS PACE\n" +
			"dollars  ann \"team a\"  700   750 of 1000 (75 %) until 2026-12-01 00:00Z  ends on 2026-11-21 00:00Z\n" +
			"dollars  =1+2 b…       50                                                \n" +
			"dollars  \"\"            -4                                                \n", ""},
		{"usage shop dollars --by model --month 2026-10..2026-11", 0, "RULE     MODEL       USED\ndollars  gpt-5       700\ndollars  gpt-5-mini  50\ndollars              5\n", ""},
		{"usage shop none", 0, "from 2026-11-01 to 2026-11-30 nothing was used by rules that reveal names\n", ""},
		{"usage shop --by key,day,model --csv", 0, "month,day,rule,key,hash,model,hits,budget_used,budget_quota,budget_start,budget_end,budget_ends_at,gap_node,gap_from,gap_to,gap_idle\n" +
			",2026-11-15,dollars,'=1+2 b…," + hash2 + ",gpt-5-mini,50,,,,,,,,,\n" +
			",2026-11-15,dollars,\"\"\"\"\"\"," + hash3 + ",,-4,,,,,,,,,\n" +
			",2026-11-16,dollars,\"ann \"\"team a\"\"\"," + hash1 + ",gpt-5,700,750,1000,2026-11-01T00:00:00Z,2026-12-01T00:00:00Z,2026-11-21T00:00:00Z,,,,\n", ""},
		{"usage shop --month 2026-09 --by model --csv", 0, "month,day,rule,key,hash,model,hits,budget_used,budget_quota,budget_start,budget_end,budget_ends_at,gap_node,gap_from,gap_to,gap_idle\n" +
			",,dollars,,,\"\"\"\\x1b]0;mine\\a\"\"\",1,,,,,,,,,\n", ""},
		{"usage shop --month 2026-10 --json", 0, `{"from":"2026-10-01","to":"2026-10-31","rows":[{"rule":"dollars","others":true,"hits":9}]}`, ""},
		{"usage shop --month 2026-10", 0, "RULE     KEY     USED\ndollars  others  9\n", ""},

		{"usage", 2, "", "want a namespace, and a rule or none"},
		{"usage shop a b", 2, "", "want a namespace, and a rule or none"},
		{"usage shop --csv --json", 2, "", "want --csv or --json"},
		{"usage shop --month november", 1, "", `month: want a month such as 2026-11`},
		{"usage shop --by hour", 1, "", `by: want key, model, day, month, got "hour"`},
	} {
		code, stdout, stderr := execute(t.Context(), map[string]string{"WEIR_BACKEND": url}, "", strings.Fields(test.args)...)
		if code != test.code || !strings.HasPrefix(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
			t.Errorf("weir %s: %d\n%s%s\nwant %d\n%s%s", test.args, code, stdout, stderr, test.code, test.stdout, test.stderr)
		}
	}
}
