package main

import (
	"log/slog"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/clientip"
	"weir/internal/counter"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store/memory"
	"weir/internal/trust"
	"weir/internal/wire"
	"weir/window"
)

// What nodes have told of their rules says limits, what is left and when there is room, without their
// configuration, and finds the counters of addresses. A token hears of its own namespaces.
func TestToldRules(t *testing.T) {
	at := time.Now()
	now := func() time.Time { return at.Add(time.Second / 2) } // however long the commands below take
	file := must.File(t, filepath.Join(t.TempDir(), "tokens"), "all\nshop of-shop\n")
	tokens := must.Get(trust.ReadTokens(file, now, slog.New(slog.DiscardHandler)))(t)
	url := serveHere(t, memory.New(memory.Options{Now: now}), server.Options{Now: now, Tokens: tokens})
	push := func(body []byte) string {
		return wantStatus(t, "POST", url+wire.PushPath, "all", body, 200)
	}
	limit := window.Limit{Shape: window.Shape{Kind: window.FirstHitWindow, Width: 3600e9}, Max: 5}
	rules := []wire.RuleShape{
		{Name: "per-ip", Key: []byte{24, 48}, Limits: []wire.ToldLimit{{Limit: limit}}},
		{Name: "new", Key: []byte{0, 0}, Flags: wire.IsShadow | wire.Varies, Limits: []wire.ToldLimit{{Limit: window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: 31 * 24 * 3600e9}, Max: 100}, Described: "\x02\x01\x00UTC"}}},
		{Name: "program", Flags: wire.AnyKey | wire.Local, Limits: []wire.ToldLimit{{Limit: window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: 1e9}, Max: 5, Burst: 9}}}},
	}
	var network [16]byte
	var identities counter.Identities
	id := wire.ID(identities.Of(counter.AppendPart(counter.AppendPart(nil, "per-ip"), clientip.Network([]byte("192.0.2.77"), 24, 48, &network))))
	other := wire.ID(identities.Of(counter.AppendPart(counter.AppendPart(nil, "per-ip"), clientip.Network([]byte("198.51.100.1"), 24, 48, &network))))
	for node := range uint64(4) {
		has := rules
		if node == 3 { // the last has another configuration
			has = append(slices.Clone(rules), wire.RuleShape{Name: "tenant", Key: []byte{0, 0}, Limits: []wire.ToldLimit{{Limit: limit}}})
		}
		told := wire.AppendTold(nil, 0, has)
		r := wire.Report{Namespace: "shop", Node: node + 1, Sender: node + 1, AtNanos: uint64(at.UnixNano()), Digest: wire.DigestOf(told), Rules: []wire.RuleReport{{
			Name: "per-ip", SpanMillis: 10_000, Amounts: wire.Amounts{Requests: 5, Hits: 5}, Every: 1,
			Used: wire.KeyList{Keys: []wire.ReportKey{{ID: id, Hits: 5, Recent: 1, Use: 1000, Leased: 9}, {ID: other, Hits: 2, Recent: node % 2, Use: 400, Leased: (node + 1) / 4, Pending: (node + 1) / 2}}}, SyncMillis: node / 3 * 60_000,
		}}}
		if asked := push(wire.AppendReport(nil, &r)); (asked == wire.TellRules) != (node == 0 || node == 3) {
			t.Errorf("node %d: %q", node, asked)
		} else if r.Told = told; asked != "" {
			push(wire.AppendReport(nil, &r))
		}
	}
	start := uint64(at.UnixNano())
	of := wire.LimitCounter{ID: id, Kind: uint8(limit.Kind), WidthMillis: 3600e3}
	p := wire.Push{Namespace: "shop", Node: 1, Sender: 9, Sequence: 1, Floor: 1, Items: []wire.Item{{LimitCounter: of, Newest: start, Hits: []int64{5}}}}
	p.Items = append(p.Items, p.Items[0])
	p.Items[1].ID, p.Items[1].Hits = other, []int64{2}
	// A node with another configuration than most has counted in a window that the others don't know.
	p.Items = append(p.Items, p.Items[0])
	p.Items[2].ID = wire.ID(identities.Of(counter.AppendPart(counter.AppendPart(nil, "per-ip"), clientip.Network([]byte("203.0.113.1"), 24, 48, &network))))
	p.Items[2].WidthMillis, p.Items[2].Hits = 7200e3, []int64{3}
	push(wire.AppendPush(nil, &p))
	push(wire.AppendReport(nil, &wire.Report{Namespace: "api", Node: 9, Sender: 9, AtNanos: start}))
	weir := func(token, args string) string {
		return said(t, map[string]string{"WEIR_BACKEND": url, "WEIR_TOKEN": token}, strings.Fields(args)...)
	}
	for _, test := range []struct{ token, args, want string }{
		{"all", "namespaces", `^0 NAMESPACE  PROXIES  UNLIKE MOST  RULES  LAST REPORT\napi        1        0            0      \ds ago\nshop       4        1            3      \ds ago\n$`},
		{"of-shop", "namespaces", `^0 NAMESPACE .*\nshop .*\n$`},
		{"of-shop", "namespaces api", `^1 weir namespaces: the backend answered 403`},
		{"all", "namespaces none", `^1 weir namespaces: no proxy has reported in none: they do so every 5 s, once there are requests\n$`},
		{"of-shop", "namespaces shop", `\nRULE     MODE     KEY                LIMITS\nper-ip   enforce  ADDRESS/24/48      5 a 1h \(first hit window\)\n` +
			`new      shadow   VALUE +100 a month \(fixed window\); some keys have others\n` +
			`program  enforce  up to the program  5 a 1s \(token bucket of 9\); each proxy counts alone\n` +
			`tenant   enforce  VALUE              5 a 1h \(first hit window\)\n\n1 of 4 nodes has another configuration than most: 0000000000000004\n$`},
		{"all", "top shop", `\n1 of 4 nodes has another configuration than most: 0000000000000004\n`},
		{"all", "top shop", `\n  5 a 1h \(first hit window\)\n(.*\n)*  most hits .* left now +room\n.* 0 of 5 +in 59m59\.\d+s\n.* 3 of 5 +now\n`},
		{"all", "top shop --json", `"limits":\[\{"algorithm":"first_hit_window","width_ms":3600000,"ordinal":0,"used":5,"limit":5,"left":0,"next_ms":\d+`},
		{"all", "report shop per-ip", `\n  it allows 5 a 1h \(first hit window\)\n`},
		{"all", "why shop 192.0.2.1", `^0 RULE     NOW        LIMITS\nper-ip   refuses    5 of 5 used, room in 59m59\.\d+s\nnew      may pass   0 of 100 used, room now; some keys have other limits\nprogram  not known  the key is up to the program\ntenant   passes     0 of 5 used, room now\n$`},
		{"all", "why shop 198.51.100.9", `\nper-ip   passes     1 of 5 used, 1 leased, up to 2 pending, room now\n`},
		{"all", "why shop ann", `^0 RULE     NOW        LIMITS\nper-ip   other key  the rule's key is ADDRESS/24/48\nnew      may pass   0 of 100 used, room now; some keys have other limits\nprogram  not known  the key is up to the program\ntenant   passes     0 of 5 used, room now\n$`},
		{"all", "why shop 203.0.113.1", `\nper-ip   not known  0 of 5 used, room now; 3 of an unknown limit used\n`},
		{"all", "why shop ann web", `^0 RULE     NOW        LIMITS\nper-ip   other key  the rule's key is ADDRESS/24/48\nnew      other key  the rule's key is VALUE\nprogram  not known  the key is up to the program\ntenant   other key  the rule's key is VALUE\n$`},
		{"all", "why none ann", `^1 weir why: no proxy has told a rule of "none" that has this key of 1 values: weir namespaces none lists the rules\n$`},
		{"of-shop", "why api ann", `^1 weir why: the backend answered 403`},
		{"all", "counter get shop per-ip 192.0.2.1", `^0 first hit window of 1h: 5 of 5 used, 0 left, room in 59m59\.\d+s, free in 59m59\.\d+s\n$`},
		{"all", "counter get shop per-ip 198.51.100.9", `^0 first hit window of 1h: 1 of 5 used, 1 leased, up to 2 pending, 3 left, free in .*\n  leased: some seconds ago .*\n  pending: passed at proxies`},
		{"all", "counter get shop per-ip ann", `^2 .*\n.*want an address for value 1 of the key of per-ip`},
		{"all", "counter get shop new ann --allow-none", `^0 fixed window of a month: 0 of 100 used, 100 left\n(.*\n)*some keys of this rule have other limits by the configuration`},
	} {
		if got := weir(test.token, test.args); !regexp.MustCompile(test.want).MatchString(got) {
			t.Errorf("weir %s: got\n%s\nwant %s", test.args, got, test.want)
		}
	}
	// With an override of a key of the rule, weir top says nothing of keys that may have it.
	if got := weir("all", "override set shop per-ip 192.0.2.1 50/1h"); !strings.HasPrefix(got, "0 ") {
		t.Error(got)
	}
	if got := weir("all", "top shop"); strings.Contains(got, "left now") || !strings.Contains(got, "some keys have others") {
		t.Errorf("with an override: %s", got)
	}
	must.Contains(t, weir("all", "counter get shop per-ip 192.0.2.1"), "5 of 50 used, 45 left", "")
	// Whatever the rule, or all of them, are set to is told beside a key's own override.
	for _, set := range []struct{ args, want string }{
		{"rule off shop per-ip", "mode: off, as weir rule show shop tells\n"}, {"rule set shop per-ip --mode shadow", "mode: shadow"},
		{"rule off --all shop --force", "mode: off"}, {"rule reset --all shop", "mode: shadow"},
	} {
		if got := weir("all", set.args); !strings.HasPrefix(got, "0 ") {
			t.Error(got)
		}
		if got := weir("all", "counter get shop per-ip 192.0.2.1"); !strings.Contains(got, "5 of 50 used, 45 left") || !strings.Contains(got, set.want) {
			t.Errorf("after weir %s: %s", set.args, got)
		}
	}
}

