package server

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/backend"
	"weir/internal/trust"
)

// ChangesPath is the path of the records of changes.
const ChangesPath = "/v1/changes"

// Changes are the records of what people have changed in a namespace, in the order of time.
type Changes struct {
	Changes []backend.Record `json:"changes"`
}

// changes answers with the records of changes.
func (h *handler) changes(w http.ResponseWriter, r *http.Request, namespace string) {
	var since time.Time
	if text := r.URL.Query().Get("since"); text != "" {
		var err error
		if since, err = time.Parse(time.RFC3339, text); err != nil {
			h.problem(w, http.StatusBadRequest, fmt.Sprintf("since: want a time such as 2026-01-02T15:04:05Z, got %.80q", text))
			return
		}
	}
	if !h.lookers.Enter(namespace) {
		h.problem(w, http.StatusServiceUnavailable, "too many requests are reading records: try again")
		return
	}
	defer h.lookers.Leave(namespace)
	found, err := h.backend.Changes(r.Context(), namespace, since)
	if h.worked(w, r, err, false) {
		h.json(w, Changes{found})
	}
}

// maxKey is the most bytes of an Idempotency-Key.
const maxKey = 64

// by returns what changes limits and counters for the sender of a request. If ok is false, the
// request was answered.
func (h *handler) by(w http.ResponseWriter, r *http.Request) (c backend.Changer, ok bool) {
	by, ok := h.askedBy(w, r)
	return h.backend.By(by), ok
}

func (h *handler) askedBy(w http.ResponseWriter, r *http.Request) (by *backend.By, ok bool) {
	client, _ := r.Context().Value(clientKey{}).(trust.Client)
	by = &backend.By{
		Name: client.Name, Known: string(client.By), Address: r.RemoteAddr, Reason: r.URL.Query().Get("reason"),
		Once: r.Header.Get("Idempotency-Key"), Log: h.log,
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		by.Address = host
	}
	switch {
	case len(by.Reason) > backend.MaxReason || !utf8.ValidString(by.Reason):
		h.problem(w, http.StatusBadRequest, fmt.Sprintf("reason: want at most %d bytes of UTF-8, got %d", backend.MaxReason, len(by.Reason)))
	case len(by.Once) > maxKey || strings.ContainsFunc(by.Once, func(c rune) bool { return c <= ' ' || c > '~' }):
		h.problem(w, http.StatusBadRequest, fmt.Sprintf("idempotency-key: want at most %d visible ASCII characters", maxKey))
	default:
		return by, true
	}
	return nil, false
}

// recorded reports whether a change did not fail for want of a record. If it did, recorded has
// answered the request.
func (h *handler) recorded(w http.ResponseWriter, r *http.Request, err error) bool {
	if !errors.Is(err, backend.ErrUnrecorded) {
		return true
	}
	h.health.succeeded(r.Context(), err, false)
	h.problem(w, http.StatusServiceUnavailable, backend.ErrUnrecorded.Error())
	return false
}
