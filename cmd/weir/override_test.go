package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store/memory"
	"weir/internal/trust"
	"weir/internal/wire"
	"weir/window"
)

// An override is stored as people type it, and shown in the same form.
func TestOverride(t *testing.T) {
	tokens := must.Get(trust.OneToken("hunter2"))(t)
	in := memory.New(memory.Options{})
	noteReportOf(t, in, "per-user", "all", "two", "per-net")
	variables := map[string]string{"WEIR_BACKEND": serveHere(t, in, server.Options{Tokens: tokens}), "WEIR_TOKEN": "hunter2"}
	executeAll(t, variables, []lineTest{
		{"override list shop", 0, "there has never been an override\n", ""},
		{"override set shop per-user ann 1000/1m --until 2126-12-01", 0, "per-user ann 1000/1m until 2126-12-01T00:00:00Z\nno node has reported", ""},
		{"override set --until=2126-12-01T08:30:00+02:00 shop per-user ann 1000/90s 5/1d/7", 0, "per-user ann 1000/1m30s 5/1d/7 until 2126-12-01T06:30:00Z\n", ""},
		{"override set shop all 0/1s", 0, "all 0/1s\n", ""},
		{"override set shop two --key 10/1m --key --x 3/500ms", 0, "two 10/1m --x 3/500ms\n", ""},
		{"override set shop per-net 10.0.0.0/8 3/1s", 0, "per-net 10.0.0.0/8 3/1s\n", ""},
		{"override list shop", 0, "all 0/1s\nper-net 10.0.0.0/8 3/1s\nper-user ann 1000/1m30s 5/1d/7 until 2126-12-01T06:30:00Z\ntwo 10/1m --x 3/500ms\nno node", ""},
		{"override list shop per-net", 0, "per-net 10.0.0.0/8 3/1s\nno node", ""},
		{"override list shop per-net --json", 0, `"overrides":[{"rule":"per-net","key":["10.0.0.0/8"],"limits":[{"limit":3,"width_ms":1000}]}]}`, ""},
		{"override unset shop per-user bob", 1, "", "there is no such override of per-user"},
		{"override unset shop per-user ann", 0, "1 removed\n", ""},
		{"override unset shop two --all", 0, "1 removed\n", ""},
		{"override list shop", 0, "all 0/1s\nper-net 10.0.0.0/8 3/1s\nno node", ""},
		{"override unset shop all", 0, "1 removed\n", ""},

		{"override set shop per-user --prefix sk- 10/1m", 0, "per-user --prefix sk- 10/1m\n", ""},
		{"override set shop per-user --prefix sk- 11/1m --reason trials", 0, "per-user --prefix sk- 11/1m\n", ""},
		{"override set shop per-user --suffix @example.com 12/1m", 0, "per-user --suffix @example.com 12/1m\n", ""},
		{"override set shop two --key gold --network 10.1.2.3/8 13/1m", 0, "two --key gold --network 10.1.2.3/8 13/1m\n", ""},
		{"override list shop two", 0, "two --key gold --network 10.0.0.0/8 13/1m\nno node", ""},
		{"override list shop two --json", 0, `{"rule":"two","key":["gold","10.0.0.0/8"],"pattern":"network","part":1,"limits"`, ""},
		{"changes shop", 0, "11/1m by prefix", ""},
		{"override unset shop per-user sk-", 1, "", "there is no such override of per-user"},
		{"override unset shop per-user --suffix sk-", 1, "", "there is no such override of per-user"},
		{"override unset shop per-user --prefix sk-", 0, "1 removed\n", ""},
		{"override unset shop two --key gold --network 10.9.9.9/8", 0, "1 removed\n", ""},
		{"override unset shop per-user --all", 0, "1 removed\n", ""},
		{"override set shop per-net --network 10.0.0.1 1/1m", 1, "", "overrides[0].key[0]: want a network such as 10.0.0.0/8"},
		{"override set shop per-user ann --prefix s 1/1m", 2, "", "want all values of the key as --key"},
		{"override set shop two --prefix s --suffix t 1/1m", 2, "", "want a single prefix, suffix or network"},

		{"override set shop per-user eve 10/1m --until 6h", 0, "per-user eve 10/1m until 20", ""},
		{"override set shop per-user eve 10/1m --until 1d", 0, "per-user eve 10/1m until 20", ""},
		{"override set shop per-usr ann 10/1m", 1, "", `no node has seen a request of rule "per-usr" in the last two minutes, but of all, per-net, per-user, two: did you mean per-user?; --config FILE checks`},
		{"override set sho per-user ann 10/1m", 1, "", "no node of namespace sho has reported in the last half minute; --config"},
		{"override set sho per-user ann 10/1m --force", 0, "per-user ann 10/1m\n", ""},
		{"override set sho per-user zoe 10/1m", 0, "per-user zoe 10/1m\n", ""}, // it has an override
		{"override set shop per-user eve 10/1m --until 0s", 2, "", "want a day such as"},
		{"override set shop per-user eve 10/1m --until -1h", 2, "", "want a day such as"},

		{"override", 2, "", "want set, list or unset"},
		{"override dance shop", 2, "", `got "dance"`},
		{"override set shop per-user ann", 2, "", "LIMIT/WINDOW"},
		{"override set shop per-user ann 10/1x", 2, "", "LIMIT/WINDOW"},
		{"override set shop per-user ann 10/1m --until soon", 2, "", "want a day such as"},
		{"override set shop per-user ann 10/1m --until 2020-01-01", 2, "", "want a time to come"},
		{"override set shop per-user ann --key bob 10/1m", 2, "", "want all values of the key as --key"},
		{"override set shop per-user ann 10/400d", 1, "", "window: want 1 ms to 366 days"},
		{"override set * per-user ann 10/1d", 1, "", "namespace: want"},
		{"override list shop --all", 2, "", "want NAMESPACE"},
		{"override unset shop per-user ann --all", 2, "", "--all: want it without values"},
		{"override unset shop", 2, "", "want NAMESPACE RULE"},
		{"override list shop --token other", 1, "", "401 Unauthorized: authorization: want the bearer token"},
		{"override list shop --backend ftp://x", 2, "", "want a URL such as"},
		{"override list shop --backend http://127.0.0.1:1", 1, "", "connection refused"},
	})
	if code, _, stderr := execute(t.Context(), variables, "", "override", "set", "shop", "per-user", "an\xffn", "1/1s"); code != 2 || !strings.Contains(stderr, "UTF-8") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	_, stdout, _ := execute(t.Context(), variables, "", "override", "set", "shop", "per-user", "a b", "", "1/1s")
	must.Contains(t, stdout, `per-user "a b" "" 1/1s`, "output")
}

