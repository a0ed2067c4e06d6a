package server_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/internal/server"
	"weir/internal/wire"
)

// The log tells who shows a wrong token: once a minute of each source, and of few sources however many
// there are.
func TestRefusedAreLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	now := time.Unix(1_800_000_000, 0)
	handler := server.Handler(open(), server.Options{
		Tokens: oneToken("s3cret"), Logger: slog.New(slog.NewTextHandler(&log, nil)), Now: func() time.Time { return now },
	})
	ask := func(source, token string) {
		t.Helper()
		r := request(t, "POST", "http://weir"+wire.PushPath, wire.AppendPush(nil, examplePush()))
		r.RemoteAddr = source
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if want := map[string]int{"s3cret": 200}[token]; want == 0 && w.Code != 401 || want != 0 && w.Code != want {
			t.Fatalf("status %d", w.Code)
		}
	}
	told := func() (lines []string) {
		defer log.Reset()
		return strings.FieldsFunc(log.String(), func(r rune) bool { return r == '\n' })
	}
	for range 5 {
		ask("10.0.0.1:1234", "hunter2")
		ask("10.0.0.1:4321", "hunter2")
		ask("[2001:db8::1]:1", "")
		ask("10.0.0.2:1", "s3cret")
	}
	lines := told()
	if len(lines) != 2 || !strings.Contains(lines[0], `msg="requests are refused" source=10.0.0.1 status=401 reason="authorization: want the bearer token" requests=1 path=/v1/push`) ||
		!strings.Contains(lines[1], "source=2001:db8::1 status=401") || strings.Contains(strings.Join(lines, ""), "hunter2") {
		t.Errorf("got %q", lines)
	}
	now = now.Add(time.Minute)
	ask("10.0.0.1:1", "")
	ask("10.0.0.1:1", "")
	if lines := told(); len(lines) != 1 || !strings.Contains(lines[0], "requests=10 ") {
		t.Errorf("a minute later: got %q", lines)
	}
	// A flood of sources neither fills the log nor the memory, and ends.
	for i := range 2000 {
		ask(fmt.Sprintf("10.1.%d.%d:1", i/256, i%256), "")
	}
	lines = told()
	if n := len(lines); n > 300 || n < 200 || !strings.Contains(lines[n-1], "source=others") {
		t.Errorf("%d lines, the last one %q", n, lines[n-1])
	}
	now = now.Add(time.Hour)
	ask("10.2.0.1:1", "")
	if lines := told(); len(lines) != 1 || !strings.Contains(lines[0], "source=10.2.0.1 ") {
		t.Errorf("after the flood: %q", lines)
	}
}

// A backend that is about to end takes pushes still, and says that it is not ready.
func TestLeaving(t *testing.T) {
	t.Parallel()
	leaving := make(chan struct{})
	s := start(t, open(), server.Options{Leaving: leaving})
	wantStatus(t, s, request(t, "GET", s.URL+"/readyz", nil), 200)
	close(leaving)
	wantStatus(t, s, request(t, "GET", s.URL+"/readyz", nil), 503)
	pushed(t, s, examplePush())
	wantStatus(t, s, request(t, "GET", s.URL+"/livez", nil), 200)
}
