package ui

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Lines are the lines between nodes and their backend. They can be cut, and can delay answers. The
// zero value has no faults. Lines are safe for concurrent use.
type Lines struct {
	mu    sync.Mutex
	state Faults
	// changed is closed when faults change, so that calls under way notice.
	changed chan struct{}
	// callouts are counted by node.
	callouts map[int]Callouts
}

// Callouts count completed calls of the backend.
type Callouts struct {
	Callouts int64 `json:"callouts"`
	// Failed counts calls that had no answer in time, or an answer other than 200.
	Failed int64 `json:"failed_callouts"`
}

// Faults are the faults of the lines between nodes and their backend.
type Faults struct {
	// Away cuts the lines of all nodes.
	Away bool `json:"away"`
	// DelayMS delays each answer, in milliseconds.
	DelayMS int64 `json:"delay_ms"`
	// Cut has the numbers of the nodes whose lines are cut.
	Cut []int `json:"cut"`
}

// maxDelayMS is longer than any node waits for an answer for long.
const maxDelayMS = 10_000

var errCut = errors.New("the line is cut")

// Set sets the faults. Calls under way break if their line is cut.
func (l *Lines) Set(f Faults) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = f
	if l.changed != nil {
		close(l.changed)
	}
	l.changed = make(chan struct{})
}

// Faults returns the faults in force.
func (l *Lines) Faults() Faults {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// look returns whether a node's line is cut, how long answers are delayed, and a channel that
// closes when either changes.
func (l *Lines) look(node int) (cut bool, delay time.Duration, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	cut = l.state.Away || slices.Contains(l.state.Cut, node)
	return cut, time.Duration(l.state.DelayMS) * time.Millisecond, l.changed
}

// Callouts returns the calls that a node has made.
func (l *Lines) Callouts(node int) Callouts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.callouts[node]
}

func (l *Lines) count(node int, failed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.callouts == nil {
		l.callouts = map[int]Callouts{}
	}
	n := l.callouts[node]
	if n.Callouts++; failed {
		n.Failed++
	}
	l.callouts[node] = n
}

// Transport returns the transport with which a node calls its backend.
func (l *Lines) Transport(node int) http.RoundTripper {
	return &line{lines: l, node: node, next: &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute, DisableCompression: true}}
}

type line struct {
	lines *Lines
	node  int
	next  *http.Transport
}

// RoundTrip implements http.RoundTripper. If a line is cut during a request, the backend may have
// applied it, and the answer is lost, as when a backend dies.
func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.call(r)
	l.lines.count(l.node, err != nil || answer.StatusCode != http.StatusOK)
	return answer, err
}

func (l *line) call(r *http.Request) (*http.Response, error) {
	if cut, _, _ := l.lines.look(l.node); cut {
		if r.Body != nil {
			return nil, errors.Join(errCut, r.Body.Close())
		}
		return nil, errCut
	}
	answer, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := l.late(r); err != nil {
		return nil, errors.Join(err, answer.Body.Close())
	}
	return answer, nil
}

// late waits until an answer may arrive.
func (l *line) late(r *http.Request) error {
	arrived := time.Now()
	for {
		cut, delay, changed := l.lines.look(l.node)
		if cut {
			return errCut
		}
		left := delay - time.Since(arrived)
		if left <= 0 {
			return nil
		}
		select {
		case <-time.After(left):
		case <-changed:
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
}

// CloseIdleConnections closes the connections of a node that ends.
func (l *line) CloseIdleConnections() { l.next.CloseIdleConnections() }
