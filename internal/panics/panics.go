// Package panics keeps a panic in a goroutine from ending its process. A panic is logged with its stack,
// and counted, and whoever waits for the goroutine gets an error.
package panics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Err is the error in place of what a panic has prevented.
var Err = errors.New("an internal error, which the log tells of")

var caught atomic.Uint64

// Caught is how many panics were caught in the life of the process.
func Caught() uint64 { return caught.Load() }

// Tell logs and counts a panic with this reason, and returns [Err]. Call it in the deferred function that
// has recovered.
func Tell(where string, reason any) error {
	caught.Add(1)
	slog.Error("a panic was caught", "where", where, "panic", fmt.Sprint(reason), "stack", string(debug.Stack()))
	return Err
}

// Catch ends a panic of the function that defers it, and then calls then, unless it is nil, with [Err].
func Catch(where string, then func(err error)) {
	if reason := recover(); reason != nil {
		err := Tell(where, reason)
		if then != nil {
			then(err)
		}
	}
}

// pause is between a panic and the next run of what has panicked.
const pause = time.Second

// Again runs what runs in the background until ctx ends. After a panic it runs it again.
func Again(ctx context.Context, where string, run func(ctx context.Context)) {
	for ended := false; !ended; {
		func() {
			defer Catch(where, nil)
			run(ctx)
			ended = true
		}()
		if ended {
			return
		}
		select {
		case <-ctx.Done():
			ended = true
		case <-time.After(pause):
		}
	}
}

// Handler answers a request whose handler has panicked with 500. If the handler had begun an answer, the
// client's connection ends, as without Handler.
func Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &answer{ResponseWriter: w}
		defer func() {
			reason := recover()
			if reason == nil {
				return
			}
			if err, is := reason.(error); !is || !errors.Is(err, http.ErrAbortHandler) {
				err = Tell("a request for "+r.Pattern, reason)
				if !answer.begun {
					http.Error(w, err.Error(), http.StatusInternalServerError)
					return
				}
			}
			panic(http.ErrAbortHandler) //nolint:forbidigo // so net/http ends the connection
		}()
		h.ServeHTTP(answer, r)
	})
}

// answer knows whether it has begun.
type answer struct {
	http.ResponseWriter
	begun bool
}

func (a *answer) WriteHeader(status int) {
	a.begun = a.begun || status >= http.StatusOK || status == http.StatusSwitchingProtocols
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(b)
}

// FlushError is for http.ResponseController.
func (a *answer) FlushError() error {
	a.begun = true
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