// An override that no node can apply is a mistake that nodes report. An override that does not fit
// the proxies' configuration is refused before it is set.
func TestOverrideThatCannotApply(t *testing.T) {
	address, _ := startServe(t, nil, nil)
	config := must.File(t, filepath.Join(t.TempDir(), "weir.yaml"), `namespace: shop
backend: {cluster: weir}
rules:
  - {name: per-user, key: [{header: x-user}], limits: [{limit: 10, window: 1m}, {limit: 100, window: 1h, algorithm: token_bucket}]}
  - {name: per-net, key: [client_ip], limits: [{limit: 10, window: month, algorithm: fixed_window}]}
  - {name: alone, sync_rate: -1, limits: [{limit: 10, window: 1m}]}
`)
	sequence := uint64(0)
	post := func(body []byte) string { return wantStatus(t, "POST", "http://"+address+wire.PushPath, "", body, 200) }
	// tell pushes like a node that has got a list.
	tell := func(node, version, unfit uint64) (heard uint64) {
		t.Helper()
		sequence++
		answer := post(wire.AppendPush(nil, &wire.Push{
			Namespace: "shop", Node: node, Sender: node, Sequence: sequence, Floor: sequence, Known: wire.Known{Version: version, Unfit: unfit},
		}))
		return must.Get(wire.DecodeAnswer([]byte(answer)))(t).Overrides.Version
	}
	report := reportOf("per-user")
	post(wire.AppendReport(nil, &report))
	variables := map[string]string{"WEIR_BACKEND": "http://" + address}
	executeAll(t, variables, []lineTest{
		{"override set shop per-user ann 10/1m 5/1h --config " + config, 0, "per-user ann 10/1m 5/1h\n", ""},
		{"override set shop per-user ann 10/1m 5/1h/7 --config " + config, 0, "per-user ann 10/1m 5/1h/7\n", ""},
		{"override set shop per-net 10.0.0.1 10/month --config " + config, 0, "per-net 10.0.0.1 10/", ""},
		{"override set shop per-user ann 10/1m --config " + config, 2, "", "such as 10/1m 100/1h/100, got 10/1m\n"},
		{"override set shop per-user ann 10/1m 5/2h --config " + config, 2, "", "with its windows and bursts"},
		{"override set shop per-user ann 10/1m/5 5/1h --config " + config, 2, "", "with its windows and bursts"},
		{"override set shop per-user 10/1m 5/1h --config " + config, 2, "", "want 1 values for the key of per-user, got 0"},
		{"override set shop per-net ann 10/month --config " + config, 2, "", "want an address for value 1"},
		{"override set shop per-net --prefix 10. 10/month --config " + config, 2, "", "want --network for a value of per-net that is a client address"},
		{"override set shop per-net --network 2001:db8::/65 10/month --config " + config, 2, "", "want a network of at most 64 bits for per-net"},
		{"override set shop per-user --network 10.0.0.0/8 10/1m 5/1h --config " + config, 2, "", "want --network for a value of per-user"},
		{"override set shop per-usr ann 10/1m --config " + config, 1, "", "did you mean per-user?"},
		{"override set shop alone 10/1m --config " + config, 1, "", "each proxy counts alone alone"},
	})

	// Two nodes get the overrides, and report whether they can apply them.
	version := tell(1, 0, 0)
	tell(1, version, 0)
	tell(2, version, 1) // because of another override
	for _, test := range []struct {
		set   string
		unfit uint64
	}{
		{"per-user bob 10/1m 5/1h", 0}, {"per-user bob 10/1m 6/1h", 1},
		{"per-net --network 10.0.0.0/8 10/31d", 0}, {"per-net --network 10.1.2.3/8 11/31d", 1},
	} {
		done := make(chan string)
		go func() { done <- said(t, variables, strings.Fields("override set shop "+test.set)...) }()
		got, unfit := "", uint64(0)
		for got == "" {
			if heard := tell(1, version, unfit); heard > version {
				version, unfit = heard, test.unfit
				tell(1, version, unfit)
				tell(2, version, 1+unfit)
			}
			select {
			case got = <-done:
			default:
			}
		}
		want := "0 " + test.set + "\nknown to 2 of 2 nodes"
		if test.unfit > 0 {
			want = "1" + want[1:]
		}
		if !strings.HasPrefix(got, want) || strings.Contains(got, "it is taken back, as nodes can't apply it") != (test.unfit > 0) {
			t.Errorf("%d unfit: got %s", test.unfit, got)
		}
	}
	// The override that was in force before is in force again.
	must.Equal(t, overridesAt(t, address), "per-net --network 10.0.0.0/8 10/31d, per-net 10.0.0.1 10/31d, per-user ann 10/1m 5/1h/7, per-user bob 10/1m 5/1h, ", "in force are")
}

