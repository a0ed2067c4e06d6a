package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// biller counts each event once, by its id, as services that bill do: Lago refuses a batch with an id that it knows. After fails
// requests it loses the answers of as many more.
type biller struct {
	mu          sync.Mutex
	lago        bool
	fails, lost int
	repeats     int
	seen        map[string]bool
	sums        map[string]int64 // by subject, model and day
	authorized  string
}

func newBiller() *biller { return &biller{seen: map[string]bool{}, sums: map[string]int64{}} }

func (b *biller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.authorized = r.Header.Get("authorization")
	if b.fails > 0 {
		b.fails--
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	body, _ := io.ReadAll(r.Body) // what is cut is no JSON
	type data struct {
		Hits        int64
		Rule, Day   string
		Hash, Model string
	}
	var cloud []struct {
		SpecVersion, ID, Source, Type, Subject string
		Time                                   time.Time
		Data                                   data
	}
	var lago struct {
		Events []struct {
			ID         string `json:"transaction_id"`
			Subject    string `json:"external_subscription_id"`
			Code       string
			Timestamp  int64
			Properties data
		}
	}
	var err error
	if b.lago {
		err = json.Unmarshal(body, &lago)
	} else {
		err = json.Unmarshal(body, &cloud)
	}
	if err != nil || !b.lago && r.Header.Get("content-type") != "application/cloudevents-batch+json" || len(cloud) > 100 || len(lago.Events) > 100 {
		http.Error(w, "not events", http.StatusBadRequest)
		return
	}
	count := func(id, subject string, d data) {
		if b.seen[id] {
			b.repeats++
			return
		}
		b.seen[id] = true
		b.sums[strings.Join([]string{subject, d.Model, d.Day}, " ")] += d.Hits
	}
	for _, e := range cloud {
		if e.SpecVersion != "1.0" || e.Source != "weir/shop" || e.Type != "weir.usage" || e.Time.IsZero() || e.ID == "" {
			http.Error(w, "not an event", http.StatusBadRequest)
			return
		}
		count(e.ID, e.Subject, e.Data)
	}
	for i, e := range lago.Events {
		if b.seen[e.ID] {
			if len(lago.Events) == 1 {
				b.repeats++
			}
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprintf(w, `{"status":422,"error":"Unprocessable Entity","code":"validation_errors","error_details":{"%d":{"transaction_id":["value_already_exist"]}}}`, i)
			return
		}
	}
	for _, e := range lago.Events {
		count(e.ID, e.Subject+" "+e.Code, e.Properties)
	}
	if b.lost > 0 {
		b.lost--
		panic(http.ErrAbortHandler) // the events are counted, and nobody hears of it
	}
}

// TestUsagePush sends usage to a service that fails, loses answers and gets everything again after kills, and
// wants each hit to be counted once.
func TestUsagePush(t *testing.T) {
	now := time.Now().UTC()
	day, today, yesterday := uint32(now.Unix()/86400), now.Format(time.DateOnly), now.AddDate(0, 0, -1).Format(time.DateOnly)
	for form, code := range map[string]string{"cloudevents": "", "lago": " dollars"} {
		counters := memory.New(memory.Options{})
		sequence := uint64(0)
		use := func(values string, id byte, model string, on uint32, hits int64) {
			t.Helper()
			l := wire.UsedLabel{Rule: "dollars", Model: model, ID: wire.ID{id}}
			for v := range strings.FieldsSeq(values) {
				l.Name = wire.AppendValue(l.Name, []byte(v), false)
			}
			sequence++
			must.Get(counters.Account(t.Context(), &wire.Used{Namespace: "shop", Sender: 1, Sequence: sequence, Rows: []wire.UsedRow{
				{Label: wire.AppendUsedLabel(nil, &l), Day: on, Hits: hits},
			}}))(t)
		}
		b := newBiller()
		b.lago = form == "lago"
		service := httptest.NewServer(b)
		t.Cleanup(service.Close)
		state := filepath.Join(t.TempDir(), "pushed")
		set := map[string]string{"WEIR_BACKEND": serveHere(t, counters, server.Options{}), "WEIR_PUSH_TOKEN": "s3cret"}
		args := "usage shop --push " + service.URL + "/events --push-form " + form + " --state " + state + " --since " + yesterday
		use("ann team", 1, "gpt-5", day, 700)
		use("bob", 2, "", day-1, 5)
		use("old", 3, "", day-9, 1) // before the first day
		use("", 0, "", day, 3)
		b.fails = 1
		executeAll(t, set, []lineTest{{args, 1, "", `the service answered 503 Service Unavailable: "not now\n"`}})
		b.lost = 1
		executeAll(t, set, []lineTest{{args, 1, "", "EOF"}, {args, 0, "3 events sent", ""}})
		must.Equal(t, b.repeats, 3, "%s: events were sent twice", form)
		use("ann team", 1, "gpt-5", day, 6)
		use("bob", 2, "", day-1, -4) // a correction of yesterday
		executeAll(t, set, []lineTest{
			{args, 0, "2 events sent", ""}, {args, 0, "0 events sent", ""},
			{"usage shop dollars --push " + service.URL + " --state " + state, 1, "", "of another namespace or rule, or to another URL"},
		})
		want := map[string]int64{"ann/team" + code + " gpt-5 " + today: 706, "bob" + code + "  " + yesterday: 1, "others" + code + "  " + today: 3}
		must.Same(t, b.sums, want, "%s: counted", form)
		executeAll(t, set, []lineTest{{strings.Replace(args, state, state+"-of-another-cluster", 1), 0, "3 events sent", ""}})
		for of := range want {
			want[of] *= 2
		}
		must.Same(t, b.sums, want, "%s: counted of two clusters with the same namespace and keys", form)
		must.Equal(t, b.authorized, "Bearer s3cret", "%s: authorized by", form)
	}
	executeAll(t, nil, []lineTest{
		{"usage shop --push ftp://x --state s", 2, "", "--push: want a URL"},
		{"usage shop --push http://x", 2, "", "want --state"},
		{"usage shop --push http://x --state s --csv", 2, "", "want no --by"},
		{"usage shop --push http://x --state s --push-form xml", 2, "", "want cloudevents or lago"},
		{"usage shop --push http://x --state s --every 1ms", 2, "", "--every: want at least 1s"},
		{"usage shop --push http://x --state s --since today", 2, "", "--since: want a day"},
		{"usage shop --state s", 2, "", "go with --push"},
	})
}

// pushAt makes what pushes the usage that a weir serve tells to a service that bills, at a moment.
func pushAt(t *testing.T, url string, bills http.Handler, since string, now func() time.Time) *usagePush {
	t.Helper()
	service := httptest.NewServer(bills)
	t.Cleanup(service.Close)
	return &usagePush{
		backend: &backendFlags{url: url}, namespace: "shop", target: service.URL, form: "cloudevents", state: filepath.Join(t.TempDir(), "pushed"),
		since: since, out: io.Discard, stderr: io.Discard, now: now,
	}
}

// A month with more rows than an answer has room for is pushed, too.
func TestUsagePushOfAFullMonth(t *testing.T) {
	at := time.Date(2026, 11, 16, 9, 0, 0, 0, time.UTC)
	now := func() time.Time { return at }
	counters, u := memory.New(memory.Options{Now: now}), wire.Used{Namespace: "shop", Sender: 1}
	for i := range backend.MaxUsage + wire.MaxUsedRows {
		l := wire.UsedLabel{Rule: "r", ID: wire.ID{byte(i >> 16), byte(i >> 8), byte(i)}}
		day := time.Date(2026, 11, 1+i/9000, 0, 0, 0, 0, time.UTC)
		if u.Rows = append(u.Rows, wire.UsedRow{Label: wire.AppendUsedLabel(nil, &l), Day: uint32(day.Unix() / 86400), Hits: 1}); len(u.Rows) == wire.MaxUsedRows {
			u.Sequence++
			must.Get(counters.Account(t.Context(), &u))(t)
			u.Rows = u.Rows[:0]
		}
	}
	u.Rows, u.Sequence = []wire.UsedRow{{Label: wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: "r"}), Day: uint32(at.Unix() / 86400), Hits: 7}}, u.Sequence+1
	must.Get(counters.Account(t.Context(), &u))(t)
	b := newBiller()
	p := pushAt(t, serveHere(t, counters, server.Options{Now: now}), b, "2026-11-15", now)
	must.OK(t, p.run(t.Context()))
	must.Same(t, b.sums, map[string]int64{"others  2026-11-16": 7}, "counted")
}

