package config

import (
	"strconv"
	"strings"

	"weir/window"
)

// maxReplicas is the most proxies that share a limit without a backend.
const maxReplicas = 10_000

// shares say what part of its limits a proxy has of a rule with sync_rate "share".
type shares struct {
	// property reads a property of the proxy as text; nil if no proxy is there to ask.
	property func(path string) string
	// replicas is how many proxies there are; 0 if only the proxy can tell.
	replicas uint64
	// of reports whether the rule that is being read has such a rate.
	of bool
}

var replicasFields = []field{{"property", required}}

// readReplicas reads how many proxies there are. It returns 0 after an error, too.
func (s *shares) readReplicas(v *value) uint64 {
	if v.kind == kindNumber {
		return uint64(v.integer(1, maxReplicas))
	}
	if v.kind != kindObject {
		v.wrong("an integer from 1 to " + strconv.Itoa(maxReplicas) + ` or an object such as {"property": ["node", "metadata", "REPLICAS"]}`)
		return 0
	}
	var from Selector
	v.object(`{"property": ["node", "metadata", "REPLICAS"]}`, replicasFields, from.read)
	if s.property == nil || from.Name == "" {
		return 0
	}
	text := s.property(from.Name)
	n, ok := natural(text, 10)
	if !ok || n < 1 || n > maxReplicas {
		v.fail("want an integer from 1 to " + strconv.Itoa(maxReplicas) + " in the proxy's " + strings.ReplaceAll(from.Name, "\x00", ".") +
			`, got "` + cut(text) + `"`)
		return 0
	}
	return uint64(n)
}

// divide leaves this proxy's part of a limit, if the rule's limits are divided. hits, burst and from
// are the fields of the limit.
func (s *shares) divide(limit *window.Limit, hits, burst, from *value) {
	if !s.of {
		return
	}
	if from.given() {
		from.fail(`want none with sync_rate "share", because a request's own limit can't be divided`)
	}
	limit.Max = s.part(limit.Max, hits)
	switch {
	case burst.given():
		limit.Burst = s.part(limit.Burst, burst)
	case limit.Kind.Bursts():
		limit.Burst = max(limit.Max, 1)
	}
}

// part returns this proxy's part of a number of hits. All parts together are never more.
func (s *shares) part(whole uint64, v *value) uint64 {
	if s.replicas == 0 {
		return whole
	}
	if 0 < whole && whole < s.replicas {
		v.wrong("0, or at least one for each of the " + strconv.FormatUint(s.replicas, 10) + " replicas")
	}
	return whole / s.replicas
}
