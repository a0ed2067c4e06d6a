package main

import (
	"path/filepath"
	"testing"
	"time"

	"weir/internal/calendar"
	"weir/internal/counter"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/trust"
	"weir/internal/wire"
	"weir/window"
)

// countKey counts hits of a key in a fixed window of 360 days, like proxies with a secret.
func countKey(t *testing.T, in store.Store, secret string, sequence uint64, hits int64, parts ...string) {
	t.Helper()
	countIn(t, in, 360*24*3_600_000, secret, sequence, hits, parts...)
}

// countIn is countKey in a fixed window of any width.
func countIn(t *testing.T, in store.Store, width uint64, secret string, sequence uint64, hits int64, parts ...string) {
	t.Helper()
	var key []byte
	for _, part := range parts {
		key = counter.AppendPart(key, part)
	}
	identities := counter.NewIdentities(secret)
	countAt(t, in, wire.LimitCounter{ID: identities.Of(key), Kind: uint8(window.FixedWindow), WidthMillis: width}, sequence, hits)
}

// countAt counts hits of a counter at the store's time.
func countAt(t *testing.T, in store.Store, of wire.LimitCounter, sequence uint64, hits int64) {
	t.Helper()
	read, err := in.Push(t.Context(), &wire.Push{Namespace: "shop", Sequence: 1, Floor: 1}, 1)
	if err == nil {
		item := wire.Item{LimitCounter: of, Newest: store.NumberAt(of, read.Answer.NowNanos), Hits: []int64{hits}}
		if window.Kind(of.Kind).Bucketed() {
			item.Ages, item.Limit = []uint64{0}, wire.MaxHits
		}
		_, err = in.Push(t.Context(), &wire.Push{Namespace: "shop", Sender: 1, Sequence: sequence, Floor: 1, Items: []wire.Item{item}}, 1)
	}
	must.OK(t, err)
}

// reportOf is a node's report of rules, as if it had requests of them.
func reportOf(rules ...string) wire.Report {
	r := wire.Report{Namespace: "shop", Node: 1, Sender: 1, AtNanos: uint64(time.Now().UnixNano())}
	for _, name := range rules {
		r.Rules = append(r.Rules, wire.RuleReport{Name: name, SpanMillis: 10_000, Amounts: wire.Amounts{Requests: 1, Hits: 1}, Every: 1})
	}
	return r
}

// noteReportOf notes such a report.
func noteReportOf(t *testing.T, in store.Store, rules ...string) {
	t.Helper()
	r := reportOf(rules...)
	must.Get(in.Note(t.Context(), store.Reports, "shop", store.Note{Member: r.Sender, Body: wire.AppendReport(nil, &r)}))(t)
}

// postTold posts such a report of a node that tells what rules it has.
func postTold(t *testing.T, address string, told []wire.RuleShape, rules ...string) {
	t.Helper()
	r := reportOf(rules...)
	r.Told = wire.AppendTold(nil, 0, told)
	r.Digest = wire.DigestOf(r.Told)
	wantStatus(t, "POST", "http://"+address+wire.PushPath, "", wire.AppendReport(nil, &r), 200)
}

