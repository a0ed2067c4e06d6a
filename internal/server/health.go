package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"weir/internal/backend"
	"weir/internal/store"
)

const (
	// probeEvery is the least time between two probes of the store, whoever asks.
	probeEvery = time.Second
	// lookEvery is how often the store is probed if nobody asks.
	lookEvery = 10 * time.Second
	// quietFor is how long the store must work before it counts as back. Otherwise a store that
	// fails every other call would fill the log.
	quietFor = time.Second
	// givenUpEvery is how often the log mentions clients that gave up, and fullEvery how often
	// pushes that the store could not record.
	givenUpEvery = time.Minute
	fullEvery    = time.Minute
)

// Monitor knows the state of a store, and reports it in the log and the metrics. [NewMonitor] makes
// one. It is safe for concurrent use.
type Monitor struct {
	store store.Store
	log   *slog.Logger
	now   func() time.Time

	errors, givenUpCalls prometheus.Counter
	partly               prometheus.Gauge

	mu sync.Mutex
	// failing is set from the first failure until hits are accepted again.
	failing  bool
	failedAt time.Time
	// lacking is set while the store accepts hits for some keys only.
	lacking bool
	// givenUp are clients that gave up, and full pushes that the store could not record.
	givenUp, full unlogged
	probed        *probe
}

// unlogged counts events that the log mentions together, now and then.
type unlogged struct {
	count    int
	loggedAt time.Time
}

// add counts an event. If it is time to log, it returns how many there were since the last time.
func (u *unlogged) add(now time.Time, every time.Duration) (events int, due bool) {
	u.count++
	if ago := now.Sub(u.loggedAt); ago >= 0 && ago < every {
		return 0, false
	}
	events = u.count
	u.count, u.loggedAt = 0, now
	return events, true
}

// NewMonitor returns a monitor of a store, whose metrics go to a registry. Call its Run.
func NewMonitor(counters store.Store, r prometheus.Registerer, log *slog.Logger, now func() time.Time) *Monitor {
	registered := promauto.With(r)
	return &Monitor{
		store: counters, log: log, now: now,
		errors: registered.NewCounter(prometheus.CounterOpts{Name: "weir_store_errors_total", Help: "Calls of the store that failed."}),
		givenUpCalls: registered.NewCounter(prometheus.CounterOpts{
			Name: "weir_store_given_up_total", Help: "Calls of the store that failed in nothing but that their clients did not wait for the end.",
		}),
		partly: registered.NewGauge(prometheus.GaugeOpts{Name: "weir_store_partly", Help: "1 while the store takes the hits of some keys only."}),
	}
}

// Run probes the store at once and then every ten seconds, until ctx ends. So the log has a store
// that is away even if nobody asks for it.
func (h *Monitor) Run(ctx context.Context) {
	ticks := time.Tick(lookEvery)
	for ctx.Err() == nil {
		h.mu.Lock()
		h.probe()
		h.mu.Unlock()
		select {
		case <-ticks:
		case <-ctx.Done():
		}
	}
}

// Pushed records the result of a push, and reports whether it succeeded. A push that is invalid is
// not the store's fault.
func (h *Monitor) Pushed(client context.Context, r *backend.Reply, err error) bool {
	if errors.Is(err, store.ErrInvalid) {
		return false
	}
	if !h.succeeded(client, err, r.Written) {
		return false
	}
	if r.Lacking != nil {
		h.lack(r.Lacking)
	}
	return true
}

// Takes reports whether the store takes hits, of some keys at least, by a probe within the last
// second.
func (h *Monitor) Takes(ctx context.Context) bool {
	err := h.ready(ctx)
	return err == nil || errors.Is(err, store.ErrPartly)
}

type probe struct {
	at   time.Time
	done chan struct{}
	err  error // once it is done
}

