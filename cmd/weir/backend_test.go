package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
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

// --wait ends when all nodes decide by a list that has the change: by a later list, too, and not while others
// make later changes that no node knows, or because a store has lost the list.
func TestWaitForAChange(t *testing.T) {
	t.Parallel()
	in := memory.New(memory.Options{})
	noteReportOf(t, in, "per-user")
	changeOf := func(key string) (version uint64) {
		o := wire.Override{Rule: "per-user", Values: []string{key}, Limits: []wire.OverrideLimit{{Max: 1, WidthMillis: 60_000}}}
		version, err := backend.New(in).By(nil).ForceOverrides(t.Context(), "shop", o)
		must.Report(t, err)
		return version
	}
	// Nodes note by which lists they decide.
	know := func(in store.Store, versions ...uint64) {
		for i, version := range versions {
			_, err := in.Note(t.Context(), store.AppliedLists, "shop", store.AppliedList{Node: uint64(i + 1), Version: version}.Note())
			must.Report(t, err)
		}
	}
	old := changeOf("ann")
	know(in, old, old)
	newest := func() uint64 {
		_, version, err := in.Overrides(t.Context(), "shop", 0)
		must.Report(t, err)
		return version
	}
	mine, looks := uint64(0), 0
	url := serveBehind(t, in, func(w http.ResponseWriter, r *http.Request, kept http.Handler) {
		if r.Method == http.MethodGet && r.URL.Query().Get("rule") == "-" {
			switch looks++; looks {
			case 1:
				mine = newest()
				changeOf("bob") // somebody else's, of which no node knows
			case 2:
				know(in, mine, old)
			case 3:
				know(in, mine, newest())
				changeOf("eve")
			}
		}
		kept.ServeHTTP(w, r)
	})
	variables := map[string]string{"WEIR_BACKEND": url}
	executeAll(t, variables, []lineTest{{"override set shop per-user zoe 5/1m --wait 10m", 0, "per-user zoe 5/1m\nknown to 2 of 2 nodes\n", ""}})
	must.Equal(t, looks, 3, "how often it looked")
	executeAll(t, variables, []lineTest{{"override set shop per-user zoe 6/1m --wait 1ns", 1, "known to 0 of 2 nodes, and", "some nodes do not know the change after 1ns"}})

	lost := memory.New(memory.Options{})
	know(lost, 0, 0)
	empty := server.Handler(lost, server.Options{Logger: slog.New(slog.DiscardHandler)})
	variables["WEIR_BACKEND"] = serveBehind(t, in, func(w http.ResponseWriter, r *http.Request, kept http.Handler) {
		if r.URL.Query().Get("rule") == "-" {
			kept = empty
		}
		kept.ServeHTTP(w, r)
	})
	executeAll(t, variables, []lineTest{{"override set shop per-user zoe 7/1m --wait 1ns", 1, "", "some nodes do not know the change"}})
}

// A change whose answer is lost comes again if the backend can tell that it is the same, and else the error says
// that it may have been made.
func TestChangeWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	const unsure = "it may have been done: look before you try again"
	for _, test := range []struct {
		args           string
		lost           int // answers to changes
		status         int // of a gateway in their place, or 0
		code           int
		stdout, stderr string
	}{
		{"counter grant shop per-user ann 30", 1, 0, 0, "30 given back\nfixed window of 360d: 10 used", ""},
		{"counter grant shop per-user ann 30", 1, 502, 0, "30 given back\nfixed window of 360d: 10 used", ""},
		{"counter grant shop per-user ann 30", 2, 0, 1, "", unsure},
		{"counter grant shop per-user ann 30", 2, 504, 1, "", unsure},
		{"override set shop per-user ann 5/360d", 1, 0, 1, "", unsure},
		{"override unset shop per-user ann", 1, 503, 1, "", unsure},
	} {
		in := memory.New(memory.Options{})
		countKey(t, in, "", 1, 40, "per-user", "ann")
		noteReportOf(t, in, "per-user")
		left := test.lost
		url := serveBehind(t, in, func(w http.ResponseWriter, r *http.Request, kept http.Handler) {
			w.Header().Set("Connection", "close") // the next request has a connection for itself
			if r.Method == http.MethodGet || left == 0 {
				kept.ServeHTTP(w, r)
				return
			}
			left--
			kept.ServeHTTP(httptest.NewRecorder(), r)
			if test.status == 0 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(test.status)
		})
		variables := map[string]string{"WEIR_BACKEND": url}
		executeAll(t, variables, []lineTest{{test.args, test.code, test.stdout, test.stderr}})
		if strings.Contains(test.args, "grant") {
			executeAll(t, variables, []lineTest{{"counter get shop per-user ann", 0, "10 used", ""}})
		}
	}
	_, _, stderr := execute(t.Context(), nil, "", "override", "unset", "shop", "per-user", "ann", "--backend", "http://127.0.0.1:1")
	must.Contains(t, stderr, "connection refused: --backend", "without a connection")
}

// A counter that the backend can't read hides no other. Whatever else fails, or after five of them, no more are
// asked.
func TestWhyWithCountersAway(t *testing.T) {
	t.Parallel()
	statuses := map[string]int{}
	url := serveBehind(t, memory.New(memory.Options{}), func(w http.ResponseWriter, r *http.Request, kept http.Handler) {
		if status := statuses[r.URL.Query().Get("rule")]; r.URL.Path == server.CounterPath && status != 0 {
			w.WriteHeader(status)
			return
		}
		kept.ServeHTTP(w, r)
	})
	limit := window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: 3600e9}, Max: 5}
	var shapes []wire.RuleShape
	for _, name := range strings.Split("a b c d e f g", " ") {
		shapes = append(shapes, wire.RuleShape{Name: name, Key: []byte{0, 0}, Limits: []wire.ToldLimit{{Limit: limit}}})
	}
	told := wire.AppendTold(nil, 0, shapes)
	report := wire.AppendReport(nil, &wire.Report{Namespace: "shop", Node: 1, Sender: 1, AtNanos: uint64(time.Now().UnixNano()), Digest: wire.DigestOf(told), Told: told})
	wantStatus(t, "POST", url+wire.PushPath, "", report, 200)
	const (
		passes  = ` +passes +0 of 5 used, room now\n`
		unknown = ` +not known +the backend could not tell\n`
		failed  = `: the backend answered 503 Service Unavailable: .*\n`
	)
	for _, test := range []struct {
		away   string
		status int
		want   string
	}{
		{"bd", 503, `^1 RULE +NOW +LIMITS\na` + passes + "b" + unknown + "c" + passes + "d" + unknown + "e" + passes + "f" + passes + "g" + passes + "weir why: b" + failed + "d" + failed + "$"},
		{"bcdefg", 503, `^1 RULE +NOW +LIMITS\na` + passes + "b" + unknown + "c" + unknown + "d" + unknown + "e" + unknown + "f" + unknown +
			"weir why: b" + failed + "c" + failed + "d" + failed + "e" + failed + "f" + failed + `the rules after it are not asked\n$`},
		{"ab", 401, `^1 RULE +NOW +LIMITS\nweir why: a: the backend answered 401 .*\n$`},
	} {
		clear(statuses)
		for _, rule := range test.away {
			statuses[string(rule)] = test.status
		}
		if got := said(t, map[string]string{"WEIR_BACKEND": url}, "why", "shop", "ann"); !regexp.MustCompile(test.want).MatchString(got) {
			t.Errorf("without %s: got\n%s\nwant %s", test.away, got, test.want)
		}
	}
}
