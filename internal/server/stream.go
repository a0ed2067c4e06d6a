package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"weir/internal/listen"
)

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
