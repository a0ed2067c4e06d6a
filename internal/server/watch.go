package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/backend"
	"weir/internal/listen"
	"weir/internal/store"
	"weir/internal/trust"
)

// WatchPath is the path at which a page watches a namespace.
const WatchPath = "/v1/watch"

const (
	// watchEvery is the time between two reads of the store for a page.
	watchEvery = 2 * time.Second
	// watchLife is how long a stream lasts. Afterwards its client has to send its token again.
	watchLife = 10 * time.Minute
	// maxWatchers bounds the concurrent streams. A namespace has at most half of them.
	maxWatchers = 64
	// maxWatched bounds the namespaces whose moments are kept: those of five minutes, at least
	// leastApart apart, however many streams there are, and of an hour before them every fifth.
	maxWatched  = 64
	leastApart  = 1500 * time.Millisecond
	keptMoments = int(5*time.Minute/leastApart) + 1
	oldEvery    = 5
	oldMoments  = int(time.Hour / (oldEvery * leastApart))
	// maxFigures bounds the rules in the moments of all namespaces, some 72 bytes each. Beyond it those go that were watched
	// longest ago, and so do all that nobody has watched for an hour.
	maxFigures = 500_000
)

// Watched is the state of a namespace at a moment.
type Watched struct {
	// At is in milliseconds of Unix time.
	At int64 `json:"at"`
	// Ready means that the store accepts hits, and Partly that it does of some keys only. The other fields
	// are left out if it could not be read.
	Ready  bool `json:"ready"`
	Partly bool `json:"partly,omitempty"`
	// Since is when the store has begun to fail, if only in part, as far as somebody has watched, in
	// milliseconds of Unix time; left out if it does not.
	Since int64 `json:"since,omitempty"`
	// MayChange says that the client may change overrides and counters of the namespace.
	MayChange bool         `json:"may_change"`
	Top       *backend.Top `json:"top,omitempty"`
	// Overrides is how many there are.
	Overrides int `json:"overrides,omitempty"`
}

// WatchedMoment has the figures of a namespace at one moment, for a page to draw.
type WatchedMoment struct {
	// Number counts moments, from 1.
	Number int64 `json:"n"`
	// At is in milliseconds of Unix time.
	At    int64               `json:"at"`
	Rules []WatchedMomentRule `json:"rules"`
}

// WatchedMomentRule has the figures of a rule at that moment.
type WatchedMomentRule struct {
	Rule string `json:"rule"`
	// Passed and Refused are requests a second, of the last ten or so if nodes tell of these.
	Passed  float64 `json:"passed"`
	Refused float64 `json:"refused"`
	// Use is the largest share of a limit that a key had used when it was last seen, at most 1. It
	// is left out if no key is known.
	Use *float64 `json:"use,omitempty"`
}

// watchedNamespaces are the namespaces that pages have watched recently. The streams of a namespace
// share its moments, and the reads of the store.
type watchedNamespaces struct {
	mu     sync.Mutex
	byName map[string]*watchedNamespace
}

type watchedNamespace struct {
	asked   time.Time    // guarded by watchedNamespaces.mu
	figures atomic.Int64 // the rules in its moments, at most

	mu      sync.Mutex
	stands  Watched
	looked  time.Time
	moments History[WatchedMoment]
}

// of returns a namespace that is watched now. If there are too many, or they have too many figures, those go that were
// watched longest ago.
func (w *watchedNamespaces) of(name string, now time.Time) *watchedNamespace {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.byName[name]
	if found == nil {
		if w.byName == nil {
			w.byName = map[string]*watchedNamespace{}
		}
		found = &watchedNamespace{moments: History[WatchedMoment]{Keep: keptMoments, Old: oldMoments, Every: oldEvery}}
		w.byName[name] = found
	}
	found.asked = now
	for w.drop(name, now) {
		continue
	}
	return found
}

// drop drops a namespace other than the one that is watched now, if there has to be less.
func (w *watchedNamespaces) drop(now string, at time.Time) (dropped bool) {
	oldest, figures := "", int64(0)
	for name, of := range w.byName {
		figures += of.figures.Load()
		if name != now && (oldest == "" || of.asked.Before(w.byName[oldest].asked)) {
			oldest = name
		}
	}
	if oldest == "" || len(w.byName) <= maxWatched && figures <= maxFigures && at.Sub(w.byName[oldest].asked) < time.Hour {
		return false
	}
	delete(w.byName, oldest)
	return true
}

// look returns the state of a namespace, and its moments after a number. If another stream has just
// read the store, it returns that result.
func (h *handler) look(ctx context.Context, namespace string, after int64) (Watched, []WatchedMoment) {
	now := h.health.now()
	w := h.watched.of(namespace, now)
	w.mu.Lock()
	defer w.mu.Unlock()
	if ago := now.Sub(w.looked); w.looked.IsZero() || ago < 0 || ago >= leastApart {
		stands := h.stands(ctx, namespace)
		if ctx.Err() != nil {
			return stands, nil // the client has gone
		}
		if !stands.Ready || stands.Partly {
			stands.Since = cmp.Or(w.stands.Since, stands.At)
		}
		w.stands, w.looked = stands, now
		if stands.Top != nil {
			w.moments.Add(momentOf(w.moments.Next(), stands.At, stands.Top))
			w.figures.Store(int64(w.moments.Len() * len(stands.Top.Rules)))
		}
	}
	return w.stands, w.moments.After(after)
}

