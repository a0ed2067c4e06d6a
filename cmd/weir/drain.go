package main

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"
)

// drain counts a handler's requests, so that the log can say at the end what became of those under
// way.
type drain struct {
	http.Handler
	begun, ended atomic.Int64
}

func (d *drain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.begun.Add(1)
	defer d.ended.Add(1) // even if the handler aborts the connection
	d.Handler.ServeHTTP(w, r)
}

// underWay returns how many requests were not answered yet.
func (d *drain) underWay() int64 { return d.begun.Load() - d.ended.Load() }

// later returns a context that ends a delay after ctx, or when it is cancelled. The log says so of
// what ends.
func later(ctx context.Context, delay time.Duration, what string, log *slog.Logger) (context.Context, context.CancelFunc) {
	if delay == 0 {
		return context.WithCancel(ctx)
	}
	delayed, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		log.Info(what+" is about to end; it accepts requests until then, and says that it is not ready", "in", delay)
		select {
		case <-time.After(delay):
			cancel()
		case <-delayed.Done():
		}
	})
	return delayed, cancel
}
