package panics

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/must"
)

// A panic is counted, logged with its stack, and its function has an error.
func TestCatch(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	fails := func(reason any) (err error) {
		defer Catch("here", func(caught error) { err = caught })
		if reason != nil {
			panic(reason)
		}
		return nil
	}
	counted := Caught()
	if err := fails(nil); err != nil || Caught() != counted || log.Len() > 0 {
		t.Errorf("without a panic: %v, %s", err, log.String())
	}
	if err := fails("a fault"); !errors.Is(err, Err) || Caught() != counted+1 {
		t.Errorf("got %v, %d panics", err, Caught()-counted)
	}
	for _, want := range []string{"where=here", `panic="a fault"`, "panics.TestCatch"} {
		must.Contains(t, log.String(), want, "the log lacks")
	}
}

// Work in the background goes on after panics, until it ends or is ended.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		Again(t.Context(), "here", func(context.Context) {
			if runs++; runs < 3 {
				panic("a fault")
			}
		})
		must.Equal(t, runs, 3, "times that it ran")
		ctx, cancel := context.WithCancel(t.Context())
		Again(ctx, "here", func(context.Context) {
			runs++
			cancel()
			panic("a fault")
		})
		must.Equal(t, runs, 4, "runs, once more")
	})
}

// A request whose handler panics gets 500, or the end of its connection if the answer had begun or the
// handler has ended the connection itself. A panic is counted.
func TestHandler(t *testing.T) {
	server := httptest.NewServer(Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := http.NewResponseController(w)
		switch r.URL.Path {
		case "/panics":
			w.Header().Set("Content-Length", "1")
		case "/hints":
			w.WriteHeader(http.StatusEarlyHints)
		case "/begins":
			w.WriteHeader(http.StatusOK)
		case "/writes":
			_, _ = io.WriteString(w, "half")
		case "/flushes":
			must.Report(t, errors.Join(out.SetWriteDeadline(time.Time{}), out.Flush()))
		case "/ends":
			panic(http.ErrAbortHandler)
		default:
			return
		}
		panic("a fault")
	})))
	defer server.Close()
	for path, want := range map[string]struct {
		status  int // 0 if the connection ends
		counted uint64
	}{
		"/": {http.StatusOK, 0}, "/panics": {http.StatusInternalServerError, 1}, "/hints": {http.StatusInternalServerError, 1},
		"/begins": {0, 1}, "/writes": {0, 1}, "/flushes": {0, 1}, "/ends": {0, 0},
	} {
		counted, status, body := Caught(), 0, []byte(nil)
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, nil))(t)
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			body, err = io.ReadAll(answer.Body)
			answer.Body.Close()
		}
		if err == nil {
			status = answer.StatusCode
		}
		if status != want.status || Caught()-counted != want.counted || status >= 500 && !strings.Contains(string(body), Err.Error()) {
			t.Errorf("%s: %d %q, %v, %d panics counted, want %v", path, status, body, err, Caught()-counted, want)
		}
	}
}
