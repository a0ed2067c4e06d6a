// Package windowtest has vectors for tests: what a rule with some limits decides, step by step, whoever
// decides, and what clients are told.
package windowtest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
)

//go:embed vectors.json
var vectors []byte

// Vector is a rule's limits, and requests one after the other.
type Vector struct {
	Name   string
	Limits json.RawMessage
	// Nanoseconds means that a decision depends on parts of a microsecond.
	Nanoseconds bool
	Steps       []Step
}

// Step is a request, and what is to become of it. Seconds are rounded as in fields.
type Step struct {
	At        string // since the beginning of a day
	Key       string
	Cost      uint64
	Allowed   bool
	Remaining []uint64 // of each limit
	Next      []uint64 `json:"t"`
	Reset     uint64
	// RetryAfter is -1 if there is none.
	RetryAfter int64 `json:"retry_after"`
}

// Vectors returns all vectors.
func Vectors(t *testing.T) (all []Vector) {
	t.Helper()
	must.OK(t, json.Unmarshal(vectors, &all))
	must.AtLeast(t, len(all), 1, "vectors")
	return all
}

// Time is when the request comes, on a day that begins then.
func (s *Step) Time(t *testing.T, day time.Time) time.Time {
	t.Helper()
	after := must.Get(time.ParseDuration(s.At))(t)
	return day.Add(after)
}

// Fields are what the client is told by a rule r, as lines of "name: value". A field without a value is not there.
func (s *Step) Fields() string {
	var states []string
	for i := range s.Remaining {
		name := "r"
		if i > 0 {
			name = fmt.Sprint("r.", i+1)
		}
		states = append(states, fmt.Sprintf("%q;r=%d;t=%d", name, s.Remaining[i], s.Next[i]))
	}
	retry := ""
	if s.RetryAfter >= 0 {
		retry = fmt.Sprint(s.RetryAfter)
	}
	return fmt.Sprintf("ratelimit: %s\nx-ratelimit-reset: %d\nretry-after: %s\n", strings.Join(states, ", "), s.Reset, retry)
}
