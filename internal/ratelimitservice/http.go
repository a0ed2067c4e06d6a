package ratelimitservice

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"weir/internal/listen"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// maxBody bounds a JSON request, in bytes.
const maxBody = 1 << 20

// smallBody is the size up to which any number of JSON requests are read at a time. Beyond it there are
// maxLarge.
const smallBody = 4 << 10

// HandlerOptions configure a [Handler].
type HandlerOptions struct {
	Healthy func() bool
	// Host is the address at which the handler is served, if requests of /json have to name it or a
	// loopback address as their host; empty if they may name any.
	Host string
	// GiveBack is as in [ServiceOptions], for clients of /json.
	GiveBack bool
}

// Handler answers /json, for clients without gRPC, and /healthcheck. /json answers 403 to a page of
// another site, and 421 to another host than Options.Host.
func Handler(s *Service, o HandlerOptions) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/json", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case o.Host != "" && !listen.KnownHost(r.Host, o.Host):
			http.Error(w, "host: want a loopback address or "+o.Host, http.StatusMisdirectedRequest)
		case !listen.SameOrigin(r):
			http.Error(w, "origin: want no request by a page of another site", http.StatusForbidden)
		default:
			s.json(w, r, o.GiveBack)
		}
	})
	mux.HandleFunc("/healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if !o.Healthy() {
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
func (s *Service) json(w http.ResponseWriter, r *http.Request, giveBack bool) {
	var request pb.RateLimitRequest
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	switch _, tooLarge := errors.AsType[*http.MaxBytesError](err); {
	case tooLarge:
		http.Error(w, fmt.Sprintf("the body is too long: want at most %d bytes", maxBody), http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		http.Error(w, "the body ends too early", http.StatusBadRequest)
		return
	case len(bytes.TrimSpace(body)) == 0:
		http.Error(w, `want a RateLimitRequest as JSON, such as {"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}, got an empty body`, http.StatusBadRequest)
		return
	}
	if len(body) > smallBody {
		select {
		case s.bodies <- struct{}{}:
			defer func() { <-s.bodies }()
		case <-r.Context().Done():
			return
		}
	}
	if err := protojson.Unmarshal(body, &request); err != nil {
		http.Error(w, "want a RateLimitRequest as JSON: "+unprefixed(err), http.StatusBadRequest)
		return
	}
	response, err := s.respond(r.Context(), &request, giveBack)
	if err != nil {
		code := http.StatusBadRequest
		switch {
		case errors.Is(err, errGiveBack):
			code = http.StatusForbidden
		case status.Code(err) == codes.Internal:
			code = http.StatusInternalServerError
		}
		http.Error(w, status.Convert(err).Message(), code)
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
