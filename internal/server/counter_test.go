package server_test

import (
	"encoding/hex"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/config"
	"weir/internal/backend"
	"weir/internal/counter"
	"weir/internal/must"
	"weir/internal/named"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

const annID = "01000000000000000000000000000000"

// takeHits takes hits of a fixed window and a token bucket of an hour, 100 each, as node 1 does.
func takeHits(t *testing.T, s *httptest.Server, sequence, hits uint64) (granted uint64) {
	t.Helper()
	take := wire.Take{Least: 1, Most: hits}
	for _, kind := range []window.Kind{window.FixedWindow, window.TokenBucket} {
		room := wire.Room{LimitCounter: wire.LimitCounter{ID: wire.ID{1}, Kind: uint8(kind), WidthMillis: 360 * 24 * 3_600_000}, Limit: 100, Cost: 1}
		if kind.Bursts() {
			room.Burst = 100
		}
		take.Rooms = append(take.Rooms, room)
	}
	push := wire.Push{Namespace: "shop", Node: 1, Sender: 1, Sequence: sequence, Floor: sequence, Takes: []wire.Take{take}}
	return pushed(t, s, &push).Grants[0].Units
}

// A key's counter is shown by the limits that are known, relieved and emptied; what the list of
// overrides has is not touched.
func TestCounter(t *testing.T) {
	s := start(t, open(), server.Options{})
	get := func(query string) string {
		t.Helper()
		found := readJSON[server.Counter](t, s, request(t, "GET", s.URL+"/v1/counter?namespace=shop&id="+annID+query, nil))
		text := ""
		for _, l := range found.Limits {
			text += fmt.Sprintf("%s %d", l.Algorithm, l.Used)
			if l.Limit != nil {
				text += fmt.Sprintf("/%d left %d", *l.Limit, *l.Left)
			}
			must.Equal(t, l.ResetMS != nil, l.Used > 0, "%+v: a reset where nothing runs, or none", l)
			text += "; "
		}
		if found.Override != nil {
			text += "override of " + found.Override.Rule
		}
		return text
	}
	post := func(body string) server.CounterChanged {
		t.Helper()
		return readJSON[server.CounterChanged](t, s, request(t, "POST", s.URL+"/v1/counter?namespace=shop", []byte(body)))
	}
	const ann = `{"id": "` + annID + `", "rule": "per-user", "key": ["ann"], `
	change(t, s, "PUT", "namespace=shop", `{"overrides": [{"rule": "other", "key": ["ann"], "limits": [{"limit": 1, "width_ms": 1000}]}]}`, 1)
	must.Equal(t, get(""), "", "")
	must.Equal(t, get("&limit=fixed_window/31104000000/0/0/50/0"), "fixed_window 0/50 left 50; ", "")
	if got := post(ann + `"reset": true}`); got.Returned != 0 || got.Version == 0 {
		t.Errorf("nothing was counted: %+v", got)
	}
	must.EqualOrEnd(t, takeHits(t, s, 1, 500), 100, "granted")
	must.Equal(t, get(""), "fixed_window 100; token_bucket 100/100 left 0; ", "")
	must.Equal(t, get("&limit=fixed_window/31104000000/0/0/130/0"), "fixed_window 100/130 left 30; token_bucket 100/100 left 0; ", "")
	must.Equal(t, post(ann+`"grant": 30}`).Returned, 60, "30 of two limits")
	must.Equal(t, get(""), "fixed_window 70; token_bucket 70/100 left 30; ", "")
	must.Equal(t, takeHits(t, s, 2, 500), 30, "granted")
	last := post(ann + `"reset": true}`)
	must.Equal(t, last.Returned, 200, "emptied: %+v", last)
	must.Equal(t, takeHits(t, s, 3, 40), 40, "granted")
	change(t, s, "PUT", "namespace=shop", `{"overrides": [{"rule": "per-user", "key": ["ann"], "limits": [{"limit": 500, "width_ms": 31104000000}, {"limit": 60, "width_ms": 31104000000}]}]}`, 1)
	// A token bucket of another limit is full at the same time.
	must.Equal(t, get("&rule=per-user&key=ann"), "fixed_window 40/500 left 460; token_bucket 24/60 left 36; override of per-user", "")
	must.Equal(t, get("&rule=per-user&key=bob"), "fixed_window 40; token_bucket 40/100 left 60; ", "")

	// Notices are not among the overrides, and stay when those go.
	must.Equal(t, len(overrides(t, s, "namespace=shop").Overrides), 2, "overrides")
	change(t, s, "DELETE", "namespace=shop&rule=per-user&key=ann", "", 1)
	change(t, s, "DELETE", "namespace=shop&rule=per-user&key=ann", "", 0)
	push := wire.Push{Namespace: "shop", Node: 9, Sender: 9, Sequence: 1, Floor: 1, Known: wire.Known{Asks: true}}
	list, _, err := wire.DecodeList(pushed(t, s, &push).Overrides.Part)
	if err != nil || len(list) != 2 || !list[1].IsNotice() || list[1].Notice.Reset == 0 || list[1].Notice.Granted == 0 || list[1].Until == 0 {
		t.Errorf("nodes are told %+v, %v: want an override, and one notice of a reset and a grant", list, err)
	}
}

// The answer says why a question or a change is wrong, and nothing has changed.
func TestCounterMistakes(t *testing.T) {
	s := start(t, open(), server.Options{})
	for query, want := range map[string]string{
		"id=" + annID:          "namespace: want",
		"namespace=shop&id=12": "id: want 32 hexadecimal digits",
		"namespace=shop&id=" + annID + "&limit=10/1m":                                    "limit: want ALGORITHM/",
		"namespace=shop&id=" + annID + "&limit=fixed_window/0/0/0/1/0":                   "limit: want ALGORITHM/",
		"namespace=shop&id=" + annID + "&limit=fixed_window/1000/0/256/1/0":              "limit: want ALGORITHM/",
		"namespace=shop&id=" + annID + "&limit=fixed_window/1000/0/0/1000000000000000/0": "limit: want ALGORITHM/",
		"namespace=shop&id=" + annID + "&limit=token_bucket/1000/0/0/1/1000000000000000": "limit: want ALGORITHM/",
		"namespace=shop&id=" + annID + strings.Repeat("&limit=x", 9):                     "limit: want at most 8",
	} {
		wantStatus(t, s, request(t, "GET", s.URL+"/v1/counter?"+query, nil), 400, want)
	}
	for body, want := range map[string]string{
		``:                                     "want a JSON object",
		`{"id": "` + annID + `", "rule": "r"}`: "want either",
		`{"id": "` + annID + `", "rule": "r", "reset": true, "grant": 1}`:                                   "want either",
		`{"id": "x", "rule": "r", "reset": true}`:                                                           "body: id: want 32",
		`{"id": "` + annID + `", "reset": true}`:                                                            "rule: want 1 to 64",
		`{"id": "` + annID + `", "rule": "r", "grant": 9007199254740992}`:                                   "grant: want at most",
		`{"id": "` + annID + `", "rule": "r", "reset": true, "key": ["` + strings.Repeat("x", 1025) + `"]}`: "key[0]: want at most 1024",
	} {
		wantStatus(t, s, request(t, "POST", s.URL+"/v1/counter?namespace=shop", []byte(body)), 400, want)
	}
	must.Equal(t, overrides(t, s, "namespace=shop").Version, 0, "changes")
}

// A token bucket without a limit has room for nothing.
func TestEmptyBucket(t *testing.T) {
	none := window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: 60e9}, Burst: 1}
	c := server.CounterOf(&backend.Counter{}, nil, &server.CounterAsked{Limits: []window.Limit{none}})
	if len(c.Limits) != 1 || *c.Limits[0].Limit != 0 || c.Limits[0].Burst != 0 {
		t.Errorf("got %+v", c)
	}
}

