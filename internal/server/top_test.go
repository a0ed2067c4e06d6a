package server_test

import (
	"encoding/hex"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

// A client that looks at a namespace again and again leaves room for those who look at others, and
// for pushes.
func TestLooksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := &heldLists{Store: memory.New(memory.Options{}), letGo: make(chan struct{})}
		handler := server.Handler(held, server.Options{Logger: slog.New(slog.DiscardHandler)})
		look := func(namespace string) int {
			code, _ := served(t, handler, "GET", server.TopPath+"?namespace="+namespace, nil)
			return code
		}
		ended := make(chan int)
		for _, namespace := range []string{"evil", "evil", "victim"} {
			go func() { ended <- look(namespace) }()
		}
		synctest.Wait()
		must.Equal(t, held.asked.Load(), 3, "looks under way")
		must.Equal(t, look("evil"), http.StatusServiceUnavailable, "a third look at once: status")
		code, _ := served(t, handler, "GET", server.CounterPath+"?namespace=evil&rule=all", nil)
		must.Equal(t, code, http.StatusServiceUnavailable, "status of a look for a counter beside them")
		close(held.letGo)
		for range 3 {
			must.Equal(t, <-ended, http.StatusOK, "status")
		}
		must.Equal(t, look("evil"), http.StatusOK, "a look after the others: status")
	})
}

