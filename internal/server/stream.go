package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Stream sends server-sent events.
type Stream struct {
	w   http.ResponseWriter
	out *http.ResponseController
}

// NewStream begins an answer that goes on for as long as its request does.
func NewStream(w http.ResponseWriter) (*Stream, error) {
	s := &Stream{w: w, out: http.NewResponseController(w)}
	// The server's deadline for reading a request would end it.
	if err := s.out.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	w.Header().Set("content-type", "text/event-stream")
	w.Header().Set("cache-control", "no-store")
	w.Header().Set("x-content-type-options", "nosniff")
	return s, nil
}

// Send sends an event. Its data is JSON, which has no line breaks.
func (s *Stream) Send(event string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if err := s.out.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", event, text)
	return err
}

// Flush sends what is there.
func (s *Stream) Flush() error { return s.out.Flush() }