// People are told of whole milliseconds, of leased hits among those that are used, of a block as one hit, and of no time until
// a place is free. All rules together go before one of them.
func TestCounterOf(t *testing.T) {
	now := epoch.Add(time.Minute - 500*time.Microsecond).UnixNano()
	found := backend.Counter{NowNanos: uint64(now), Leased: 3, Pending: 2}
	asked := server.CounterAsked{Rule: "r", Limits: []window.Limit{
		{Shape: window.Shape{Kind: window.FixedWindow, Width: 60e9}, Max: 3}, {Shape: window.Shape{Kind: window.FixedWindow, Width: 3600e9}, Max: 9}, window.NewInFlight(2), window.NewBlock(10e9),
	}}
	for i, hits := range []int64{3, 2, 2, 2} {
		l := &asked.Limits[i]
		of := wire.LimitCounter{Kind: uint8(l.Kind), WidthMillis: uint64(l.Width / window.MinWidth), Precision: uint64(l.Precision)}
		found.Limits = append(found.Limits, store.LimitCounter{LimitCounter: of, Windows: []store.Window{{Number: store.NumberAt(of, uint64(now)), Hits: hits}}})
	}
	c := server.CounterOf(&found, []wire.Override{{Rule: wire.AllRules, Mode: wire.Off}, {Rule: "r", Mode: wire.Shadow}}, &asked)
	got := c.Mode
	for _, l := range c.Limits {
		got += fmt.Sprintf("; %s %d, %d leased, %d pending", l.Algorithm, l.Used, l.Leased, l.Pending)
		if l.NextMS != nil {
			got += fmt.Sprint(", next ", *l.NextMS, " reset ", *l.ResetMS)
		}
	}
	must.Equal(t, got, "off; fixed_window 3, 3 leased, 2 pending, next 1 reset 1; fixed_window 2, 0 leased, 2 pending, next 3540001 reset 3540001; in_flight 2, 0 leased, 0 pending; block 1, 0 leased, 0 pending, next 10140 reset 10140", "")
}

