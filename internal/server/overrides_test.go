package server_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/wire"
)

// overrides reads a namespace's.
func overrides(t *testing.T, s *httptest.Server, query string) (found server.Overrides) {
	t.Helper()
	answer, body := do(t, s.Client(), request(t, "GET", s.URL+"/v1/overrides?"+query, nil))
	must.EqualOrEnd(t, answer.StatusCode, 200, "status, with %s", body)
	must.EqualOrEnd(t, answer.Header.Get("Content-Type"), "application/json", "type")
	must.OK(t, json.Unmarshal([]byte(body), &found))
	return found
}

// change makes a change, and wants it to be of so many overrides.
func change(t *testing.T, s *httptest.Server, method, query, body string, want int) (version uint64) {
	t.Helper()
	changed := readJSON[server.Changed](t, s, request(t, method, s.URL+"/v1/overrides?"+query, []byte(body)))
	must.EqualOrEnd(t, changed.Changed, want, "changed")
	return changed.Version
}

// Overrides are set, replaced, listed in order and removed, and nodes hear of that with the next
// answer.
func TestOverrides(t *testing.T) {
	s := start(t, open(), server.Options{})
	if got := overrides(t, s, "namespace=shop"); got.Version != 0 || got.Overrides == nil || len(got.Overrides) != 0 {
		t.Errorf("got %+v before there is any", got)
	}
	change(t, s, "PUT", "namespace=shop", `{"overrides": [
		{"rule": "per-user", "key": ["zoe"], "limits": [{"limit": 7, "width_ms": 60000, "burst": 9}], "until": "2100-01-01T00:00:00Z"},
		{"rule": "per-user", "key": ["ann"], "limits": [{"limit": 1, "width_ms": 60000}]},
		{"rule": "all", "limits": [{"limit": 0, "width_ms": 1000}]}]}`, 3)
	last := change(t, s, "PUT", "namespace=shop", `{"overrides": [{"rule": "per-user", "key": ["ann"], "limits": [{"limit": 2, "width_ms": 60000}]}]}`, 1)
	got := overrides(t, s, "namespace=shop")
	text := must.Get(json.Marshal(got.Overrides))(t)
	const want = `[{"rule":"all","key":[],"limits":[{"limit":0,"width_ms":1000}]},` +
		`{"rule":"per-user","key":["ann"],"limits":[{"limit":2,"width_ms":60000}]},` +
		`{"rule":"per-user","key":["zoe"],"limits":[{"limit":7,"width_ms":60000,"burst":9}],"until":"2100-01-01T00:00:00Z"}]`
	must.Equal(t, string(text), want, "overrides")
	must.Equal(t, got.Version, last, "version")
	if got := overrides(t, s, "namespace=shop&rule=all"); len(got.Overrides) != 1 || got.Version != last {
		t.Errorf("of a rule: %+v", got)
	}
	must.Equal(t, overrides(t, s, "namespace=other").Version, 0, "of another namespace")
	// Three nodes ask, tell, and have something that does not fit.
	for node, known := range []wire.Known{{Asks: true}, {Version: last}, {Version: last, Unfit: 2}} {
		push := wire.Push{Namespace: "shop", Node: uint64(node + 1), Sender: 1, Sequence: 1, Floor: 1, Known: known}
		told := pushed(t, s, &push)
		list, _, err := wire.DecodeList(told.Overrides.Part)
		if err != nil || told.Overrides.Version != last || known.Asks != (len(list) == 3) {
			t.Errorf("node %d is told %+v, %v", node, told.Overrides, err)
		}
	}
	if got := overrides(t, s, "namespace=shop"); got.Nodes != 3 || got.Knowing != 2 || got.Unfitting != 1 {
		t.Errorf("told by %d nodes, known to %d, unfit at %d; want 3, 2 and 1", got.Nodes, got.Knowing, got.Unfitting)
	}
	// A change is known where a later list is, too, but not where a list is that the store has lost.
	now := change(t, s, "PUT", "namespace=shop", `{"overrides": [{"rule": "per-user", "key": ["ann"], "limits": [{"limit": 3, "width_ms": 60000}]}]}`, 1)
	pushed(t, s, &wire.Push{Namespace: "shop", Node: 1, Sender: 1, Sequence: 2, Floor: 1, Known: wire.Known{Version: now + 1}})
	pushed(t, s, &wire.Push{Namespace: "shop", Node: 2, Sender: 1, Sequence: 2, Floor: 1, Known: wire.Known{Version: now}})
	for query, want := range map[string][2]int{"": {1, 0}, fmt.Sprint("&version=", last): {2, 1}, fmt.Sprint("&version=", now): {1, 0}, fmt.Sprint("&version=", now+1): {0, 0}} {
		got := overrides(t, s, "namespace=shop"+query)
		must.Equal(t, [2]int{got.Knowing, got.Unfitting}, want, "%q: known to, and unfit at", query)
	}
	wantStatus(t, s, request(t, "GET", s.URL+"/v1/overrides?namespace=shop&version=x", nil), 400)
	change(t, s, "DELETE", "namespace=shop&rule=per-user&key=nobody", "", 0)
	change(t, s, "DELETE", "namespace=shop&rule=per-user", "", 0)
	change(t, s, "DELETE", "namespace=shop&rule=all", "", 1)
	change(t, s, "DELETE", "namespace=shop&rule=per-user&all", "", 2)
	if got := overrides(t, s, "namespace=shop"); len(got.Overrides) != 0 || got.Version <= last {
		t.Errorf("got %+v after all have gone", got)
	}
}