func momentOf(number, at int64, top *backend.Top) WatchedMoment {
	m := WatchedMoment{Number: number, At: at, Rules: []WatchedMomentRule{}}
	for _, r := range top.Rules {
		rates := cmp.Or(r.Recent, &r.Rates)
		rule := WatchedMomentRule{Rule: r.Rule, Passed: backend.Rounded(max(0, rates.Requests-rates.RefusedRequests)), Refused: rates.RefusedRequests}
		for _, keys := range [][]backend.TopKey{r.Used, r.Refused} {
			for j := range keys {
				if use := keys[j].Use; rule.Use == nil || use > *rule.Use {
					rule.Use = &use
				}
			}
		}
		m.Rules = append(m.Rules, rule)
	}
	return m
}

// watch streams the state of a namespace.
func (h *handler) watch(w http.ResponseWriter, r *http.Request, namespace string) (any, error) {
	if !h.watchers.Enter(namespace) {
		return nil, mistake{http.StatusServiceUnavailable, "too many pages are watching: close some"}
	}
	defer h.watchers.Leave(namespace)
	stream, err := NewStream(w)
	if err != nil {
		return nil, mistake{http.StatusInternalServerError, "this connection does not support streaming"}
	}
	ctx, cancel := context.WithTimeout(r.Context(), watchLife)
	defer cancel()
	ticks := time.Tick(watchEvery)
	last := LastEvent(r)
	client, _ := r.Context().Value(clientKey{}).(trust.Client)
	for {
		stands, moments := h.look(ctx, namespace, last)
		if ctx.Err() != nil {
			return nil, nil
		}
		for i := range moments {
			if last = moments[i].Number; stream.Send("moment", &moments[i]) != nil {
				return nil, nil
			}
		}
		stands.MayChange = client.May(trust.ChangeCounter, namespace) == trust.Allowed
		if stream.Send("watched", stands) != nil || stream.Flush() != nil {
			return nil, nil
		}
		select {
		case <-ticks:
		case <-ctx.Done():
			return nil, nil
		case <-h.ended:
			return nil, nil
		}
	}
}

// stands reads the state of a namespace. It waits for its turn longer than others may wait for a store that is late.
func (h *handler) stands(ctx context.Context, namespace string) Watched {
	turn, end := context.WithTimeout(ctx, 2*backend.Timeout)
	defer end()
	if !h.glances.Wait(turn, namespace) {
		return Watched{At: h.health.now().UnixMilli()}
	}
	defer h.glances.Leave(namespace)
	ctx, cancel := context.WithTimeout(ctx, backend.Timeout)
	defer cancel()
	err := h.health.ready(ctx)
	partly := errors.Is(err, store.ErrPartly)
	stands := Watched{At: h.health.now().UnixMilli(), Ready: err == nil || partly, Partly: partly}
	found, err := h.backend.Top(ctx, namespace, "")
	if !h.health.succeeded(ctx, err, false) {
		return stands
	}
	overrides, err := h.backend.Overrides(ctx, namespace)
	if !h.health.succeeded(ctx, err, false) {
		return stands
	}
	stands.Top, stands.Overrides = &found, len(overrides.List)
	return stands
}

// History keeps events of a stream for late clients: the newest, and some of those before. Events are
// numbered from 1. It is not safe for concurrent use.
type History[T any] struct {
	// Keep is how many of the newest events it keeps. Of the events before them it keeps Old, those
	// whose numbers are multiples of Every.
	Keep, Old, Every int

	old, events []T // oldest first
	last        int64
}

// Next returns the number of the next event.
func (h *History[T]) Next() int64 { return h.last + 1 }

// Add adds the next event.
func (h *History[T]) Add(event T) {
	h.last++
	h.events = append(h.events, event)
	if len(h.events) <= h.Keep {
		return
	}
	if h.Old > 0 && (h.last-int64(h.Keep))%int64(h.Every) == 0 {
		h.old = append(h.old, h.events[0])
		h.old = slices.Delete(h.old, 0, max(0, len(h.old)-h.Old))
	}
	h.events = slices.Delete(h.events, 0, 1)
}

// Len is how many events it keeps.
func (h *History[T]) Len() int { return len(h.old) + len(h.events) }

// After returns the kept events after a number. A number in the future comes from a server that has
// ended; then it returns all.
func (h *History[T]) After(number int64) []T {
	if number > h.last || number < 0 {
		number = 0
	}
	events := slices.Clone(h.events[max(0, len(h.events)-int(h.last-number)):])
	if h.Old == 0 {
		return events
	}
	every := int64(h.Every)
	before := (h.last-int64(h.Keep))/every - number/every // multiples of every that are no longer in events
	return slices.Concat(h.old[max(0, len(h.old)-max(0, int(before))):], events)
}

// LastEvent returns the number of the last event that a client says it has; 0 for none.
func LastEvent(r *http.Request) int64 {
	number, err := strconv.ParseInt(r.Header.Get("last-event-id"), 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// Stream sends server-sent events.
type Stream struct {
	w   http.ResponseWriter
	out *http.ResponseController
}

// NewStream begins a stream, which lasts as long as its request.
func NewStream(w http.ResponseWriter) (*Stream, error) {
	s := &Stream{w: w, out: http.NewResponseController(w)}
	// The server's deadline for reading the request would end the stream.
	if err := s.out.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	w.Header().Set("content-type", "text/event-stream")
	w.Header().Set("cache-control", "no-store")
	w.Header().Set("x-content-type-options", "nosniff")
	return s, nil
}

// Send sends an event with data as JSON, which has no line breaks.
func (s *Stream) Send(event string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if err := s.out.SetWriteDeadline(time.Now().Add(listen.WriteTimeout)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", event, text)
	return err
}

// Flush sends buffered events.
func (s *Stream) Flush() error { return s.out.Flush() }
