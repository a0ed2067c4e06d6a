package ratelimitservice

import (
	"io"
	"net/http"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
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

// json takes a RateLimitRequest as JSON, and answers with a RateLimitResponse. The status is 200,
// or 429 if the request is over its limit.
func (s *Service) json(w http.ResponseWriter, r *http.Request) {
	var request pb.RateLimitRequest
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = protojson.Unmarshal(body, &request)
	}
	if err != nil {
		http.Error(w, "want a RateLimitRequest as JSON", http.StatusBadRequest)
		return
	}
	response, err := s.ShouldRateLimit(r.Context(), &request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
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