// What a store has lost is not paid back, but a reservation that went back is, and so is what a full day counts as others': to
// whom it was sent.
func TestUsagePushOfAStoreThatForgets(t *testing.T) {
	const day, before = "2026-11-16", "2026-11-15"
	row := func(day, name string, hits int64) server.UsageRow {
		return server.UsageRow{Day: day, Rule: "r", Hash: "hash of " + name, Values: []backend.Value{{Text: name}}, Hits: hits}
	}
	others := server.UsageRow{Day: day, Rule: "r", Others: true, Hits: 9}
	var rows []server.UsageRow
	fails := ""
	serve := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("day") == fails {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		u := server.Usage{}
		for _, of := range rows {
			if of.Day == r.URL.Query().Get("day") {
				u.Rows = append(u.Rows, of)
			}
		}
		must.Report(t, json.NewEncoder(w).Encode(u))
	}))
	t.Cleanup(serve.Close)
	b, stderr := newBiller(), &bytes.Buffer{}
	p := pushAt(t, serve.URL, b, before, func() time.Time { return time.Date(2026, 11, 16, 9, 0, 0, 0, time.UTC) })
	p.stderr = stderr
	for _, step := range []struct {
		name              string
		rows              []server.UsageRow
		ann, bob, carl, o int64
		lost              bool
	}{
		{"used", []server.UsageRow{row(before, "bob", 5), row(day, "ann", 700), row(day, "carl", 9)}, 700, 5, 9, 0, false},
		{"a reservation went back", []server.UsageRow{row(before, "bob", 5), row(day, "ann", 0), row(day, "carl", 9)}, 0, 5, 9, 0, false},
		{"carl is one of others", []server.UsageRow{row(before, "bob", 5), row(day, "ann", 700), others}, 700, 5, 0, 9, false},
		{"the store is new", []server.UsageRow{row(day, "ann", 3)}, 700, 5, 0, 9, true},
		{"used since", []server.UsageRow{row(before, "bob", 1), row(day, "ann", 13), row(day, "carl", 2)}, 710, 6, 2, 9, false},
		{"given back since", []server.UsageRow{row(before, "bob", 0), row(day, "ann", 10), row(day, "carl", 2)}, 707, 5, 2, 9, false},
	} {
		rows = step.rows
		stderr.Reset()
		if step.lost { // it is not well yet
			fails = day
			must.Fails(t, p.run(t.Context()), "%s: the first time", step.name)
			fails = ""
		}
		must.OK(t, p.run(t.Context()))
		want := map[string]int64{"ann  " + day: step.ann, "bob  " + before: step.bob, "carl  " + day: step.carl}
		if step.o != 0 {
			want["others  "+day] = step.o
		}
		must.Same(t, b.sums, want, "%s: counted", step.name)
		must.Equal(t, strings.Contains(stderr.String(), "has lost usage of "+before), step.lost, "%s: told is %q", step.name, stderr)
		must.Equal(t, stderr.Len() > 0, step.lost, "%s: anything told: %q", step.name, stderr)
	}
}

