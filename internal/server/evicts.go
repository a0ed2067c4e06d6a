package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"weir/internal/backend"
	"weir/internal/store"
)

// evictsEvery is how often a store is asked whether it evicts, since that can be changed while it
// runs.
const evictsEvery = 15 * time.Second

// Evictions reports in the log and the metrics whether a store's server evicts counters that count.
// Then more hits pass than the limits allow, and nothing else shows it. [NewEvictions] makes one,
// and [Evictions.Run] runs it.
type Evictions struct {
	store  store.Evictor // nil if the store has no such server
	log    *slog.Logger
	evicts *prometheus.GaugeVec
	known  bool
	policy string
	silent bool // the log says that the store does not tell
}

// NewEvictions makes the Evictions of a store. The metric has no value until the answer is known.
func NewEvictions(counters store.Store, r prometheus.Registerer, log *slog.Logger) *Evictions {
	e := &Evictions{log: log, evicts: promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_store_evicts", Help: "1 if the store's server removes counters that count when its memory is full, else 0.",
	}, nil)}
	var evicts bool
	if e.store, evicts = counters.(store.Evictor); !evicts {
		e.evicts.WithLabelValues().Set(0)
	}
	return e
}

// Run asks repeatedly until ctx ends.
func (e *Evictions) Run(ctx context.Context) {
	if e.store == nil {
		return
	}
	ticks := time.Tick(evictsEvery)
	for {
		e.Look(ctx)
		select {
		case <-ticks:
		case <-ctx.Done():
			return
		}
	}
}

// Look asks once. While the store can't be reached, its last answer counts.
func (e *Evictions) Look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, backend.Timeout)
	defer cancel()
	policy, err := e.store.Evicts(ctx)
	switch {
	case errors.Is(err, store.ErrUntold):
		if e.known = false; !e.silent {
			e.silent = true
			e.evicts.Reset()
			e.log.Warn("the store does not tell whether it evicts counters: make sure that its maxmemory-policy is noeviction", "error", err)
		}
		return
	case err != nil:
		return
	}
	before, known := e.policy, e.known
	e.policy, e.known, e.silent = policy, true, false
	switch {
	case policy != "" && (!known || policy != before):
		e.log.Warn("the store evicts counters when its memory is full, which lets more hits pass than the limits: set its maxmemory-policy to noeviction",
			"maxmemory_policy", policy)
	case policy == "" && known && before != "":
		e.log.Info("the store no longer evicts counters")
	}
	if policy == "" {
		e.evicts.WithLabelValues().Set(0)
	} else {
		e.evicts.WithLabelValues().Set(1)
	}
}