// Keys that share evenly have one counter, which people find by an empty value, also where proxies count addresses.
func TestFairRulesAreTold(t *testing.T) {
	address, _ := startServe(t, []string{"--insecure"}, nil)
	limit := window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: 3600e9}, Max: 100}
	rules := []wire.RuleShape{{Name: "plain", Key: []byte{0, 0}, Limits: []wire.ToldLimit{{Limit: limit}}}, {Name: "fair", Flags: wire.Fair | wire.Classes, Key: []byte{24, 48, 0, 0, 0, 0}, Limits: []wire.ToldLimit{{Limit: limit}}}}
	postTold(t, address, rules, "fair")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"namespaces", "shop"}, `\nfair   enforce  ADDRESS/24/48 "" VALUE  100 a 1h`},
		{[]string{"counter", "get", "shop", "fair", "192.0.2.1", "", "batch", "--allow-none"}, `^0 .*0 of 100 used`},
		{[]string{"counter", "get", "shop", "fair", "192.0.2.1", "ann", "batch"}, `^2 .*\n.*want an empty value 2 for the key of fair`},
		{[]string{"counter", "reset", "shop", "fair", "192.0.2.1", "", "batch", "--allow-none"}, `\na key that has had its even part, .* has room from its next window on\n`},
		{[]string{"why", "shop", "192.0.2.1", "ann", "batch"}, `\nfair   may pass   0 of 100 used, room now; of all keys together: the even part of each is counted at its proxies\n$`},
		{[]string{"override", "set", "shop", "fair", "192.0.2.1", "ann", "", "50/1h"}, `^1 .*a key of 3 values, of which the last two are empty`},
		{[]string{"override", "set", "shop", "fair", "192.0.2.1", "", "batch", "50/1h"}, `^1 .*of which the last two are empty`},
		{[]string{"override", "set", "shop", "fair", "--key", "192.0.2.1", "--key", "", "--prefix", "", "50/1h"}, `^1 .*of which the last two are empty`},
		{[]string{"override", "set", "shop", "fair", "192.0.2.1", "", "", "50/1h"}, `^0 `},
		{[]string{"counter", "get", "shop", "fair", "192.0.2.1", "", "batch", "--allow-none"}, `^0 .*0 of 50 used`},
		{[]string{"why", "shop", "192.0.2.1", "ann", "batch"}, `\nfair   may pass   0 of 50 used`},
		{[]string{"override", "set", "shop", "plain", "ann", "7/1h", "--force"}, `^0 `},
		{[]string{"why", "shop", "ann"}, `\nplain  passes     0 of 7 used`},
	} {
		if got := said(t, map[string]string{"WEIR_BACKEND": "http://" + address}, test.args...); !regexp.MustCompile(test.want).MatchString(got) {
			t.Errorf("weir %q: got\n%s\nwant %s", test.args, got, test.want)
		}
	}
	for value, status := range map[string]int{"": 200, "ann": 400} {
		wantStatus(t, "GET", "http://"+address+server.CounterPath+"?namespace=shop&rule=fair&key=192.0.2.1&key="+value+"&key=batch", "", nil, status)
	}
}