// Keys are found by their values, with the proxies' secret and their configuration.
func TestCounter(t *testing.T) {
	tokens := must.Get(trust.OneToken("hunter2"))(t)
	in := memory.New(memory.Options{})
	const secret = "0123456789abcdef"
	countKey(t, in, "", 1, 40, "per-user", "ann")
	countKey(t, in, secret, 2, 7, "per-user", "ann")
	countKey(t, in, "", 3, 3, "all")
	block := window.NewBlock(int64(time.Hour))
	identities := counter.NewIdentities("")
	for i, key := range []string{"eve", "mal"} {
		of := wire.LimitCounter{
			ID: identities.Of(counter.AppendPart(counter.AppendPart(nil, "per-user"), key)), Kind: uint8(block.Kind),
			WidthMillis: uint64(block.Width / window.MinWidth), Precision: uint64(block.Precision),
		}
		countAt(t, in, of, uint64(5+i), 1)
	}
	countKey(t, in, "", 7, 6, "per-user", "eve")
	countAt(t, in, wire.LimitCounter{ID: identities.Of(counter.AppendPart(nil, "smooth")), Kind: uint8(window.SlidingWindow), WidthMillis: 3_600_000}, 8, 2)
	month, fault := calendar.New(calendar.Month, "Europe/Berlin", 1, 0)
	must.EqualOrEnd(t, fault, calendar.Sound, "")
	countIn(t, in, uint64(month.At(time.Now().UnixNano()).Width/window.MinWidth), secret, 4, 4, "monthly", "ann")
	noteReportOf(t, in, "per-user", "monthly", "all", "smooth")
	config := must.File(t, filepath.Join(t.TempDir(), "weir.json"), `{"namespace": "shop", "backend": {"cluster": "weir", "key_secret": "`+secret+`"}, "rules": [
		{"name": "per-user", "key": [{"header": "x-user"}], "limits": [{"limit": 10, "window": "360d", "algorithm": "fixed_window"}],
			"overrides": {"keys": [{"key": ["bob"], "limits": [{"limit": 99, "window": "360d", "algorithm": "fixed_window"}]}]}},
		{"name": "monthly", "key": [{"header": "x-user"}], "limits": [{"limit": 10, "window": "month", "zone": "Europe/Berlin", "algorithm": "fixed_window"}]},
		{"name": "tokens", "key": [{"header": "x-team"}], "limits": [{"limit": 10, "window": "360d", "algorithm": "fixed_window"}],
			"classes": {"by": {"header": "x-class"}, "of": {"batch": {"guaranteed": 0.1}}},
			"overrides": {"keys": [{"key": ["red"], "limits": [{"limit": 99, "window": "360d", "algorithm": "fixed_window"}]}]}},
		{"name": "alone", "sync_rate": -1, "limits": [{"limit": 10, "window": "1m"}]}]}`)
	executeAll(t, map[string]string{"WEIR_BACKEND": serveHere(t, in, server.Options{Tokens: tokens}), "WEIR_TOKEN": "hunter2"}, []lineTest{
		{"counter get shop per-user ann", 0, "fixed window of 360d: 40 used, free in ", ""},
		{"counter get shop per-user ann", 0, "with --config, the hits left are shown too\n", ""},
		{"counter get shop per-user ann --json", 0, `{"limits":[{"algorithm":"fixed_window","width_ms":31104000000,"ordinal":0,"used":40,"reset_ms":`, ""},
		{"counter get shop per-user bob", 1, "nobody has hit it in a window that counts", "a value or the secret may be wrong"},
		{"counter get shop per-user bob --allow-none", 0, "nobody has hit it in a window that counts", ""},
		{"counter get shop per-user zoe --config " + config, 1, "0 of 10 used, 10 left\n", "a value or the secret may be wrong"},
		{"counter get shop per-usr ann", 1, "", `no node has seen a request of rule "per-usr" in the last two minutes, but of all, monthly, per-user, smooth: did you mean per-user?`},
		{"counter reset shop per-user bob", 1, "", "a value or the secret may be wrong"},
		{"counter reset shop per-usr ann", 1, "", "did you mean per-user?"},
		{"counter grant shop per-user ann bob 3", 1, "", "a value or the secret may be wrong"},
		{"counter reset shop per-user zoe --allow-none", 0, "nothing was counted\n", ""},
		{"counter get shop all", 0, "3 used", ""},
		{"counter get shop smooth", 0, "sliding window of 1h: 2 used, next window in ", ""}, // its hits still weigh then
		{"counter get shop per-user --key ann --key-secret " + secret, 0, "7 used", ""},
		{"counter get shop per-user ann --config " + config, 0, "7 of 10 used, 3 left, free in ", ""},
		{"counter get shop per-user bob --config " + config, 0, "0 of 99 used, 99 left\nnobody has hit it", ""},
		{"counter grant shop per-user ann 30", 0, "30 given back\nfixed window of 360d: 10 used", ""},
		{"counter grant shop per-user ann 30", 0, "10 given back\nnothing is counted now\nno node has reported", ""},
		{"counter grant shop per-user ann 30 --config " + config, 0, "7 given back\nfixed window of 360d: 0 of 10 used, 10 left\n", ""},
		{"counter get shop monthly ann --config " + config, 0, "fixed window of a month: 4 of 10 used, 6 left, free in ", ""},
		{"override set shop monthly ann 20/month", 0, "", ""},
		{"counter get shop monthly ann --config " + config, 0, "fixed window of a month: 4 of 20 used, 16 left, free in ", ""},
		{"counter get shop tokens red batch --config " + config, 0, "0 of 99 used, 99 left\nnobody has hit it", ""},
		{"override set shop tokens --key blue --key= 20/360d --force", 0, "", ""},
		{"counter get shop tokens blue batch --config " + config, 0, "0 of 20 used, 20 left\n", ""},
		{"counter reset shop all", 0, "3 given back\nnothing is counted now\nno node has reported", ""},
		{"counter reset shop all", 0, "nothing was counted\n", ""},
		{"counter get shop per-user eve", 0, "refused whatever room there is", ""},
		{"counter grant shop per-user eve 2", 0, "2 given back\n", ""},
		{"counter get shop per-user eve", 0, "refused whatever room there is", ""},
		{"counter reset shop per-user eve", 0, "4 given back\nthe block is lifted\nnothing is counted now\n", ""},
		{"counter reset shop per-user mal", 0, "the block is lifted\nnothing is counted now\n", ""},

		{"counter", 2, "", "want get, reset or grant"},
		{"counter get shop", 2, "", "want get, reset or grant, then NAMESPACE RULE"},
		{"counter dance shop all", 2, "", `got "dance"`},
		{"counter grant shop all", 2, "", "how many hits"},
		{"counter grant shop per-user ann", 2, "", "how many hits"},
		{"counter grant shop per-user ann 0", 2, "", "how many hits"},
		{"counter reset shop all --json", 2, "", "want --json with get"},
		{"counter get shop all --wait 1s", 2, "", "want --wait with"},
		{"counter get shop per-user ann --key ann", 2, "", "want all values of the key as --key"},
		{"counter get shop per-user ann --key-secret short", 2, "", "want 16 characters"},
		{"counter get shop per-user --config " + config, 2, "", "want 1 values for the key of per-user, got 0"},
		{"counter get shop nobody --config " + config, 1, "", `has no rule "nobody", but per-user, monthly, tokens, alone`},
		{"counter get shop per-usr ann --config " + config, 1, "", "did you mean per-user?"},
		{"counter get shop alone --config " + config, 1, "", "each proxy counts alone alone"},
		{"counter get sho alone --config " + config, 1, "", "is of the namespace shop"},
		{"counter get * all", 1, "", "namespace: want"},
		{"counter reset shop a/b --allow-none", 1, "", "rule: want 1 to 64"},
		{"counter get shop all --token other", 1, "", "401 Unauthorized"},
	})
}