// An override with an end ends, and is not kept then.
func TestOverridesEnd(t *testing.T) {
	counters := open()
	s := start(t, counters, server.Options{})
	ended := wire.Override{Rule: "r", Values: []string{"ann"}, Limits: []wire.OverrideLimit{{Max: 1, WidthMillis: 1}}, Until: 1}
	must.Get(backend.New(counters).By(nil).ForceOverrides(t.Context(), "shop", ended))(t)
	must.Equal(t, len(overrides(t, s, "namespace=shop").Overrides), 0, "overrides")
	change(t, s, "PUT", "namespace=shop", `{"overrides": [{"rule": "r", "key": ["bob"], "limits": [{"limit": 1, "width_ms": 1}]}]}`, 1)
	list, _, err := counters.Overrides(t.Context(), "shop", 0)
	if all, _, errList := wire.DecodeList(list); err != nil || errList != nil || len(all) != 1 || all[0].Values[0] != "bob" {
		t.Errorf("the store has %+v, %v, %v", all, err, errList)
	}
}

func TestOverridesRefused(t *testing.T) {
	counters := open()
	s := start(t, counters, server.Options{})
	limits := func(text string) string {
		return `{"overrides": [{"rule": "r", "key": ["ann"], "limits": [` + text + `]}]}`
	}
	many := make([]string, wire.MaxOverrides+1)
	for i := range many {
		many[i] = fmt.Sprintf(`{"rule": "r", "key": ["%d"], "limits": [{"limit": 1, "width_ms": 1}]}`, i)
	}
	long := make([]string, 8300)
	for i := range long {
		long[i] = fmt.Sprintf(`{"rule": "r", "key": ["%d%s"], "limits": [{"limit": 1, "width_ms": 1}]}`, i, strings.Repeat("x", 1000))
	}
	all := func(list []string) string { return `{"overrides": [` + strings.Join(list, ",") + `]}` }
	for _, test := range []struct{ method, query, body, want string }{
		{"PUT", "namespace=*", "{}", "namespace: want 1 to 64"},
		{"PUT", "namespace=shop", "no", "body: want a JSON object"},
		{"PUT", "namespace=shop", limits(""), `"body: overrides[0].limits: want 1 to 8, got 0`},
		{"PUT", "namespace=shop", limits(strings.Repeat("{},", 8) + "{}"), "overrides[0].limits: want 1 to 8, got 9"},
		{"PUT", "namespace=shop", limits(`{"limit": -1}`), "body: want a JSON object"},
		{"PUT", "namespace=shop", limits(`{"limit": 1}`), "overrides[0].limits[0].window: want 1 ms to 366 days"},
		{"PUT", "namespace=shop", limits(`{"limit": 1000000000000000, "width_ms": 1}`), "overrides[0].limits[0].limit: want 0 to 999999999999999"},
		{"PUT", "namespace=shop", limits(`{"limit": 1, "width_ms": 1, "burst": 1000000000000000}`), "limits[0].burst: want 1 to"},
		{"PUT", "namespace=shop", `{"overrides": [{"rule": "a b", "limits": [{"limit": 1, "width_ms": 1}]}]}`, "overrides[0].rule: want 1 to 64"},
		{"PUT", "namespace=shop", `{"overrides": [{"rule": "r", "key": ["` + strings.Repeat("x", 1025) + `"], "limits": [{"limit": 1, "width_ms": 1}]}]}`, "overrides[0].key[0]: want at most 1024 bytes"},
		{"PUT", "namespace=shop", all(many), "want at most 100000 in a namespace, got 100001"},
		{"PUT", "namespace=shop", `{"overrides": [` + strings.Repeat("{},", 5_000_000) + `{}]}`, "overrides: want at most 200000, each"},
		{"PUT", "namespace=shop", limits(strings.Repeat("{},", 50_000) + "{}"), "each of at most 131072 bytes"},
		{"PUT", "namespace=shop", `{"overrides": {}}`, "overrides: want an array"},
		{"PUT", "namespace=shop", all(long), "want a list of at most 8388608 bytes"},
		{"PUT", "namespace=shop", `{"overrides": [{"rule": "r", "limit": [{"limit": 1, "width_ms": 1}]}]}`, `which has no field \"limit\"`},
		{"PUT", "namespace=shop", limits(`{"limit": 1, "window": "1m"}`), `which has no field \"window\"`},
		{"PUT", "namespace=shop", `{"overrides": []} {}`, "body: want a JSON object"},
		{"PUT", "namespace=shop", `{"overrides": [{"rule": "r", "limits": [{"limit": 1, "width_ms": 1}], "until": "2020-01-01T00:00:00Z"}]}`, "overrides[0].until: want a time to come, got 2020-01-01T00:00:00Z"},
		{"DELETE", "namespace=shop&rule=r&key=ann&pattern=prefix&part=x", "", `"part: want a number, got`},
		{"DELETE", "namespace=shop&rule=r&key=ann&pattern=prefix&part=-1", "", `part: want 0 to 0`},
		{"DELETE", "namespace=shop&rule=r&key=ann&pattern=prefix&part=1", "", `part: want 0 to 0`},
		{"DELETE", "namespace=shop&rule=r&key=::ffff:10.0.0.0/104&pattern=network", "", `key[0]: want a network`},
		{"PUT", "namespace=shop", `{"overrides": [{"rule": "r", "mode": "off", "key": ["a"], "pattern": "prefix"}]}`, "overrides[0].pattern: want none for a whole rule"},
		{"PUT", "namespace=shop", `{"overrides": [{"rule": "r", "mode": "on"}]}`, "overrides[0].mode: want configured, enforce, shadow or off, got "},
		{"PUT", "namespace=shop", `{"overrides": [{"rule": "r", "mode": "configured"}]}`, "overrides[0].limits: want some, or a mode"},
		{"PUT", "namespace=shop", `{"overrides": [{"rule": "r", "mode": "off", "key": ["ann"]}]}`, "overrides[0].key: want none for a whole rule"},
		{"PUT", "namespace=shop", `{"overrides": [{"rule": "r", "mode": "off", "limits": [{"limit": 1}]}]}`, "overrides[0].limits[0].window: want 1 ms"},
		{"PUT", "namespace=shop", `{"overrides": [{"rule": "*", "mode": "shadow"}]}`, "overrides[0].mode: want off for all rules together"},
		{"PUT", "namespace=shop", `{"overrides": [{"rule": "*", "mode": "off", "limits": [{"limit": 1, "width_ms": 1}]}]}`, "overrides[0].mode: want off"},
		{"PUT", "namespace=shop", `{"overrides": [{"rule": "*", "limits": [{"limit": 1, "width_ms": 1}]}]}`, "overrides[0].rule: want 1 to 64"},
		{"DELETE", "namespace=shop&rule=r&whole&key=ann", "", "whole: want neither all nor key with it"},
		{"DELETE", "namespace=shop&rule=r&whole&all", "", "whole: want neither all nor key with it"},
		{"DELETE", "namespace=shop", "", "rule: want the rule"},
		{"DELETE", "namespace=shop&rule=r&all&key=ann", "", "all: want either all or key, got both"},
	} {
		wantStatus(t, s, request(t, test.method, s.URL+"/v1/overrides?"+test.query, []byte(test.body)), 400, test.want)
	}
	if _, version, err := counters.Overrides(t.Context(), "shop", 0); version != 0 || err != nil {
		t.Errorf("version %d, error %v, want nothing changed", version, err)
	}
	change(t, s, "PUT", "namespace=shop", all(many[:wire.MaxOverrides]), wire.MaxOverrides)
	if got := overrides(t, s, "namespace=shop&some"); len(got.Overrides) != 50 || got.More != wire.MaxOverrides-50 {
		t.Errorf("%d and %d more", len(got.Overrides), got.More)
	}
	// Nodes can be told of counters that were changed, until the list has no room for more of that.
	reset := func(key string, status int, text string) {
		t.Helper()
		body := `{"id": "` + annID + `", "rule": "r", "key": ["` + key + `"], "reset": true}`
		wantStatus(t, s, request(t, "POST", s.URL+"/v1/counter?namespace=shop", []byte(body)), status, text)
	}
	reset("ann", 200, `"version"`)
	list, version, err := counters.Overrides(t.Context(), "shop", 0)
	for i := range 999 {
		list = wire.AppendOverride(list, &wire.Override{Rule: "s", Values: []string{fmt.Sprintf("%03d", i)}, Notice: wire.Notice{Reset: 1}})
	}
	must.OK(t, err)
	must.Get(counters.SetOverrides(t.Context(), "shop", version, list))(t)
	reset("bob", 503, "give back nothing more")
	// A full list keeps nobody from switching a rule off, or all of them.
	change(t, s, "PUT", "namespace=shop", `{"overrides": [{"rule": "*", "mode": "off"}, {"rule": "r", "mode": "shadow"}]}`, 2)
}