// succeeded reports whether a call of the store for a client's request succeeded. written says that
// the store had to write.
func (h *Monitor) succeeded(client context.Context, err error, written bool) bool {
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

// isLate reports whether an error only means that the client does not wait long enough.
func isLate(client context.Context, err error) bool {
	_, bounded := client.Deadline()
	return bounded && errors.Is(err, context.DeadlineExceeded)
}

// lack records that the store accepts hits for some keys only, and probes it until it accepts all.
func (h *Monitor) lack(err error) {
	h.errors.Inc()
	h.partly.Set(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.lacking {
		h.lacking = true
		h.log.Error("the store accepts hits of some keys only", "error", err)
	}
	h.probe()
}

// complete records that the store accepts all hits.
func (h *Monitor) complete() {
	h.partly.Set(0)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lacking {
		h.lacking = false
		h.log.Warn("the store accepts all hits again")
	}
}

// work records that the store has worked. If it had failed and did not write now, a probe must find
// out whether it is only readable.
func (h *Monitor) work(written bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.failing || h.now().Sub(h.failedAt) < quietFor:
	case written:
		h.failing = false
		h.log.Warn("the store is back")
	default:
		h.probe()
	}
}

// fail counts a failure, and logs the first.
func (h *Monitor) fail(err error) {
	h.errors.Inc()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failedAt = h.now()
	if !h.failing {
		h.failing = true
		h.log.Error("the store fails", "error", err)
	}
}

// leave records that a client left while the store worked for it. A probe, which nobody cuts short,
// finds out whether the store hangs.
func (h *Monitor) leave() {
	h.givenUpCalls.Inc()
	h.mu.Lock()
	defer h.mu.Unlock()
	if calls, due := h.givenUp.add(h.now(), givenUpEvery); due {
		h.log.Warn("clients give up before the store answers", "calls", calls)
	}
	h.probe()
}

// refuse records a push that the store could not record. The store accepts others.
func (h *Monitor) refuse(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if pushes, due := h.full.add(h.now(), fullEvery); due {
		h.log.Warn("the store refuses pushes of new senders", "pushes", pushes, "error", err)
	}
}

// probe returns the last probe, or starts another if that has ended and is old. The caller holds
// the lock.
func (h *Monitor) probe() *probe {
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
		// The requester may leave, but others need the result too.
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

// ready returns the error of a probe within the last second, or of ctx if that ends first.
func (h *Monitor) ready(ctx context.Context) error {
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
	switch err := h.health.ready(r.Context()); {
	case err == nil:
		h.livez(w, r)
	case errors.Is(err, store.ErrPartly):
		// Most keys can use this backend, and would have none without it.
		h.text(w, "ok, but "+store.ErrPartly.Error()+"\n")
	default:
		h.problem(w, http.StatusServiceUnavailable, "the store takes no hits")
	}
}

func (h *handler) livez(w http.ResponseWriter, _ *http.Request) {
	h.text(w, "ok\n")
}

func (h *handler) text(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	h.write(w, []byte(text))
}

const (
	// refusedEvery is how often the log mentions the refusals of a source.
	refusedEvery = time.Minute
	// maxRefused bounds the sources that are counted separately in that time. The rest count
	// together.
	maxRefused = 256
)

// refused logs requests that are refused for lack of a token or a certificate: once a minute for
// each source, with their number. It is safe for concurrent use.
type refused struct {
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	sources map[refusal]*unlogged
}

// refusal is a source and a status. The source is an address without its port, or empty for the
// rest.
type refusal struct {
	source string
	status int
}

// add counts a refusal, and logs it if it is time.
func (f *refused) add(r *http.Request, status int, reason string) {
	source := hostOf(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	of := refusal{source, status}
	if f.sources[of] == nil && len(f.sources) >= maxRefused {
		for of, s := range f.sources {
			if ago := now.Sub(s.loggedAt); ago < 0 || ago >= refusedEvery {
				delete(f.sources, of)
			}
		}
		if len(f.sources) >= maxRefused {
			of.source = ""
		}
	}
	s := f.sources[of]
	if s == nil {
		s = &unlogged{}
		f.sources[of] = s
	}
	requests, due := s.add(now, refusedEvery)
	if !due {
		return
	}
	if of.source == "" {
		source = "others"
	}
	f.log.Warn("requests are refused", "source", source, "status", status, "reason", reason, "requests", requests, "path", r.URL.Path)
}
