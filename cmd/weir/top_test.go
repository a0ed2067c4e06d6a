package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// Keys that nodes have seen are shown to people, and reach their terminal only as text.
func TestTop(t *testing.T) {
	kept := memory.New(memory.Options{})
	name := wire.AppendValue(wire.AppendValue(nil, []byte("an\x1b[31m\nn"), false), []byte("Mozi"), true)
	at := uint64(time.Now().UnixNano())
	body := wire.AppendReport(nil, &wire.Report{Namespace: "shop", Node: 1, Sender: 1, AtNanos: at, Rules: []wire.RuleReport{
		{
			Name: "per-user", SpanMillis: 10_000, Amounts: wire.Amounts{Requests: 1000, Hits: 1000, RefusedRequests: 200, RefusedHits: 200}, Every: 8,
			RecentMillis: 10_000, Recent: wire.Amounts{Requests: 3000, Hits: 3000, RefusedRequests: 1500, RefusedHits: 1500},
			Used:    wire.KeyList{Floor: 10, Keys: []wire.ReportKey{{ID: wire.ID{0xab}, Hits: 500, Error: 100, Recent: 420, Use: 1000, Name: name}, {ID: wire.ID{0xcd}, Hits: 30}}},
			Refused: wire.KeyList{Keys: []wire.ReportKey{{ID: wire.ID{0xab}, Hits: 200}}},
		},
		{
			Name: "new", Shadow: true, SpanMillis: 10_000, Amounts: wire.Amounts{Requests: 40, Hits: 40, RefusedRequests: 10}, Every: 1,
			Limits: []wire.ReportLimit{{Max: 5, WidthMillis: 60_000}},
			Sample: wire.Sample{Threshold: 1 << 62, Keys: []wire.SampledKey{{Hash: 1, Refused: true, Asked: []wire.AskedWindows{{Newest: at/60e9 - 1, Hits: []uint32{40}}}}}},
		},
	}})
	for name, most := range map[string]uint32{"zipf": 413, "flat": 0} {
		sample := wire.Sample{Threshold: 1 << 56, Keys: []wire.SampledKey{{Hash: 1, Asked: []wire.AskedWindows{{Newest: at/60e9 - 1, Hits: []uint32{4}}}}}}
		sample.Busy = []wire.BusyWindows{{Newest: at / 60e9, Windows: []wire.BusyWindow{{}, {Hits: 1000, Floor: 30}}}}
		if most > 0 {
			sample.Busy[0].Windows[1].Keys = []wire.BusyKey{{Hash: 1 << 60, Hits: most}}
		}
		report := wire.AppendReport(nil, &wire.Report{
			Namespace: "shop", Node: 1, Sender: uint64(most), AtNanos: at, Rules: []wire.RuleReport{{
				Name: name, Shadow: true, SpanMillis: 10_000, Amounts: wire.Amounts{Requests: 40, Hits: 40}, Every: 1, Limits: []wire.ReportLimit{{Max: 5, WidthMillis: 60_000}}, Sample: sample,
			}},
		})
		must.Get(kept.Note(t.Context(), store.Reports, "shop", store.Note{Member: uint64(len(name)) + uint64(most), Body: report}))(t)
	}
	must.Get(kept.Note(t.Context(), store.Reports, "shop", store.Note{Member: 1, Body: body}))(t)
	for sender := range uint64(store.MaxReports) {
		report := wire.AppendReport(nil, &wire.Report{Namespace: "crowd", Node: 1, Sender: sender, AtNanos: at})
		must.Get(kept.Note(t.Context(), store.Reports, "crowd", store.Note{Member: sender, Body: report}))(t)
	}
	executeAll(t, map[string]string{"WEIR_BACKEND": serveHere(t, kept, server.Options{})}, []lineTest{
		{"top shop", 0, "1 node has reported, with 3 workers; the oldest report is ", ""},
		{"top shop", 0, "per-user: 100 requests/s, 100 hits/s, 20.00 % of requests refused\n", ""},
		{"top shop", 0, `"an\x1b[31m\nn" Mozi…`, ""},
		{"top shop per-user", 0, "refused\n  in the last 10 s: 300 requests/s, 300 hits/s, 50.00 % of requests refused\n  most hits", ""},
		{"top shop per-user", 0, "last 10 s  refused/s  last 10 s  used", ""},
		{"top shop per-user", 0, "  42  ", ""},
		{"top shop new", 0, "requests refused\n  most", ""},
		{"top shop", 0, "1 of 1\n  a key that is not among the first may have up to 1.00/s", ""},
		{"top shop --keys 1", 0, "and 1 more", ""},
		{"top shop new", 0, "new (shadow): 4.00 requests/s", ""},
		{"top shop none", 0, "1 node has reported", ""},
		{"top crowd", 0, "the backend keeps the reports of 512 workers, and has no room for others: figures may lack some\n", ""},
		{"top other", 0, "no node has reported in the last half minute", ""},
		{"top shop --json", 0, `"hash":"ab000000000000000000000000000000","values":[{"text":"an\u001b[31m\nn"},{"text":"Mozi","cut":true}]`, ""},
		{"report shop new", 0, "it would have refused 25.00 % of requests (10 of 40); this is exact", ""},
		{"report shop new", 0, "100 % of keys (1 of 1, a sample of 1 in 4)", ""},
		{"report shop new", 0, "the least that refuses at most 0.1 % of hits is 40", ""},
		{"report shop new", 0, "made from the sample of keys alone", ""},
		{"report shop zipf", 0, "the least that refuses at most 0.1 % of hits is 412; the most of a key in a window is 413 (1000 hits in 1 window of the clock)", ""},
		{"report shop zipf", 0, "made from all keys with more than 30 hits in a window; others are sure not to matter", ""},
		{"report shop zipf --json", 0, `"least":412,"most":413,"sure":412,"unseen":30`, ""},
		{"report shop flat", 0, "the least that refuses at most 0.1 % of hits is 4; the most of a key in a window is 4 (1000 hits in 1 window of the clock)", ""},
		{"report shop flat", 0, "made from the keys with most hits and the sample; a key that is in neither had 30 in a window at most, so 30 is sure", ""},
		{"report shop per-user", 0, "it has refused 20.00 % of requests (200 of 1000)", ""},
		{"report shop per-user", 0, "known of shadow rules only", ""},
		{"report shop none", 1, "", `no node has seen a request of rule "none"`},
		{"report shop", 2, "", "want NAMESPACE RULE"},
		{"top", 2, "", "want NAMESPACE [RULE]"},
		{"top shop --keys 65", 2, "", "--keys of 1 to 64"},
		{"top a*", 1, "", "namespace: want"},
		{"top shop --backend http://127.0.0.1:1", 1, "", "connection refused"},
	})
}