// A sender that pushes in another version of the format hears so, and keeps its hits.
func TestPushOfAnotherVersion(t *testing.T) {
	s := start(t, open(), server.Options{})
	old := wire.AppendPush(nil, examplePush())
	old[0]--
	wantStatus(t, s, request(t, "POST", s.URL+wire.PushPath, old), 415, "version and that of weir serve don't fit each other")
}

// Several backends share a store: a change by one is told by all, a tenth of a second later.
func TestOverridesOfSeveralBackends(t *testing.T) {
	counters := open()
	one, two := start(t, counters, server.Options{}), start(t, counters, server.Options{})
	told := func(s *httptest.Server, sequence uint64) uint64 {
		answer := pushed(t, s, &wire.Push{Namespace: "shop", Node: 1, Sender: 1, Sequence: sequence, Floor: 1})
		must.EqualOrEnd(t, answer.Overrides.Known, true, "told %+v", answer)
		return answer.Overrides.Version
	}
	must.Same(t, []uint64{told(one, 1), told(two, 1)}, []uint64{0, 0}, "versions")
	version := change(t, one, "PUT", "namespace=shop", `{"overrides": [{"rule": "r", "limits": [{"limit": 1, "width_ms": 1}]}]}`, 1)
	must.Equal(t, told(one, 2), version, "the backend that has changed it tells version")
	for sequence := uint64(2); told(two, sequence) != version; sequence++ {
		if sequence > 1_000_000 {
			t.Fatal("the other backend never hears of it")
		}
	}
}
