package server_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// events reads a stream until it has told how a namespace stands, and returns the moments before that.
func events(t *testing.T, answer *http.Response) (moments []server.WatchedMoment, w server.Watched) {
	t.Helper()
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "text/event-stream" || answer.Header.Get("Cache-Control") != "no-store" || answer.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Fatalf("status %d, %v", answer.StatusCode, answer.Header)
	}
	lines := bufio.NewReader(answer.Body)
	read := func(before string) string {
		t.Helper()
		line, err := lines.ReadString('\n')
		text, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), before)
		if err != nil || !ok {
			t.Fatalf("got %q, %v, want %s", line, err, before)
		}
		return text
	}
	for {
		var to any = &w
		event := read("event: ")
		if event == "moment" {
			moments = append(moments, server.WatchedMoment{})
			to = &moments[len(moments)-1]
		}
		must.OK(t, json.Unmarshal([]byte(read("data: ")), to))
		if read(""); event == "watched" {
			return moments, w
		}
	}
}

// watching begins to watch a namespace. Moments up to a number were told before.
func watching(t *testing.T, s *httptest.Server, namespace, last string) *http.Response {
	t.Helper()
	r := request(t, "GET", s.URL+server.WatchPath+"?namespace="+namespace, nil)
	r.Header.Set("Last-Event-ID", last)
	answer := must.Get(s.Client().Do(r))(t)
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// A page is told of reports, overrides and the store. Only so many are told at a time, and streams end
// when they have to.
func TestWatch(t *testing.T) {
	ended := make(chan struct{})
	s := start(t, open(), server.Options{Ended: ended})
	change(t, s, "PUT", "namespace=shop", `{"overrides": [{"rule": "r", "limits": [{"limit": 7, "width_ms": 1000}]}]}`, 1)
	report := wire.AppendReport(nil, &wire.Report{Namespace: "shop", Node: 1, Sender: 1, AtNanos: uint64(epoch.UnixNano()), Rules: []wire.RuleReport{
		{Name: "r", SpanMillis: 1000, Amounts: wire.Amounts{Requests: 5, Hits: 5}, Every: 1},
	}})
	post(t, s, report)
	const most = 32
	streams := make([]*http.Response, most)
	for i := range streams {
		streams[i] = watching(t, s, "shop", "")
		_, got := events(t, streams[i])
		if !got.Ready || got.Top == nil || got.Top.Nodes != 1 || len(got.Top.Rules) != 1 || got.Top.Rules[0].Requests != 5 {
			t.Fatalf("got %+v", got)
		}
		must.EqualOrEnd(t, got.Overrides, 1, "overrides")
	}
	answer, body := do(t, s.Client(), request(t, "GET", s.URL+server.WatchPath+"?namespace=shop", nil))
	must.Equal(t, answer.StatusCode, http.StatusServiceUnavailable, "status of one too many")
	wantProblem(t, answer, body, "too many pages are watching: close some")
	close(ended)
	for _, answer := range streams {
		must.Get(io.Copy(io.Discard, answer.Body))(t) // it ends as it should
	}
}

// lasting is a client whose connection may be as slow as it is.
type lasting struct{ *httptest.ResponseRecorder }

func (lasting) SetReadDeadline(time.Time) error  { return nil }
func (lasting) SetWriteDeadline(time.Time) error { return nil }

// A few namespaces are read for streams at a time. Others wait for longer than a store may take.
func TestWatchesReadInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, ended := &heldLists{Store: memory.New(memory.Options{}), letGo: make(chan struct{})}, make(chan struct{})
		close(ended)
		handler := server.Handler(held, server.Options{Logger: slog.New(slog.DiscardHandler), Ended: ended})
		const streams, most = 6, 4
		told := make(chan string, streams)
		for i := range streams {
			go func() {
				w := lasting{httptest.NewRecorder()}
				handler.ServeHTTP(w, routed(t, "", "GET", server.WatchPath, "", fmt.Sprint("ns-", i), ""))
				told <- w.Body.String()
			}()
		}
		synctest.Wait()
		must.Equal(t, held.asked.Load(), most, "streams that read")
		<-time.After(backend.Timeout)
		close(held.letGo)
		read := 0
		for range streams {
			if strings.Contains(<-told, `"top":`) {
				read++
			}
		}
		must.AtLeast(t, read, streams-most, "streams that are told of reports after others had to wait")
	})
}

// A store that fails is told of, too.
func TestWatchWithoutStore(t *testing.T) {
	ended := make(chan struct{})
	close(ended)
	s := start(t, &brokenStore{Store: open(), err: errors.New("out of order")}, server.Options{Ended: ended})
	if moments, got := events(t, watching(t, s, "shop", "")); len(moments) > 0 || got.Ready || got.Top != nil || got.Overrides != 0 {
		t.Errorf("got %+v", got)
	}
}

