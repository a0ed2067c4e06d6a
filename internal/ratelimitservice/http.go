package ratelimitservice

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// maxBody bounds a JSON request, in bytes.
const maxBody = 1 << 20

// Handler answers /json, for clients without gRPC, and /healthcheck.
func Handler(s *Service, healthy func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/json", s.json)
	mux.HandleFunc("/healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if !healthy() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "OK") // an error means that the client has gone
	})
	return mux
}

// unprefixed returns the text of an error of protojson, which says the line and column, without the
// name of its package. That has a space or a no-break space behind it, so that nobody relies on it.
func unprefixed(err error) string {
	return strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
}

// json takes a RateLimitRequest as JSON, and answers with a RateLimitResponse. The status is 200,
// or 429 if the request is over its limit.
func (s *Service) json(w http.ResponseWriter, r *http.Request) {
	var request pb.RateLimitRequest
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		http.Error(w, fmt.Sprintf("the body is too long: want at most %d bytes", maxBody), http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		http.Error(w, "the body ends too early", http.StatusBadRequest)
		return
	case len(bytes.TrimSpace(body)) == 0:
		http.Error(w, `want a RateLimitRequest as JSON, such as {"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}, got an empty body`, http.StatusBadRequest)
		return
	}
	if err := protojson.Unmarshal(body, &request); err != nil {
		http.Error(w, "want a RateLimitRequest as JSON: "+unprefixed(err), http.StatusBadRequest)
		return
	}
	response, err := s.ShouldRateLimit(r.Context(), &request)
	if err != nil {
		http.Error(w, status.Convert(err).Message(), http.StatusBadRequest)
		return
	}
	answer, err := protojson.Marshal(response)
	if err != nil {
		http.Error(w, "the answer can't be written as JSON", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if response.GetOverallCode() == pb.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(answer) // an error means that the client has gone
}
