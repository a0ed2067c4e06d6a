package server

import (
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
func (h *handler) changes(_ http.ResponseWriter, r *http.Request, namespace string) (any, error) {
	text := r.URL.Query().Get("since")
	since, err := time.Parse(time.RFC3339, text)
	if text != "" && err != nil {
		return nil, wrong("since: want a time such as 2026-01-02T15:04:05Z, got %.80q", text)
	}
	found, err := h.backend.Changes(r.Context(), namespace, since)
	return Changes{found}, err
}

// maxKey is the most bytes of an Idempotency-Key.
const maxKey = 64

// by returns what changes limits and counters for the sender of a request.
func (h *handler) by(r *http.Request) (backend.Changer, error) {
	by, err := h.askedBy(r)
	return h.backend.By(by), err
}

func (h *handler) askedBy(r *http.Request) (by *backend.By, err error) {
	client, _ := r.Context().Value(clientKey{}).(trust.Client)
	by = &backend.By{
		Name: client.Name, Known: string(client.By), Address: hostOf(r), Reason: r.URL.Query().Get("reason"),
		Once: r.Header.Get("Idempotency-Key"), Log: h.log,
	}
	switch {
	case len(by.Reason) > backend.MaxReason || !utf8.ValidString(by.Reason):
		err = wrong("reason: want at most %d bytes of UTF-8, got %d", backend.MaxReason, len(by.Reason))
	case len(by.Once) > maxKey || strings.ContainsFunc(by.Once, func(c rune) bool { return c <= ' ' || c > '~' }):
		err = wrong("idempotency-key: want at most %d visible ASCII characters", maxKey)
	}
	return by, err
}

// hostOf returns the address of a request's sender without its port, if it has one.
func hostOf(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}
