package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"weir/internal/backend"
	"weir/internal/store"
)

const (
	// probeEvery is how often the store is probed at most, however many ask.
	probeEvery = time.Second
	// quietFor is how long the store must not have failed before it is said to be back. A store that
	// fails and takes hits in turns would fill the log otherwise.
	quietFor = time.Second
	// givenUpEvery is how often the log tells of clients that gave up, and fullEvery how often of
	// pushes that the store could not note.
	givenUpEvery = time.Minute
	fullEvery    = time.Minute
)

// health knows how the store does, and tells the log and the metrics. It may be used by any number
// of goroutines.
type health struct {
	store   store.Store
	metrics *metrics
	log     *slog.Logger
	now     func() time.Time

	mu sync.Mutex
	// failing is from the first failure on until hits are taken again.
	failing  bool
	failedAt time.Time
	// lacking is while the store takes some hits and not others.
	lacking bool
	// givenUp are those that the log was not told of; told is when it was last.
	givenUp int
	told    time.Time
	// full are pushes that the store could not note, and toldFull is when the log was told last.
	full     int
	toldFull time.Time
	probed   *probe
}

// probe is one of the store's, which is ready or not as it ends.
type probe struct {
	at   time.Time
	done chan struct{}
	err  error // once it is done
}

// succeeded reports whether a call of the store succeeded that was made for a client's request.
// written says that the store had to write for it.
func (h *health) succeeded(client context.Context, err error, written bool) bool {
	switch {
	case err == nil:
		h.work(written)
	case client.Err() != nil && errors.Is(err, context.Canceled), isLate(client, err):
		h.leave()
	case errors.Is(err, store.ErrFull):
		h.refuse(err)
	default:
		h.fail(err)
	}
	return err == nil
}

// isLate reports whether an error says only that the client does not wait for so long.
func isLate(client context.Context, err error) bool {
	_, bounded := client.Deadline()
	return bounded && errors.Is(err, context.DeadlineExceeded)
}

// lack notes that the store takes some hits and not others, and has it tried until it takes all.
func (h *health) lack(err error) {
	h.metrics.storeErrors.Inc()
	h.metrics.partly.Set(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.lacking {
		h.lacking = true
		h.log.Error("the store takes the hits of some keys only, and /readyz says so until it takes all", "error", err)
	}
	h.probe()
}

// complete notes that the store takes all hits.
func (h *health) complete() {
	h.metrics.partly.Set(0)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lacking {
		h.lacking = false
		h.log.Info("the store takes all hits again")
	}
}

// work notes that the store has worked. If it had failed, and did not write now, a probe has to tell
// whether it only lets itself be read.
func (h *health) work(written bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.failing || h.now().Sub(h.failedAt) < quietFor:
	case written:
		h.failing = false
		h.log.Info("the store is back")
	default:
		h.probe()
	}
}

// fail counts a failure, and logs the first one.
func (h *health) fail(err error) {
	h.metrics.storeErrors.Inc()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failedAt = h.now()
	if !h.failing {
		h.failing = true
		h.log.Error("the store fails, and /readyz says so until it is back", "error", err)
	}
}

// leave notes that a client has gone while the store worked for it. A store that hangs is found out
// by a probe, for which nobody gives up.
func (h *health) leave() {
	h.metrics.storeGivenUp.Inc()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.givenUp++
	if now := h.now(); h.told.IsZero() || now.Sub(h.told) >= givenUpEvery {
		h.log.Warn("clients give up before the store answers", "calls", h.givenUp)
		h.givenUp, h.told = 0, now
	}
	h.probe()
}

// refuse notes a push that the store could not note. It takes others.
func (h *health) refuse(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.full++
	if now := h.now(); h.toldFull.IsZero() || now.Sub(h.toldFull) >= fullEvery {
		h.log.Warn("the store refuses pushes of new senders", "pushes", h.full, "error", err)
		h.full, h.toldFull = 0, now
	}
}

// probe is the last probe, or a new one if that has ended and is old. The caller holds the lock.
func (h *health) probe() *probe {
	now := h.now()
	if p := h.probed; p != nil {
		select {
		case <-p.done:
		default:
			return p
		}
		if age := now.Sub(p.at); age >= 0 && age < probeEvery {
			return p
		}
	}
	p := &probe{at: now, done: make(chan struct{})}
	h.probed = p
	go func() {
		defer close(p.done)
		// The asker may have gone; the answer is for others, too.
		ctx, cancel := context.WithTimeout(context.Background(), backend.Timeout)
		defer cancel()
		p.err = h.store.Ping(ctx)
		switch {
		case errors.Is(p.err, store.ErrPartly):
			h.lack(p.err)
			h.work(true)
		case p.err == nil:
			h.complete()
			h.work(true)
		default:
			h.fail(p.err)
		}
	}()
	return p
}

// look has the log say at once if the store is not there.
func (h *health) look() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probe()
}

// ready is the error of a probe of the last second, or of ctx if that ends before.
func (h *health) ready(ctx context.Context) error {
	h.mu.Lock()
	p := h.probe()
	h.mu.Unlock()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *handler) readyz(w http.ResponseWriter, r *http.Request) {
	select {
	case <-h.leaving:
		h.problem(w, http.StatusServiceUnavailable, "the backend is about to end")
		return
	default:
	}
	err := h.health.ready(r.Context())
	if errors.Is(err, store.ErrPartly) {
		// Most keys have this backend, and would have none without it.
		h.text(w, "ok, but "+store.ErrPartly.Error()+"\n")
		return
	}
	if err != nil {
		h.problem(w, http.StatusServiceUnavailable, "the store takes no hits")
		return
	}
	h.livez(w, r)
}

func (h *handler) livez(w http.ResponseWriter, _ *http.Request) {
	h.text(w, "ok\n")
}

func (h *handler) text(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	h.write(w, []byte(text))
}