// A follower reports once that the backend is away, shows the next page when it is back, and ends
// when the backend refuses to answer.
func TestTopFollows(t *testing.T) {
	t.Parallel()
	kept := server.Handler(memory.New(memory.Options{}), server.Options{Logger: slog.New(slog.DiscardHandler)})
	answers := []int{http.StatusServiceUnavailable, http.StatusServiceUnavailable, 0, http.StatusBadGateway, 0, http.StatusServiceUnavailable, http.StatusUnauthorized}
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := answers[asked]
		if asked++; status != 0 {
			w.WriteHeader(status)
			return
		}
		kept.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	ticks := make(chan time.Time, len(answers))
	for range answers {
		ticks <- time.Time{}
	}
	var out, trouble strings.Builder
	c := topCommand{out: &out, keys: 10, backend: backendFlags{url: s.URL}}
	err := c.follow(t.Context(), url.Values{"namespace": {"shop"}}, &trouble, ticks)
	if err == nil || !strings.Contains(err.Error(), "401") || asked != len(answers) {
		t.Errorf("ended with %v after %d calls, want the refusal after %d", err, asked, len(answers))
	}
	must.Equal(t, strings.Count(out.String(), "no node has reported"), 2, "pages, want 2:\n%s", &out)
	want := ""
	for _, status := range []string{"503 Service Unavailable", "502 Bad Gateway", "503 Service Unavailable"} {
		want += "weir top: the backend answered " + status + ": no reason given; is this weir serve?; asking again\n"
	}
	must.Equal(t, trouble.String(), want, "trouble")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must.Report(t, c.follow(ctx, url.Values{"namespace": {"shop"}}, &trouble, ticks)) // ended by hand
}
