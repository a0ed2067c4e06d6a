package server_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/wire"
)

// poll is a push that asks for another list than that of a version.
func poll(t *testing.T, s *httptest.Server, namespace string, of uint64) (answer chan wire.Overrides) {
	t.Helper()
	push := wire.Push{
		Namespace: namespace, Node: 7, Sender: 1, Sequence: 1, Floor: 1,
		Known: wire.Known{Version: of, Asks: true, Within: 1},
	}
	asked := request(t, "POST", s.URL+wire.PushPath, wire.AppendPush(nil, &push))
	answer = make(chan wire.Overrides, 1)
	go func() {
		defer close(answer)
		response, body := do(t, s.Client(), asked)
		if told, err := wire.DecodeAnswer([]byte(body)); err != nil || response.StatusCode != 200 {
			t.Errorf("status %d: %v", response.StatusCode, err)
		} else {
			answer <- told.Overrides
		}
	}()
	return answer
}

// waiting wants a poll to wait, as far as a look at the clock can tell.
func waiting(t *testing.T, answer chan wire.Overrides) {
	t.Helper()
	select {
	case told := <-answer:
		t.Fatalf("it was answered at once: %+v", told)
	case <-time.After(20 * time.Millisecond):
	}
}

// A poll is answered when there is another list, whichever backend it was changed at, and when the
// backend ends. Its answer brings the list.
func TestPolls(t *testing.T) {
	counters, ended := open(), make(chan struct{})
	s, other := start(t, counters, server.Options{Ended: ended}), start(t, counters, server.Options{})
	const body = `{"overrides": [{"rule": "all", "limits": [{"limit": 1, "width_ms": 1000}]}]}`
	known := uint64(0)
	for _, by := range []*httptest.Server{s, other} {
		polls := []chan wire.Overrides{poll(t, s, "shop", known), poll(t, s, "shop", known)}
		for _, p := range polls {
			waiting(t, p)
		}
		version := change(t, by, "PUT", "namespace=shop", body, 1)
		for _, p := range polls {
			if told := <-p; told.Version != version || len(told.Part) == 0 {
				t.Errorf("got %+v, want version %d", told, version)
			}
		}
		// A poll that comes too late need not wait.
		must.Equal(t, (<-poll(t, s, "shop", known)).Version, version, "version told")
		known = version
	}
	p := poll(t, s, "shop", known)
	waiting(t, p)
	close(ended)
	if told := <-p; told.Version != known || len(told.Part) != 0 {
		t.Errorf("got %+v at the end, want version %d alone", told, known)
	}
	must.Equal(t, (<-poll(t, s, "shop", known)).Version, known, "version told after the end")
}

// A poll is answered while its sender still waits.
func TestPollsOfShortPatience(t *testing.T) {
	t.Parallel()
	s := start(t, open(), server.Options{})
	push := wire.Push{Namespace: "shop", Sender: 1, Sequence: 1, Floor: 1, Known: wire.Known{Asks: true, Within: 1 << 50}}
	asked := request(t, "POST", s.URL+wire.PushPath, wire.AppendPush(nil, &push))
	asked.Header.Set("x-envoy-expected-rq-timeout-ms", "8000") // a second is left for the answer
	wantStatus(t, s, asked, 200)
}
