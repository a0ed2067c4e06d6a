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
	sources map[refusal]*refusals
}

// refusal is a source and a status. The source is an address without its port, or empty for the
// rest.
type refusal struct {
	source string
	status int
}

// refusals are a source's refusals since the log last mentioned it.
type refusals struct {
	count int
	told  time.Time
}

// tell counts a refusal, and logs it if it is time.
func (f *refused) tell(r *http.Request, status int, reason string) {
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
			if ago := now.Sub(s.told); ago < 0 || ago >= refusedEvery {
				delete(f.sources, of)
			}
		}
		if len(f.sources) >= maxRefused {
			of.source = ""
		}
	}
	s := f.sources[of]
	if s == nil {
		s = &refusals{told: now.Add(-refusedEvery)}
		if f.sources == nil {
			f.sources = map[refusal]*refusals{}
		}
		f.sources[of] = s
	}
	s.count++
	if ago := now.Sub(s.told); ago >= 0 && ago < refusedEvery {
		return
	}
	if of.source == "" {
		source = "others"
	}
	f.log.Warn("requests are refused", "source", source, "status", status, "reason", reason, "requests", s.count, "path", r.URL.Path)
	s.count, s.told = 0, now
}