// A worker that falls silent is a gap once it is given up, in all that weir usage tells. It goes when the worker is heard
// again; there is none of workers that have said that they end. A service that bills hears of it once, a day later.
func TestUsageTellsGaps(t *testing.T) {
	at := time.Date(2026, 11, 16, 9, 0, 0, 0, time.UTC)
	now := func() time.Time { return at }
	url := serveHere(t, memory.New(memory.Options{Now: now}), server.Options{Now: now})
	tell := func(sender, sequence uint64, rows int, ended ...uint64) {
		t.Helper()
		u := wire.Used{Namespace: "shop", Sender: sender, Sequence: sequence, Node: 7, AtNanos: uint64(at.UnixNano()), Ended: ended}
		for range rows {
			u.Rows = append(u.Rows, wire.UsedRow{Label: wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: "r"}), Day: uint32(at.Unix() / 86400), Hits: 1})
		}
		wantStatus(t, "POST", url+wire.PushPath, "", wire.AppendUsed(nil, &u), http.StatusOK)
	}
	set := map[string]string{"WEIR_BACKEND": url}
	tell(1, 1, 1)
	tell(2, 1, 0)
	tell(3, 1, 1, 3)
	tell(4, 1, 1)
	tell(5, 1, 1, 4)
	tell(4, 1, 1) // it was late on its way
	at = at.Add(store.NodeLife)
	tell(5, 2, 0, 5)
	executeAll(t, set, []lineTest{{"usage shop --json", 0, `{"from":"2026-11-01","to":"2026-11-30","rows":[{"rule":"r","others":true,"hits":4}]}`, ""}})
	at = at.Add(time.Second)
	executeAll(t, set, []lineTest{
		{"usage shop", 0, "RULE  KEY     USED\nr     others  4\n\nworkers of proxies that ended without a word, and what they had not told is missing:\n" +
			"PROXY             HAD TOLD ALL AT       GIVEN UP AT           LAST HEARD\n" +
			"0000000000000007  2026-11-16T09:00:00Z  2026-11-16T09:02:00Z  counting\n" +
			"0000000000000007  2026-11-16T09:00:00Z  2026-11-16T09:02:00Z  idle\n", ""},
		{"usage shop --csv", 0, "month,day,rule,key,hash,model,hits,budget_used,budget_quota,budget_start,budget_end,budget_ends_at,gap_node,gap_from,gap_to,gap_idle\n" +
			",,r,others,,,4,,,,,,,,,\n,,,,,,0,,,,,,0000000000000007,2026-11-16T09:00:00Z,2026-11-16T09:02:00Z,false\n", ""},
		{"usage shop --month 2026-10 --json", 0, `{"from":"2026-10-01","to":"2026-10-31","rows":[]}`, ""},
	})
	tell(2, 2, 1) // it is back
	executeAll(t, set, []lineTest{{"usage shop --json", 0, `{"from":"2026-11-01","to":"2026-11-30","rows":[{"rule":"r","others":true,"hits":5}],"gaps":[` +
		`{"node":"0000000000000007","worker":"0000000000000001","from":"2026-11-16T09:00:00Z","to":"2026-11-16T09:02:00Z","idle":false}]}`, ""}})
	tell(2, 3, 0, 2)
	for _, form := range []string{"cloudevents", "lago"} {
		gaps := []string{}
		push := pushAt(t, url, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			gaps = append(gaps, string(body))
		}), "2026-11-15", now)
		push.form = form
		begun := at
		for range 3 {
			must.OK(t, push.run(t.Context()))
			at = at.Add(gapFinal)
		}
		at = begun
		all := strings.Join(gaps, "\n")
		want := map[string]string{"cloudevents": `"type":"weir.gap","subject":"0000000000000007","time":"2026-11-16T09:00:00Z"`, "lago": `"code":"weir.gap","external_subscription_id":"0000000000000007"`}[form]
		if len(gaps) != 2 || strings.Contains(gaps[0], "weir.gap") || strings.Count(all, "weir.gap") != 1 || !strings.Contains(all, want) || !strings.Contains(all, `"worker":"0000000000000001"`) {
			t.Errorf("%s: %s", form, all)
		}
	}
}
