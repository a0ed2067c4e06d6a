package main

import (
	"strings"
	"testing"
	"time"

	"weir/internal/wire"
	"weir/window"
)

// A whole rule is set, shown, replaced and reset, by one rule and by all, and each change is recorded.
// What no node can apply, and what is no setting, changes nothing.
func TestWholeRule(t *testing.T) {
	address, _ := startServe(t, []string{"--listen", "127.0.0.1:0"}, nil)
	limit := window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: int64(time.Minute)}, Max: 10}
	told := wire.AppendTold(nil, 0, []wire.RuleShape{{Name: "per-user", Key: make([]byte, 2), Limits: []wire.ToldLimit{{Limit: limit}}}, {Name: "idle", Limits: []wire.ToldLimit{{Limit: limit}}}})
	report := wire.AppendReport(nil, &wire.Report{
		Namespace: "shop", Node: 1, Sender: 1, AtNanos: uint64(time.Now().UnixNano()), Digest: wire.DigestOf(told), Told: told,
		Rules: []wire.RuleReport{{Name: "per-user", SpanMillis: 10_000, Amounts: wire.Amounts{Requests: 1, Hits: 1}, Every: 1}},
	})
	wantStatus(t, "POST", "http://"+address+wire.PushPath, "", report, 200)
	variables := map[string]string{"WEIR_BACKEND": "http://" + address}
	executeAll(t, variables, []lineTest{
		{"rule show shop", 0, "as configured\nthere has never been an override\n", ""},
		{"rule set shop per-user --mode shadow --reason trial", 0, "per-user shadow\nno node has reported", ""},
		{"rule show shop per-user", 0, "per-user shadow\nno node", ""},
		{"rule set shop per-user --limit 500/1m --until 2126-12-01", 0, "per-user 500/1m until 2126-12-01T00:00:00Z\n", ""},
		{"rule set shop per-user --limit 0/1m --mode enforce", 0, "per-user enforce 0/1m\n", ""},
		{"override set shop per-user ann 20/1m", 0, "per-user ann 20/1m\n", ""},
		{"rule off --all shop", 1, "", "no node of namespace shop has reported in the last minute; --force"},
		{"rule show other per-user", 0, "per-user as configured\nthere has never been", ""}, // no node says that it is unknown
		{"rule off --all shop --force --until 2126-12-01", 0, "all rules off until 2126-12-01T00:00:00Z\n", ""},
		{"rule show shop", 0, "all rules off until 2126-12-01T00:00:00Z\nper-user enforce 0/1m\nno node", ""},
		{"rule show shop idle", 0, "all rules off until 2126-12-01T00:00:00Z\nno node", ""},
		{"rule show shop per-usr", 1, "", "no node has seen a request of rule \"per-usr\" in the last two minutes, but of per-user: did you mean per-user?"},
		{"rule show shop per-usr --json", 1, "", "did you mean per-user?"},
		{"override list shop", 0, "per-user ann 20/1m\nno node", ""},
		{"rule show shop per-user --json", 0, `{"rule":"per-user","mode":"enforce","key":[],"limits":[{"limit":0,"width_ms":60000}]}]}`, ""},
		{"top shop", 0, "\nset by weir rule: all rules off until 2126-12-01T00:00:00Z\n\nset by weir rule: per-user enforce 0/1m\n", ""},
		{"rule reset shop other", 1, "", "nothing is set for rule other"},

		{"rule off shop idle", 0, "idle off\n", ""}, // without a request, but told of
		{"rule reset shop idle", 0, "1 removed\n", ""},
		{"rule set shop idle --limit 5/1m", 1, "", "no node has seen a request of rule \"idle\""},
		{"rule set shop per-user --limit 5/1h", 1, "", "no node can apply it: rule per-user has a limit with a window of 1m0s\n"},
		{"rule set shop per-user --limit 5/1m --limit 5/1h", 1, "", "no node can apply it"},
		{"rule off shop per-usr", 1, "", "did you mean per-user?; --config"},
		{"rule set shop per-user", 2, "", "want --mode or --limit"},
		{"rule set shop per-user --mode on", 2, "", "--mode: want enforce, shadow or off, got \"on\""},
		{"rule set shop per-user --mode configured", 2, "", "--mode: want"},
		{"rule set shop per-user --limit 5", 2, "", "--limit: want LIMIT/WINDOW"},
		{"rule set shop per-user --mode off --until 2020-01-01", 2, "", "want a time to come"},
		{"rule set --all shop --mode off", 2, "", "want NAMESPACE RULE"},
		{"rule off shop", 2, "", "want NAMESPACE RULE"},
		{"rule off --all shop per-user", 2, "", "want NAMESPACE RULE"},
		{"rule reset shop per-user --until 6h", 2, "", "--until"},
		{"rule dance shop", 2, "", `got "dance"`},
		{"rule", 2, "", "want show, set, off or reset"},
		{"rule show shop", 0, "all rules off until 2126-12-01T00:00:00Z\nper-user enforce 0/1m\nno node", ""},

		{"rule reset --all shop", 0, "1 removed\n", ""},
		{"override unset shop per-user --all", 0, "1 removed\n", ""},
		{"rule show shop", 0, "per-user enforce 0/1m\nno node", ""},
		{"rule reset shop per-user", 0, "1 removed\n", ""},
		{"rule reset --all shop", 1, "", "nothing is set for all rules"},
	})
	_, table, _ := execute(t.Context(), variables, "", "changes", "shop")
	var whats []string
	for line := range strings.Lines(table) {
		for _, what := range []string{"set rule", "reset rule", "set override"} {
			if at := strings.Index(line, "  "+what+"  "); at > 0 {
				whats = append(whats, strings.Join(strings.Fields(line[at:]), " "))
			}
		}
	}
	const want = `set rule per-user - shadow trial
set rule per-user shadow 500/1m until 2126-12-01T00:00:00Z
set rule per-user 500/1m until 2126-12-01T00:00:00Z enforce 0/1m
set override per-user`
	if got := strings.Join(whats, "\n"); len(whats) != 9 || !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\n, want\n%s\nof\n%s", got, want, table)
	}
}