// A verdict is as sure as what is known of a key: a block is, and a limit that some keys have otherwise is not.
func TestVerdict(t *testing.T) {
	five, none, two := uint64(5), uint64(0), uint64(2)
	full := backend.CounterLimit{Algorithm: "fixed_window", Used: 5, Limit: &five, Left: &none}
	room := backend.CounterLimit{Algorithm: "fixed_window", Used: 3, Limit: &five, Left: &two}
	unknown := backend.CounterLimit{Algorithm: "fixed_window", Used: 3}
	blocks := backend.CounterLimit{Algorithm: block, Used: 1}
	type limits = []backend.CounterLimit
	for _, test := range []struct {
		mode    string
		counted server.Counter
		want    string
	}{
		{"enforce", server.Counter{}, "passes: nothing is used"},
		{"enforce", server.Counter{Limits: limits{room}}, "passes: 3 of 5 used, room now"},
		{"enforce", server.Counter{Limits: limits{room, full}}, "refuses: 3 of 5 used, room now; 5 of 5 used, room never"},
		{"enforce", server.Counter{Limits: limits{room, unknown}}, "not known: 3 of 5 used, room now; 3 of an unknown limit used"},
		{"enforce", server.Counter{Limits: limits{unknown, full}}, "refuses: 3 of an unknown limit used; 5 of 5 used, room never"},
		{"enforce", server.Counter{Limits: limits{unknown, blocks}}, "refuses: 3 of an unknown limit used; blocked"},
		{"enforce", server.Counter{Limits: limits{room}, Varies: true}, "may pass: 3 of 5 used, room now; some keys have other limits"},
		{"enforce", server.Counter{Limits: limits{full}, Varies: true}, "may refuse: 5 of 5 used, room never; some keys have other limits"},
		{"enforce", server.Counter{Limits: limits{full, blocks}, Varies: true}, "refuses: 5 of 5 used, room never; blocked; some keys have other limits"},
		{"shadow", server.Counter{Limits: limits{room}}, "passes: 3 of 5 used, room now"},
		{"shadow", server.Counter{Limits: limits{full}}, "would refuse (shadow): 5 of 5 used, room never"},
		{"shadow", server.Counter{Limits: limits{full}, Mode: "enforce"}, "refuses: 5 of 5 used, room never"},
		{"enforce", server.Counter{Limits: limits{full}, Mode: "off", Varies: true}, "may refuse (off): 5 of 5 used, room never; some keys have other limits"},
	} {
		now, limits := verdict(test.mode, &test.counted)
		must.Equal(t, now+": "+limits, test.want, "%s, %+v", test.mode, test.counted)
	}
}

// The rate limit service has no limit for some descriptors, where its protocol has the largest number.
func TestUnlimited(t *testing.T) {
	limit := backend.KnownLimit{Algorithm: "fixed_window", WidthMS: 3_600_000, Limit: math.MaxUint32}
	must.Equal(t, limitsText([]backend.KnownLimit{limit}, true, false), "unlimited; some keys have others", "")
	must.Equal(t, limitsText([]backend.KnownLimit{limit}, false, false), "4294967295 a 1h (fixed window)", "of a proxy")
}
