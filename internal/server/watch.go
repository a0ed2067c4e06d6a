package server

import (
	"context"
	"net/http"
	"time"

	"weir/internal/backend"
)

// WatchPath is where a page watches a namespace.
const WatchPath = "/v1/watch"

const (
	// watchEvery is the time between two looks at the store for a page.
	watchEvery = 2 * time.Second
	// watchLife is for how long a stream goes on. Then its client has to show its token again.
	watchLife = 10 * time.Minute
	// maxWatchers bounds the streams at a time.
	maxWatchers = 32
)

// Watched is how a namespace stands at a moment.
type Watched struct {
	// At is in milliseconds of Unix time.
	At int64 `json:"at"`
	// Ready says that the store takes hits. The others are left out if it could not be read.
	Ready     bool       `json:"ready"`
	Top       *Top       `json:"top,omitempty"`
	Overrides []Override `json:"overrides,omitempty"`
}

// watch tells how a namespace stands, again and again.
func (h *handler) watch(w http.ResponseWriter, r *http.Request) {
	namespace, ok := h.namespace(w, r)
	if !ok {
		return
	}
	if h.watchers.Add(1) > maxWatchers {
		h.watchers.Add(-1)
		h.problem(w, http.StatusServiceUnavailable, "too many pages look: close some")
		return
	}
	defer h.watchers.Add(-1)
	stream, err := NewStream(w)
	if err != nil {
		h.problem(w, http.StatusInternalServerError, "this connection can't be streamed to")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), watchLife)
	defer cancel()
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		stands := h.stands(ctx, namespace)
		if ctx.Err() != nil || stream.Send("watched", stands) != nil || stream.Flush() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		case <-h.ended:
			return
		}
	}
}

func (h *handler) stands(ctx context.Context, namespace string) Watched {
	ctx, cancel := context.WithTimeout(ctx, backend.Timeout)
	defer cancel()
	stands := Watched{At: h.health.now().UnixMilli(), Ready: h.health.ready(ctx) == nil}
	found, err := h.backend.Top(ctx, namespace, "")
	if !h.health.succeeded(ctx, err, false) {
		return stands
	}
	overrides, err := h.backend.Overrides(ctx, namespace)
	if !h.health.succeeded(ctx, err, false) {
		return stands
	}
	top := TopOf(&found, h.health.now())
	stands.Top = &top
	for i := range overrides.List {
		stands.Overrides = append(stands.Overrides, told(&overrides.List[i]))
	}
	return stands
}
