package accesslog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	// batchSize is how many requests a log hands over at once.
	batchSize = 256
	// batchesAhead is how many batches are read ahead from a log.
	batchesAhead = 8
)

// Log is a log in a merge.
type Log struct {
	Name   string
	Reader *Reader
	// Disorder is complete once the merge is.
	Disorder
}

// Merger reads several logs at once, and returns their requests in the order of their times.
// Requests of the same time keep the order of the logs, and of their lines. It is not safe for
// concurrent use.
type Merger struct {
	sources []*source
	// ready are the sources with requests left.
	ready  []*source
	cancel context.CancelFunc
	group  sync.WaitGroup
}

type source struct {
	log     *Log
	batches chan []Request
	err     error // valid when batches is closed
	batch   []Request
	at      int
}

// Merge begins to read. The logs belong to the merger until Close has returned.
func Merge(ctx context.Context, logs []*Log) (*Merger, error) {
	ctx, cancel := context.WithCancel(ctx)
	m := &Merger{cancel: cancel}
	for _, log := range logs {
		s := &source{log: log, batches: make(chan []Request, batchesAhead)}
		m.sources = append(m.sources, s)
		m.group.Go(func() { s.read(ctx) })
	}
	for _, s := range m.sources {
		found, err := s.more()
		if err != nil {
			m.Close()
			return nil, err
		}
		if found {
			m.ready = append(m.ready, s)
		}
	}
	return m, nil
}

// read hands over the requests of a log in order, until the end of the log or of ctx.
func (s *source) read(ctx context.Context) {
	defer close(s.batches)
	o := order{next: s.log.Reader.Read}
	defer func() { s.log.Disorder = o.Disorder }()
	for s.err == nil {
		batch := make([]Request, 0, batchSize)
		for len(batch) < batchSize && s.err == nil {
			var r Request
			if r, s.err = o.read(); s.err == nil {
				batch = append(batch, r)
			}
		}
		select {
		case s.batches <- batch:
		case <-ctx.Done():
			s.err = ctx.Err()
		}
	}
}

// more gets a source's next requests, and reports whether it has any.
func (s *source) more() (found bool, err error) {
	for s.at == len(s.batch) {
		batch, open := <-s.batches
		if !open {
			if errors.Is(s.err, io.EOF) {
				return false, nil
			}
			return false, fmt.Errorf("%s: %w", s.log.Name, s.err)
		}
		s.batch, s.at = batch, 0
	}
	return true, nil
}

// Next returns the next request of all logs, or io.EOF after the last. The request is valid until
// the next call.
func (m *Merger) Next() (*Request, error) {
	if len(m.ready) == 0 {
		return nil, io.EOF
	}
	first := 0
	for i, s := range m.ready[1:] {
		if s.batch[s.at].Time < m.ready[first].batch[m.ready[first].at].Time {
			first = i + 1
		}
	}
	s := m.ready[first]
	r := &s.batch[s.at]
	if s.at++; s.at == len(s.batch) {
		found, err := s.more()
		if err != nil {
			return nil, err
		}
		if !found {
			m.ready = append(m.ready[:first], m.ready[first+1:]...)
		}
	}
	return r, nil
}

// Close stops all reading, and waits until it has stopped.
func (m *Merger) Close() {
	m.cancel()
	for _, s := range m.sources {
		for range s.batches {
			// Requests still on their way are dropped.
		}
	}
	m.group.Wait()
}