// A client that comes later, or again, is told the moments before: all of five minutes in which
// somebody has watched, and every fifth before them. All streams of a namespace share them, and no others do.
func TestWatchLater(t *testing.T) {
	var now atomic.Int64 // seconds behind the epoch
	ended := make(chan struct{})
	close(ended)
	at := func() time.Time { return epoch.Add(time.Duration(now.Load()) * time.Second) }
	s := start(t, memory.New(memory.Options{Now: at}), server.Options{Ended: ended, Now: at})
	for i := range uint64(300) {
		report := wire.AppendReport(nil, &wire.Report{Namespace: "shop", Node: 1, Sender: 1, AtNanos: uint64(at().UnixNano()), Rules: []wire.RuleReport{
			{Name: "r", SpanMillis: 1000, Amounts: wire.Amounts{Requests: 3 * (i + 1), RefusedRequests: i + 1}, Every: 1, Used: wire.KeyList{Keys: []wire.ReportKey{
				{ID: wire.ID{1}, Hits: 5, Use: 100}, {ID: wire.ID{2}, Hits: 4, Use: i + 200},
			}}},
			{Name: "quiet", SpanMillis: 1000, Amounts: wire.Amounts{Requests: 1}, Every: 1},
		}})
		post(t, s, report)
		last := fmt.Sprint(i)
		for _, again := range []bool{false, true} { // another stream looks at the same moment
			if moments, _ := events(t, watching(t, s, "shop", last)); len(moments) != 1 || moments[0].Number != int64(i+1) {
				t.Fatalf("moment %d, again %t: got %+v", i+1, again, moments)
			}
		}
		now.Add(2)
	}
	now.Add(-2)
	for last, want := range map[string]int{"": 220, "0": 220, "94": 202, "95": 201, "297": 3, "300": 0, "5000": 220, "-1": 220, "none": 220} {
		moments, _ := events(t, watching(t, s, "shop", last))
		if len(moments) != want || want > 0 && moments[want-1].Number != 300 {
			t.Errorf("after %q come %d, want %d", last, len(moments), want)
		}
	}
	moments, _ := events(t, watching(t, s, "shop", "299"))
	got := must.Get(json.Marshal(moments))(t)
	want := fmt.Sprintf(`[{"n":300,"at":%d,"rules":[{"rule":"quiet","passed":1,"refused":0},{"rule":"r","passed":600,"refused":300,"use":0.499}]}]`, at().UnixMilli())
	must.Equal(t, string(got), want, "%s", got)
	// Others push it out, and know nothing of it.
	for i := range 64 {
		now.Add(1)
		if moments, _ := events(t, watching(t, s, fmt.Sprint("other-", i), "")); len(moments) != 1 || len(moments[0].Rules) != 0 {
			t.Fatalf("another namespace has %+v", moments)
		}
	}
	moments, _ = events(t, watching(t, s, "shop", ""))
	must.Equal(t, len(moments), 1, "moments are kept of too many namespaces")
}

// A page is told since when the store fails, also if it opens later, that it takes some hits if only a part
// of it is away, and whether its token may change something.
func TestWatchTellsSince(t *testing.T) {
	ended := make(chan struct{})
	close(ended) // streams end with their first event
	var now atomic.Int64
	now.Store(epoch.UnixNano())
	counters := &brokenStore{Store: open()}
	s := start(t, counters, server.Options{Ended: ended, Tokens: tokensOf(t, "shop looks verbs=read\nshop does verbs=change\n"), Now: func() time.Time { return time.Unix(0, now.Load()) }})
	watch := func(token string) server.Watched {
		t.Helper()
		answer := must.Get(s.Client().Do(routed(t, s.URL, "GET", server.WatchPath, "", "shop", token)))(t)
		defer answer.Body.Close()
		_, w := events(t, answer)
		return w
	}
	if w := watch("looks"); w.MayChange || w.Since != 0 || !w.Ready {
		t.Errorf("who may look alone is told %+v", w)
	}
	at := now.Add(int64(10 * time.Second))
	for _, err := range []error{store.ErrPartly, errors.New("out of order"), errors.New("out of order"), store.ErrPartly} {
		counters.err = err
		partly := errors.Is(err, store.ErrPartly)
		if w := watch("does"); !w.MayChange || w.Ready != partly || w.Partly != partly || w.Since != at/1e6 {
			t.Errorf("a store with %q, since %d: %+v", err, at/1e6, w)
		}
		now.Add(int64(10 * time.Second))
	}
	counters.err = nil
	if w := watch("does"); w.Since != 0 || !w.Ready || w.Partly {
		t.Errorf("a store that is back: %+v", w)
	}
}

// After returns what is kept and newer than a number, whatever the number.
func TestHistory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ keep, old, every int }{{3, 0, 0}, {4, 3, 2}, {5, 2, 5}, {1, 4, 3}} {
		h := server.History[int]{Keep: c.keep, Old: c.old, Every: c.every}
		for last := 1; last <= 40; last++ {
			h.Add(last)
			var kept []int
			for n := 1; n <= last-c.keep; n++ {
				if c.old > 0 && n%c.every == 0 {
					kept = append(kept, n)
				}
			}
			kept = kept[max(0, len(kept)-c.old):]
			for n := max(1, last-c.keep+1); n <= last; n++ {
				kept = append(kept, n)
			}
			for after := range last + 1 {
				at, _ := slices.BinarySearch(kept, after+1)
				if got := h.After(int64(after)); !slices.Equal(got, kept[at:]) {
					t.Fatalf("%+v: after %d of %d come %v, want %v", c, after, last, got, kept[at:])
				}
			}
		}
	}
}
