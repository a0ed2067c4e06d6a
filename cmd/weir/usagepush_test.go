package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// biller counts each event once, by its id, as services that bill do. After fails requests it loses the answers
// of as many more.
type biller struct {
	mu          sync.Mutex
	lago        bool
	fails, lost int
	repeats     int
	seen        map[string]bool
	sums        map[string]int64 // by subject, model and day
	authorized  string
}

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
		backend := httptest.NewServer(server.Handler(counters, server.Options{Logger: slog.New(slog.DiscardHandler), Now: time.Now}))
		t.Cleanup(backend.Close)
		b := &biller{lago: form == "lago", seen: map[string]bool{}, sums: map[string]int64{}}
		service := httptest.NewServer(b)
		t.Cleanup(service.Close)
		state := filepath.Join(t.TempDir(), "pushed")
		set := map[string]string{"WEIR_BACKEND": backend.URL, "WEIR_PUSH_TOKEN": "s3cret"}
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
		if !maps.Equal(b.sums, want) || b.authorized != "Bearer s3cret" {
			t.Errorf("%s: counted are %v, want %v; authorized by %q", form, b.sums, want, b.authorized)
		}
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
