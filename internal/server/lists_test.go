package server_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/trust"
)

// heldLists has lists that take until they are let go, and counts who has asked for one.
type heldLists struct {
	store.Store
	letGo chan struct{}
	asked atomic.Int64
}

func (s *heldLists) hold() {
	s.asked.Add(1)
	<-s.letGo
}

func (s *heldLists) Overrides(ctx context.Context, namespace string, known uint64) ([]byte, uint64, error) {
	s.hold()
	return s.Store.Overrides(ctx, namespace, known)
}

func (s *heldLists) Notes(ctx context.Context, topic store.Topic, namespace string) ([]store.Note, error) {
	s.hold()
	return s.Store.Notes(ctx, topic, namespace)
}

func (s *heldLists) Counters(ctx context.Context, namespace string, only *store.Wanted, visit func(store.LimitCounter) error) error {
	s.hold()
	return s.Store.Counters(ctx, namespace, only, visit)
}

// Requests that work on whole lists wait for each other, but not for those of another kind, nor for more
// than half of the places if they are of another namespace. None is refused that finds a place in time, unless too many wait already; a namespace
// leaves others room to wait.
func TestWholeListsAreBounded(t *testing.T) {
	for name, late := range map[string]bool{"in time": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				held := &heldLists{Store: memory.New(memory.Options{}), letGo: make(chan struct{})}
				handler := server.Handler(held, server.Options{Logger: slog.New(slog.DiscardHandler)})
				asked, inside, answers := 0, 0, make(chan int, 4000)
				ask := func(namespace string, kind func(trust.Call) bool) {
					for _, route := range routes {
						if kind(route.call) {
							asked++
							r := routed(t, "", route.method, route.path, route.body, namespace, "")
							go func() {
								w := httptest.NewRecorder()
								handler.ServeHTTP(w, r)
								answers <- w.Code
							}()
						}
					}
					synctest.Wait()
				}
				reads := func(c trust.Call) bool { return c == trust.GetOverrides || c == trust.GetPrices }
				for _, kind := range []struct {
					name  string
					of    func(trust.Call) bool
					share int
				}{
					{"reads", reads, 2},
					{"changes", trust.Call.Changes, 2},
					{"listings", func(c trust.Call) bool { return c == trust.GetCounters }, 8},
				} {
					for range kind.share + 1 {
						ask("evil", kind.of)
					}
					for i := range 9 { // bodies that do not come take no place
						if kind.name == "changes" {
							body, _ := io.Pipe()
							r := routed(t, "", http.MethodPut, "/v1/overrides", "", fmt.Sprint("slow", i), "")
							r.Body, r.ContentLength = body, -1
							t.Cleanup(func() { _ = body.Close() })
							go handler.ServeHTTP(httptest.NewRecorder(), r)
						}
					}
					synctest.Wait()
					inside += kind.share
					must.Equal(t, int(held.asked.Load()), inside, "%s of a namespace: requests inside", kind.name)
					ask("victim", kind.of)
					inside++
					must.Equal(t, int(held.asked.Load()), inside, "%s of another namespace: requests inside", kind.name)
				}
				for range 1000 {
					ask("evil", reads)
				}
				refused := len(answers)
				if waits := asked - inside - refused; refused == 0 || waits > 512*3/4 {
					t.Errorf("%d requests of a namespace are refused at once, and %d wait", refused, waits)
				}
				ask("victim", reads)
				must.Equal(t, len(answers), refused, "requests refused when others of a namespace with fewer came")
				for asked -= refused; refused > 0; refused-- {
					must.Equal(t, <-answers, http.StatusServiceUnavailable, "status at once")
				}
				want := http.StatusOK
				if late {
					want, asked = http.StatusServiceUnavailable, asked-inside
					<-time.After(backend.Timeout)
				} else {
					close(held.letGo)
				}
				synctest.Wait()
				must.Equal(t, len(answers), asked, "answers")
				for len(answers) > 0 {
					must.Equal(t, <-answers, want, "status")
				}
				if late {
					close(held.letGo)
				}
			})
		})
	}
}
