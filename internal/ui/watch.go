package ui

import (
	"net/http"

	"weir/internal/server"
)

// Watch serves the page with the live view of weir serve, which changes nothing. backend answers
// the page's requests, and requires its token.
func Watch(backend, page http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live.json", func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]string{"live": "serve"}) })
	mux.Handle("GET "+server.WatchPath, backend)
	mux.Handle("GET "+server.CounterPath, backend)
	mux.Handle("/", page)
	return mux
}
