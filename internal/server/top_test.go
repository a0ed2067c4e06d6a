package server_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"

	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/memory"
)

// slowReports has reports that take until they are let go.
type slowReports struct {
	store.Store
	asked, letGo chan struct{}
}

func (s *slowReports) Notes(ctx context.Context, topic store.Topic, namespace string) ([]store.Note, error) {
	s.asked <- struct{}{}
	<-s.letGo
	return s.Store.Notes(ctx, topic, namespace)
}

// A client that looks at a namespace again and again leaves room for those who look at others, and
// for pushes.
func TestLooksAreBounded(t *testing.T) {
	kept := &slowReports{Store: memory.New(memory.Options{}), asked: make(chan struct{}), letGo: make(chan struct{})}
	handler := server.Handler(kept, server.Options{Logger: slog.New(slog.DiscardHandler)})
	look := func(namespace string) int {
		code, _ := served(t, handler, "GET", server.TopPath+"?namespace="+namespace, nil)
		return code
	}
	ended := make(chan int)
	for _, namespace := range []string{"evil", "evil", "victim"} {
		go func() { ended <- look(namespace) }()
		<-kept.asked
	}
	must.Equal(t, look("evil"), http.StatusServiceUnavailable, "a third look at once: status")
	code, _ := served(t, handler, "GET", server.CounterPath+"?namespace=evil&rule=all", nil)
	must.Equal(t, code, http.StatusServiceUnavailable, "status of a look for a counter beside them")
	close(kept.letGo)
	for range 3 {
		must.Equal(t, <-ended, http.StatusOK, "status")
	}
	go func() { <-kept.asked }()
	must.Equal(t, look("evil"), http.StatusOK, "a look after the others: status")
}
