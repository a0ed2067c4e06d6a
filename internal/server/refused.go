package server

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// refusedEvery is how often the log mentions the refusals of a source.
	refusedEvery = time.Minute
	// maxRefused bounds the sources that are counted separately in that time. The rest count
	// together.
	maxRefused = 256
)

// refused logs requests that are refused for lack of a token or a certificate: once a minute for
// each source, with their number. It is safe for concurrent use.
type refused struct {
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	sources map[refusal]*unlogged
}

// refusal is a source and a status. The source is an address without its port, or empty for the
// rest.
type refusal struct {
	source string
	status int
}

// add counts a refusal, and logs it if it is time.
func (f *refused) add(r *http.Request, status int, reason string) {
	source, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		source = r.RemoteAddr
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	of := refusal{source, status}
	if f.sources[of] == nil && len(f.sources) >= maxRefused {
		for of, s := range f.sources {
			if ago := now.Sub(s.loggedAt); ago < 0 || ago >= refusedEvery {
				delete(f.sources, of)
			}
		}
		if len(f.sources) >= maxRefused {
			of.source = ""
		}
	}
	s := f.sources[of]
	if s == nil {
		s = &unlogged{}
		if f.sources == nil {
			f.sources = map[refusal]*unlogged{}
		}
		f.sources[of] = s
	}
	requests, due := s.add(now, refusedEvery)
	if !due {
		return
	}
	if of.source == "" {
		source = "others"
	}
	f.log.Warn("requests are refused", "source", source, "status", status, "reason", reason, "requests", requests, "path", r.URL.Path)
}