// A key's counter is told by the override that nodes go by. Of an address as much counts as they have told; a mode
// alone gives a key no limits; and each limit of an override is for the window of its own.
func TestCounterAsNodesDecide(t *testing.T) {
	s := start(t, open(), server.Options{Identity: named.Plain})
	limit := func(width time.Duration, most uint64, described string) wire.ToldLimit {
		return wire.ToldLimit{Limit: window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: int64(width)}, Max: most}, Described: described}
	}
	const day, minute = 24 * time.Hour, time.Minute
	told := wire.AppendTold(nil, 0, []wire.RuleShape{
		{Name: "login", Key: []byte{0, 0, 24, 56}, Flags: wire.Varies, Limits: []wire.ToldLimit{limit(minute, 5, "")}},
		{Name: "budget", Key: []byte{0, 0}, Limits: []wire.ToldLimit{limit(31*day, 900, "\x02\x01\x00UTC"), limit(minute, 50, "")}},
		{Name: "any", Flags: wire.AnyKey}, {Name: "alone", Flags: wire.Local},
	})
	report := wire.Report{Namespace: "shop", Node: 1, Sender: 1, AtNanos: uint64(time.Now().UnixNano()), Digest: wire.DigestOf(told), Told: told}
	wantStatus(t, s, request(t, "POST", s.URL+wire.PushPath, wire.AppendReport(nil, &report)), 200)
	want := func(query, want string) {
		t.Helper()
		found := readJSON[server.Counter](t, s, request(t, "GET", s.URL+"/v1/counter?namespace=shop&id="+annID+query, nil))
		got := fmt.Sprint("varies ", found.Varies)
		for _, l := range found.Limits {
			got += fmt.Sprint(", ", *l.Limit)
		}
		must.Equal(t, got, want, "%s", query)
	}
	set := func(override string) {
		t.Helper()
		change(t, s, "PUT", "namespace=shop", `{"overrides": [`+override+`]}`, 1)
	}
	want("&rule=login&key=gold&key=10.1.2.3", "varies true, 5")
	set(`{"rule": "login", "mode": "shadow"}`)
	want("&rule=login&key=gold&key=10.1.2.3", "varies true, 5")
	set(`{"rule": "login", "key": ["go", "10.1.2.3"], "pattern": "prefix", "limits": [{"limit": 7, "width_ms": 60000}]}`)
	for _, address := range []string{"10.1.2.3", "10.1.2.99", "10.1.2.0/24", "10.1.2.99:4711"} {
		want("&rule=login&key=gold&key="+address, "varies false, 7")
	}
	want("&rule=login&key=gold&key=10.1.3.3", "varies true, 5")
	set(`{"rule": "login", "key": ["gold", "10.1.0.0/16"], "pattern": "network", "part": 1, "limits": [{"limit": 8, "width_ms": 60000}]}`)
	want("&rule=login&key=gold&key=10.1.3.3:80", "varies false, 8")
	set(`{"rule": "login", "key": ["gold", "2001:DB8::7"], "limits": [{"limit": 9, "width_ms": 60000}]}`)
	want("&rule=login&key=gold&key=2001:db8:0:1::1", "varies false, 9")
	want("&rule=login&key=gold", "varies true, 5")
	set(`{"rule": "budget", "key": ["ann"], "limits": [{"limit": 60, "width_ms": 60000}, {"limit": 1000, "width_ms": 2678400000}]}`)
	want("&rule=budget&key=ann", "varies false, 1000, 60")

	// A key is found by its values alone, as a node without a secret names it.
	plain := counter.NewIdentities("")
	selectors := []config.Selector{{}, {Kind: config.SelectClientIP, IPv4Prefix: 24, IPv6Prefix: 56}}
	for _, address := range []string{"10.1.2.3", "10.1.2.0/24", "2001:db8::7"} {
		id := named.Identity(&plain, "login", selectors, []string{"gold", address})
		wantStatus(t, s, request(t, "GET", s.URL+"/v1/counter?namespace=shop&rule=login&key=gold&key="+address, nil), 200, `"id":"`+hex.EncodeToString(id[:]))
	}
	for query, want := range map[string]string{
		"none&key=a":            `rule: no node has told the key of \"none\"`,
		"any&key=a":             `rule: no node has told the key of \"any\"`,
		"alone":                 "rule: each node counts alone alone, so",
		"login&key=gold":        "key: want 2 values for the key of login, got 1",
		"login&key=gold&key=me": `key: want an address for value 2 of the key of login, got \"me\"`,
	} {
		wantStatus(t, s, request(t, "GET", s.URL+"/v1/counter?namespace=shop&rule="+query, nil), 400, want)
	}
}
