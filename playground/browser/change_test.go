package browser

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"weir/internal/must"
)

// scripted is a server like weir run's, which tells what a test has it tell.
type scripted struct {
	events  chan string
	asked   chan string // the changes that the page has asked for
	refuse  atomic.Bool
	changes atomic.Int64
}

func (s *scripted) tell(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("content-type", "text/event-stream")
	for {
		select {
		case event := <-s.events:
			if _, err := io.WriteString(w, event); err != nil {
				return
			}
			if http.NewResponseController(w).Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

func (s *scripted) change(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if r.URL.Path == "/live/limit" && s.refuse.Load() {
		http.Error(w, "the store: it is read-only", http.StatusBadRequest)
		return
	}
	w.Header().Set("x-weir-changes", strconv.FormatInt(s.changes.Add(1), 10))
	w.WriteHeader(http.StatusNoContent)
	s.asked <- r.URL.Path + " " + string(body)
}

// moment tells moment n, with n hits of the limit, and a state of these many changes.
func (s *scripted) moment(n, changes int64) {
	s.events <- momentOf(n) + fmt.Sprintf(`event: state
data: {"changes": %d, "backend": true, "faults": {"away": false, "delay_ms": 0, "cut": []}, "load": {"rate": 0, "users": 1, "node": -1, "rule": "all"}, "sent": {"passed": 0, "refused": 0, "failed": 0}, "looked": {"top": {"rules": []}}}

`, changes)
}

func momentOf(n int64) string {
	return fmt.Sprintf(`event: moment
data: {"n": %[1]d, "at": %[2]d, "rules": [{"allowed": 0, "refused": 0, "overshoot": 0}], "most": [[%[1]d]], "all": {"requests": 0, "answered": 0, "waited": 0, "waited_ns": 0}, "nodes": [{"rules": []}, {"rules": []}]}

`, n, 1_767_225_600_000+500*n)
}

// script opens the page of a scripted server, which has told moment 1.
func script(t *testing.T) (*page, *scripted) {
	t.Helper()
	s := &scripted{events: make(chan string, 100), asked: make(chan string, 100)}
	s.events <- `event: setup
data: {"namespace": "shop", "nodes": ["127.0.0.1:1", "127.0.0.1:2"], "rules": [{"name": "all", "shared": true, "limits": [{"limit": 10, "window_ms": 60000, "algorithm": "sliding_window"}]}], "each": true, "failure": "local", "timeout_ms": 200}

`
	s.moment(1, 0)
	server := behind(`{"live": "run", "traffic": true}`)
	server.HandleFunc("/live/events", s.tell)
	for _, path := range []string{"/live/load", "/live/faults", "/live/limit"} {
		server.HandleFunc(path, s.change)
	}
	p := open(t, server, liveLook)
	p.until(curve("all: in 1 minute", "1 of 10"))
	return p, s
}

// TestLiveKeepsRefusals wants the reason of a refusal to stay, and in sight on a phone too, until the next
// change is accepted.
func TestLiveKeepsRefusals(t *testing.T) {
	t.Parallel()
	const refused = `!document.getElementById("live-notice").hidden && document.getElementById("live-notice").textContent === "Refused: the store: it is read-only"`
	p, s := script(t)
	s.refuse.Store(true)
	p.wear(look{width: 360, height: 640, theme: "light"})
	p.types("#new-limits-0", "5")
	p.click("#set-limit")
	p.until(refused)
	p.expect()
	p.until(`(({top, bottom}) => top > -1 && bottom < innerHeight)(document.getElementById("live-notice").getBoundingClientRect())`)
	s.moment(2, 0)
	p.until(curve("all: in 1 minute", "2 of 10"))
	must.Equal(t, value[bool](p, refused), true, "after the next event the notice says %q", p.text("#live-notice"))
	looksWell(p)
	s.refuse.Store(false)
	p.click("#set-limit")
	p.until(`document.getElementById("live-notice").hidden && document.getElementById("limit-told").textContent === "all: 5 in 1 minute."`)
	s.refuse.Store(true)
	p.click("#set-limit")
	p.until(refused)
	p.expect()
	must.Equal(t, p.text("#limit-told"), "", "beside the refusal the page says")
}

// TestLiveKeepsChanges tells the page a state from before its changes, which must not take them back.
func TestLiveKeepsChanges(t *testing.T) {
	t.Parallel()
	p, s := script(t)
	asked := func(want string) {
		t.Helper()
		for got := <-s.asked; got != want; got = <-s.asked {
			if !strings.HasPrefix(got, "/live/load ") { // a slider passes other values
				t.Errorf("the page asks for %s, want %s", got, want)
			}
		}
	}
	p.slide("load-users", 50)
	asked(`/live/load {"rate":0,"users":50,"node":-1,"rule":"all"}`)
	p.until(`performance.getEntriesByType("resource").some((e) => e.name.endsWith("/live/load"))`)
	s.moment(2, 0)
	s.moment(3, 0)
	// Two nodes that are cut off one after the other: the second change has the first, which no state tells yet.
	p.click("#cut button:nth-child(1)")
	p.click("#cut button:nth-child(2)")
	asked(`/live/faults {"away":false,"delay_ms":0,"cut":[0]}`)
	asked(`/live/faults {"away":false,"delay_ms":0,"cut":[0,1]}`)
	p.slide("load-rate", 100)
	asked(`/live/load {"rate":100,"users":50,"node":-1,"rule":"all"}`)
	// The controls show what the server has once the page has had the answer to its last change.
	for n := int64(4); value[string](p, `document.getElementById("load-users").value`) != "1"; n++ {
		s.moment(n, 4)
	}
}
