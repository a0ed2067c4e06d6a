package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/backend"
	"weir/internal/store"
)

// evictsEvery is how often a store is asked whether it evicts: people change that while it runs.
const evictsEvery = 15 * time.Second

// Evictions tells the log and the metrics whether a store's server removes counters that count. Then
// more passes than the limits, and nothing else says so. Make it with [NewEvictions], and have
// [Evictions.Run] run it.
type Evictions struct {
	store  store.Evictor // nil if it has no such server
	log    *slog.Logger
	evicts *prometheus.GaugeVec
	known  bool
	policy string
	untold bool // and the log says so
}

// NewEvictions makes one of a store. The metric has no value while nothing is known.
func NewEvictions(counters store.Store, r prometheus.Registerer, log *slog.Logger) *Evictions {
	e := &Evictions{log: log, evicts: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_store_evicts", Help: "1 if the store's server removes counters that count when its memory is full, else 0.",
	}, nil)}
	r.MustRegister(e.evicts)
	var evicts bool
	if e.store, evicts = counters.(store.Evictor); !evicts {
		e.evicts.WithLabelValues().Set(0)
	}
	return e
}

// Run asks again and again until ctx ends.
func (e *Evictions) Run(ctx context.Context) {
	if e.store == nil {
		return
	}
	ticker := time.NewTicker(evictsEvery)
	defer ticker.Stop()
	for {
		e.Look(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// Look asks once. While the store can't be reached, what it said last is taken to be so.
func (e *Evictions) Look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, backend.Timeout)
	defer cancel()
	policy, err := e.store.Evicts(ctx)
	switch {
	case errors.Is(err, store.ErrUntold):
		if e.known = false; !e.untold {
			e.untold = true
			e.evicts.Reset()
			e.log.Warn("it is not known whether the store evicts counters: see to it that its maxmemory-policy is noeviction", "error", err)
		}
		return
	case err != nil:
		return
	}
	before, known := e.policy, e.known
	e.policy, e.known, e.untold = policy, true, false
	switch {
	case policy != "" && (!known || policy != before):
		e.log.Warn("the store evicts counters when its memory is full, and lets more pass than limits then: set its maxmemory-policy to noeviction",
			"maxmemory_policy", policy)
	case policy == "" && known && before != "":
		e.log.Info("the store evicts no counters any more")
	}
	if policy == "" {
		e.evicts.WithLabelValues().Set(0)
	} else {
		e.evicts.WithLabelValues().Set(1)
	}
}
