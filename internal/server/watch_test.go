package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"weir/internal/server"
	"weir/internal/wire"
)

// firstEvent reads the first event of a stream.
func firstEvent(t *testing.T, answer *http.Response) (w server.Watched) {
	t.Helper()
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d, %v", answer.StatusCode, answer.Header)
	}
	lines := bufio.NewReader(answer.Body)
	for _, want := range []string{"event: watched\n", "data: ", "\n"} {
		line, err := lines.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, want) {
			t.Fatalf("got %q, %v, want %q", line, err, want)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := json.Unmarshal([]byte(data), &w); err != nil {
				t.Fatal(err)
			}
		}
	}
	return w
}

// A page is told of reports, overrides and the store. Only so many are told at a time, and streams end
// when they have to.
func TestWatch(t *testing.T) {
	ended := make(chan struct{})
	s := start(t, open(), server.Options{Ended: ended})
	change(t, s, "PUT", "namespace=shop", `{"overrides": [{"rule": "r", "limits": [{"limit": 7, "width_ms": 1000}]}]}`, 1)
	report := wire.AppendReport(nil, &wire.Report{Namespace: "shop", Node: 1, Sender: 1, AtNanos: uint64(epoch.UnixNano()), Rules: []wire.RuleReport{
		{Name: "r", SpanMillis: 1000, Requests: 5, Hits: 5, Every: 1},
	}})
	if answer, body := do(t, s.Client(), request(t, "POST", s.URL+wire.PushPath, report)); answer.StatusCode != 200 {
		t.Fatalf("status %d: %s", answer.StatusCode, body)
	}
	const most = 32
	streams := make([]*http.Response, most)
	for i := range streams {
		answer, err := s.Client().Do(request(t, "GET", s.URL+server.WatchPath+"?namespace=shop", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		streams[i] = answer
		got := firstEvent(t, answer)
		if !got.Ready || got.Top == nil || got.Top.Nodes != 1 || len(got.Top.Rules) != 1 || got.Top.Rules[0].RequestsPerSecond != 5 {
			t.Fatalf("got %+v", got)
		}
		if len(got.Overrides) != 1 || got.Overrides[0].Limits[0].Limit != 7 {
			t.Fatalf("overrides %+v", got.Overrides)
		}
	}
	answer, body := do(t, s.Client(), request(t, "GET", s.URL+server.WatchPath+"?namespace=shop", nil))
	if answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d of one too many", answer.StatusCode)
	}
	wantProblem(t, answer, body, "too many pages look: close some")
	close(ended)
	for _, answer := range streams {
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Errorf("a stream did not end as it should: %v", err)
		}
	}
}

// unread can't be read either.
type unread struct{ *brokenStore }

func (s unread) Reports(context.Context, string) ([][]byte, error) { return nil, s.err }

// A store that fails is told of, too.
func TestWatchWithoutStore(t *testing.T) {
	ended := make(chan struct{})
	close(ended)
	s := start(t, unread{&brokenStore{Store: open(), err: errors.New("out of order")}}, server.Options{Ended: ended})
	answer, err := s.Client().Do(request(t, "GET", s.URL+server.WatchPath+"?namespace=shop", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if got := firstEvent(t, answer); got.Ready || got.Top != nil || got.Overrides != nil {
		t.Errorf("got %+v", got)
	}
}
