package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/memory"
)

// serveBehind serves a store in this process, behind what may answer in its place, and returns its URL.
func serveBehind(t *testing.T, in store.Store, answer func(w http.ResponseWriter, r *http.Request, kept http.Handler)) (url string) {
	t.Helper()
	kept := server.Handler(in, server.Options{Logger: slog.New(slog.DiscardHandler)})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r, kept) }))
	t.Cleanup(s.Close)
	return s.URL
}

// A change that a redirection would make a GET fails, and the error says where it leads: the answer to the GET
// looks as if the change were made. A redirection of questions, and one that keeps the method, is followed.
func TestChangeThatIsRedirected(t *testing.T) {
	t.Parallel()
	for status, code := range map[int]int{301: 1, 302: 1, 303: 1, 307: 0, 308: 0} {
		in := memory.New(memory.Options{})
		to := serveHere(t, in, server.Options{})
		from := serveBehind(t, in, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			http.Redirect(w, r, to+r.URL.RequestURI(), status)
		})
		stdout, stderr := "all rules off\n", ""
		if code != 0 {
			stdout, stderr = "", fmt.Sprintf("the backend answered %d %s: it leads to %s: name that address with --backend", status, http.StatusText(status), to)
		}
		executeAll(t, map[string]string{"WEIR_BACKEND": from}, []lineTest{{"rule off --all shop --force", code, stdout, stderr}})
		_, version, err := in.Overrides(t.Context(), "shop", 0)
		must.OK(t, err)
		must.Equal(t, version != 0, code == 0, "%d: something has changed", status)
	}
	for hops, code := range map[int]int{8: 0, 20: 1} {
		left := hops
		from := serveBehind(t, memory.New(memory.Options{}), func(w http.ResponseWriter, r *http.Request, kept http.Handler) {
			if left--; left >= 0 {
				http.Redirect(w, r, r.URL.RequestURI(), http.StatusFound)
				return
			}
			kept.ServeHTTP(w, r)
		})
		executeAll(t, map[string]string{"WEIR_BACKEND": from}, []lineTest{{"override list shop", code, "", ""}})
	}
}
