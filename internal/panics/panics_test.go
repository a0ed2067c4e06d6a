package panics

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
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
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s: %s", want, log.String())
		}
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
		if runs != 3 {
			t.Errorf("it ran %d times, want 3", runs)
		}
		ctx, cancel := context.WithCancel(t.Context())
		Again(ctx, "here", func(context.Context) {
			runs++
			cancel()
			panic("a fault")
		})
		if runs != 4 {
			t.Errorf("it ran %d times, want once more", runs-3)
		}
	})
}

// A handler's panic ends its connection, and is counted, unless the handler has ended the connection itself.
func TestHandler(t *testing.T) {
	server := httptest.NewServer(Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/panics":
			panic("a fault")
		case "/ends":
			panic(http.ErrAbortHandler)
		}
	})))
	defer server.Close()
	for path, want := range map[string]uint64{"/": 0, "/panics": 1, "/ends": 0} {
		counted := Caught()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			answer.Body.Close()
		}
		if (err != nil) != (path != "/") || Caught()-counted != want {
			t.Errorf("%s: %v, %d panics counted, want %d", path, err, Caught()-counted, want)
		}
	}
}