func overridesAt(t *testing.T, address string) (list string) {
	t.Helper()
	all := listAt(t, address)
	for i := range all.Overrides {
		list += describeOverride(&all.Overrides[i]) + ", "
	}
	return list
}

func listAt(t *testing.T, address string) (all server.Overrides) {
	t.Helper()
	must.OK(t, json.Unmarshal([]byte(wantStatus(t, "GET", "http://"+address+wire.OverridesPath+"?namespace=shop", "", nil, 200)), &all))
	return all
}

// An override that no node could apply is refused, by the command and by HTTP, and the override in force
// stays: by what nodes have reported of their rules and, when they are silent, by the overrides that
// they apply.
func TestOverrideThatNoNodeCanApply(t *testing.T) {
	address, _ := startServe(t, nil, nil)
	push := func(body []byte) { wantStatus(t, "POST", "http://"+address+wire.PushPath, "", body, 200) }
	fixed := func(width time.Duration) wire.ToldLimit {
		return wire.ToldLimit{Limit: window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: int64(width)}, Max: 10}}
	}
	postTold(t, address, []wire.RuleShape{
		{Name: "per-user", Key: []byte{0, 0}, Limits: []wire.ToldLimit{fixed(time.Minute)}},
		{Name: "log", Limits: []wire.ToldLimit{{Limit: window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: int64(time.Second), Precision: window.LogPrecision}, Max: 1}}}},
		{Name: "program", Flags: wire.AnyKey, Limits: []wire.ToldLimit{fixed(time.Hour), fixed(time.Minute)}},
		{Name: "per-net", Key: []byte{24, 64, 0, 0}, Limits: []wire.ToldLimit{fixed(time.Minute)}},
	}, "per-user")
	variables := map[string]string{"WEIR_BACKEND": "http://" + address}
	set := func(args string, code int, stdout, stderr string) {
		t.Helper()
		executeAll(t, variables, []lineTest{{"override set shop " + args, code, stdout, stderr}})
	}
	set("per-user ann 20/1m", 0, "", "")
	for _, args := range []string{"per-user ann 5/1h", "per-user ann 20/1m 5/1h", "per-user ann bob 5/1m", "per-user 5/1m", "per-user ann 5/1m/7"} {
		set(args, 1, "", "no node can apply it: rule per-user has a limit with a window of 1m0s, and a key of 1 values")
	}
	for _, test := range []struct {
		rule, key, limits string
		status            int
	}{
		{"per-user", `["ann"]`, `{"limit": 5, "width_ms": 3600000}`, 400},
		{"log", `[]`, `{"limit": 999999999, "width_ms": 1000}`, 400}, // a log has no room for these
		{"log", `[]`, `{"limit": 9, "width_ms": 1000}`, 200},
		{"program", `["a", "b"]`, `{"limit": 5, "width_ms": 60000}, {"limit": 50, "width_ms": 3600000}`, 200}, // in any order
		{"program", `["a", "b"]`, `{"limit": 5, "width_ms": 60000}, {"limit": 50, "width_ms": 60000}`, 400},
		{"program", `["a", "b"], "pattern": "suffix", "part": 2`, `{"limit": 5, "width_ms": 60000}, {"limit": 50, "width_ms": 3600000}`, 400},
		{"program", `["a", "b"], "pattern": "middle"`, `{"limit": 5, "width_ms": 60000}, {"limit": 50, "width_ms": 3600000}`, 400},
		{"per-user", `["10.0.0.0/8"], "pattern": "network"`, `{"limit": 5, "width_ms": 60000}`, 400}, // it is no address
		{"per-net", `["10.0.0.0/8", "x"]`, `{"limit": 5, "width_ms": 60000}`, 400},                   // it is no single address
		{"per-net", `["10.0.0.0/8", "x"], "pattern": "prefix", "part": 1`, `{"limit": 5, "width_ms": 60000}`, 400},
		{"per-net", `["10.0.0.0/8", "x/8"], "pattern": "network"`, `{"limit": 5, "width_ms": 60000}`, 200},
		{"unheard", `["a"]`, `{"limit": 5, "width_ms": 60000}`, 200}, // perhaps a node comes
	} {
		body := fmt.Appendf(nil, `{"overrides": [{"rule": %q, "key": %s, "limits": [%s]}]}`, test.rule, test.key, test.limits)
		status, answer := ask(t, "PUT", "http://"+address+wire.OverridesPath+"?namespace=shop", "", body, "Content-Type", "application/json")
		must.Equal(t, status, test.status, "%+v: %s", test, answer)
	}
	const inForce = "log 9/1s, per-net --network 10.0.0.0/8 --key x/8 5/1m, per-user ann 20/1m, program a b 5/1m 50/1h, unheard a 5/1m, "
	must.Equal(t, overridesAt(t, address), inForce, "in force are")
	// The node's next report has nothing of its rules. It does not know all overrides yet, and applies all
	// that it knows, or not all.
	report := reportOf()
	push(wire.AppendReport(nil, &report))
	version := listAt(t, address).Version
	for i, known := range []wire.Known{{}, {Version: version - 1}, {Version: version}, {Version: version, Unfit: 1}} {
		sequence := uint64(i + 1)
		push(wire.AppendPush(nil, &wire.Push{Namespace: "shop", Node: 1, Sender: 1, Sequence: sequence, Floor: sequence, Known: known}))
		for args, rule := range map[string]string{"per-user ann 5/1h": "per-user", "program a 5/1m 50/1h": "program", "program a b c 5/1m 50/1h": "program"} {
			set(args, 1, "", "no node can apply it: the overrides of rule "+rule+" in force have")
		}
		must.Equal(t, overridesAt(t, address), inForce, "%+v: in force are", known)
	}
	// By force anything is set.
	set("per-user ann 5/1h --force", 0, "", "")
	must.Contains(t, overridesAt(t, address), "per-user ann 5/1h,", "in force are")
}

// A whole rule is set, shown, replaced and reset, by one rule and by all, and each change is recorded.
// What no node can apply, and what is no setting, changes nothing.
func TestWholeRule(t *testing.T) {
	address, _ := startServe(t, nil, nil)
	limit := window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: int64(time.Minute)}, Max: 10}
	postTold(t, address, []wire.RuleShape{{Name: "per-user", Key: make([]byte, 2), Limits: []wire.ToldLimit{{Limit: limit}}}, {Name: "idle", Limits: []wire.ToldLimit{{Limit: limit}}}}, "per-user")
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