// Programs read these answers: their names, the order of these, and how figures are rounded stay.
func TestAnswersOfFigures(t *testing.T) {
	now := func() time.Time { return epoch.Add(1234567 * time.Microsecond) }
	handler := server.Handler(open(), server.Options{Logger: slog.New(slog.DiscardHandler), Now: now})
	push := func(body []byte) {
		t.Helper()
		code, answer := served(t, handler, "POST", wire.PushPath, body)
		must.EqualOrEnd(t, code, http.StatusOK, "status of a push that is answered %q", answer)
	}
	at, id := uint64(epoch.UnixNano()), wire.ID{0xab}
	bucket := window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: 60e9}, Max: 5, Burst: 9}
	limits := []wire.ToldLimit{
		{Limit: bucket}, {Limit: window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: 60e9, Precision: 15e9}, Max: 30}},
		{Limit: window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: 31 * 24 * 3600e9}, Max: 100}, Described: "\x02\x01\x00UTC"},
	}
	rules := []wire.RuleShape{{Name: "new", Key: []byte{0, 0}, Flags: wire.Varies, Limits: limits[:1]}, {Name: "per-user", Key: []byte{0, 0}, Limits: limits}}
	key := wire.ReportKey{ID: id, Hits: 50, Error: 20, Recent: 10, Use: 333, Name: wire.AppendValue(wire.AppendValue(nil, []byte("ann\n"), false), []byte("Mo\xff"), true)}
	amounts := wire.Amounts{Requests: 100, Hits: 200, RefusedRequests: 30, RefusedHits: 40}
	for i, node := range []uint64{1, 0xfedcba9876543210, 3} {
		told := wire.AppendTold(nil, 0, rules[i/2:])
		push(wire.AppendReport(nil, &wire.Report{
			Namespace: "shop", Node: node, Sender: node, AtNanos: at, Digest: wire.DigestOf(told), Told: told, Held: []wire.HeldKey{{ID: id, Places: uint64(i + 1), SinceNanos: at + 1 - 5e6*uint64(i)}},
			Rules: []wire.RuleReport{{
				Name: "per-user", SpanMillis: 7000, Amounts: amounts, Every: 8, RecentMillis: 3000, Recent: amounts,
				Used:    wire.KeyList{Floor: 2, Keys: []wire.ReportKey{key, {ID: wire.ID{0xcd, byte(i)}, Hits: 5}}},
				Refused: wire.KeyList{Floor: 1, Keys: []wire.ReportKey{key}},
			}, {
				Name: "new", Shadow: true, SpanMillis: 1000, Amounts: wire.Amounts{Requests: 1}, Every: 1, Limits: []wire.ReportLimit{{Max: 5, WidthMillis: 60_000}},
				Sample: wire.Sample{Threshold: 1 << 62, Busy: []wire.BusyWindows{{Newest: at / 60e9, Windows: []wire.BusyWindow{{}, {Hits: 40, Floor: 3}}}}},
			}},
		}))
	}
	of := wire.LimitCounter{ID: id, Kind: uint8(bucket.Kind), WidthMillis: 60_000}
	push(wire.AppendPush(nil, &wire.Push{Namespace: "shop", Sender: 9, Sequence: 1, Floor: 1, Items: []wire.Item{{LimitCounter: of, Limit: 5, Newest: at, Hits: []int64{4}}}}))
	for path, want := range map[string]string{
		server.TopPath + "?namespace=none": `{"nodes":0,"senders":0,"oldest_seconds":0,"rules":[]}`,
		server.TopPath + "?namespace=shop&keys=2": `{"nodes":3,"senders":3,"oldest_seconds":1.235,"rules":[
{"rule":"new","shadow":true,"nodes":3,
"limits":[{"algorithm":"token_bucket","width_ms":60000,"limit":5,"burst":9}],"varies":true,"seconds":1,"requests":3,"refused_requests":0,"requests_per_second":3,"hits_per_second":0,"refused_requests_per_second":0,"refused_hits_per_second":0,"share_refused":0,
"used":[],
"refused":[],
"others_hits_per_second":0,"others_refused_per_second":0,
"measured":{"keys":0,"refused":0,"every":4,
"limits":[{"limit":5,"width_ms":60000,"windows":1,"running":false,"hits":120,"least":0,"most":0,"sure":9,"unseen":9}]}},
{"rule":"per-user","shadow":false,"nodes":3,
"limits":[{"algorithm":"token_bucket","width_ms":60000,"limit":5,"burst":9},{"algorithm":"sliding_buckets","width_ms":60000,"precision_ns":15000000000,"limit":30},{"algorithm":"fixed_window","width_ms":2678400000,"period":"month","limit":100}],"seconds":7,"requests":300,"refused_requests":90,"requests_per_second":42.857,"hits_per_second":85.714,"refused_requests_per_second":12.857,"refused_hits_per_second":17.143,"share_refused":0.3,"recent_seconds":3,"recent":{"requests_per_second":100,"hits_per_second":200,"refused_requests_per_second":30,"refused_hits_per_second":40},
"used":[
{"hash":"ab000000000000000000000000000000","values":[{"text":"ann\n"},{"text":"Mo�","cut":true}],"hits_per_second":12.857,"hits_more":8.571,"hits_margin":13.093,"refused_per_second":12.857,"refused_more":8.571,"refused_margin":13.093,"recent_hits_per_second":10,"recent_refused_per_second":10,"use":0.333,"nodes":3,
"limits":[{"algorithm":"token_bucket","width_ms":60000,"ordinal":0,"used":4,"limit":5,"burst":9,"left":5,"next_ms":12000,"reset_ms":48000},{"algorithm":"sliding_buckets","width_ms":60000,"precision_ns":15000000000,"ordinal":0,"used":0,"limit":30,"left":30},{"algorithm":"fixed_window","width_ms":3088840838,"period":"month","ordinal":0,"used":0,"limit":100,"left":100}]},
{"hash":"cd000000000000000000000000000000","hits_per_second":0.714,"hits_more":0.571,"hits_margin":2.39,"refused_per_second":0,"refused_more":0.429,"refused_margin":0,"recent_hits_per_second":0,"recent_refused_per_second":0,"use":0,"nodes":1,
"limits":[{"algorithm":"token_bucket","width_ms":60000,"ordinal":0,"used":0,"limit":5,"burst":9,"left":9},{"algorithm":"sliding_buckets","width_ms":60000,"precision_ns":15000000000,"ordinal":0,"used":0,"limit":30,"left":30},{"algorithm":"fixed_window","width_ms":3088840838,"period":"month","ordinal":0,"used":0,"limit":100,"left":100}]},
{"hash":"cd010000000000000000000000000000","hits_per_second":0.714,"hits_more":0.571,"hits_margin":2.39,"refused_per_second":0,"refused_more":0.429,"refused_margin":0,"recent_hits_per_second":0,"recent_refused_per_second":0,"use":0,"nodes":1},
{"hash":"cd020000000000000000000000000000","hits_per_second":0.714,"hits_more":0.571,"hits_margin":2.39,"refused_per_second":0,"refused_more":0.429,"refused_margin":0,"recent_hits_per_second":0,"recent_refused_per_second":0,"use":0,"nodes":1}],
"refused":[
{"hash":"ab000000000000000000000000000000","values":[{"text":"ann\n"},{"text":"Mo�","cut":true}],"hits_per_second":12.857,"hits_more":8.571,"hits_margin":13.093,"refused_per_second":12.857,"refused_more":8.571,"refused_margin":13.093,"recent_hits_per_second":10,"recent_refused_per_second":10,"use":0.333,"nodes":3,
"limits":[{"algorithm":"token_bucket","width_ms":60000,"ordinal":0,"used":4,"limit":5,"burst":9,"left":5,"next_ms":12000,"reset_ms":48000},{"algorithm":"sliding_buckets","width_ms":60000,"precision_ns":15000000000,"ordinal":0,"used":0,"limit":30,"left":30},{"algorithm":"fixed_window","width_ms":3088840838,"period":"month","ordinal":0,"used":0,"limit":100,"left":100}]}],
"others_hits_per_second":0.857,"others_refused_per_second":0.429}],
"configurations":[{"digest":"38ab01bafb2acba3","nodes":["0000000000000001","fedcba9876543210"]},{"digest":"3d1e20da4727a743","nodes":["0000000000000003"]}]}`,
		server.CounterPath + "?namespace=shop&id=" + hex.EncodeToString(id[:]): `{
"limits":[{"algorithm":"token_bucket","width_ms":60000,"ordinal":0,"used":4,"limit":5,"burst":5,"left":1,"next_ms":12000,"reset_ms":48000}],"known":true,
"holders":[{"node":"0000000000000003","places":3,"oldest_ms":9},{"node":"fedcba9876543210","places":2,"oldest_ms":4},{"node":"0000000000000001","places":1,"oldest_ms":0}]}`,
	} {
		_, got := served(t, handler, "GET", path, nil)
		must.Equal(t, got, strings.ReplaceAll(want, "\n", "")+"\n", "%s", path)
	}
}
