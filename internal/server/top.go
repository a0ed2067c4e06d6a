package server

import (
	"encoding/hex"
	"math"
	"net/http"
	"time"

	"weir/internal/backend"
)

// TopPath is the path of the nodes' figures about a namespace's keys.
const TopPath = "/v1/top"

// maxLookers bounds the concurrent requests that read reports: reports are long, and pushes should
// not wait for them. A namespace has at most half of them.
const maxLookers = 4

// Top has the figures of a namespace's nodes about its keys in the last minute or two.
type Top struct {
	// Nodes have reported, through Senders: each worker of a proxy is a sender. OldestSeconds is
	// the age of the oldest report.
	Nodes         int       `json:"nodes"`
	Senders       int       `json:"senders"`
	OldestSeconds float64   `json:"oldest_seconds"`
	Rules         []TopRule `json:"rules"`
	// Configurations are those that the nodes have, the one of most nodes first.
	Configurations []Configuration `json:"configurations,omitempty"`
}

// TopRule has the figures about a rule.
type TopRule struct {
	Rule   string `json:"rule"`
	Shadow bool   `json:"shadow"`
	Nodes  int    `json:"nodes"`
	// Limits are those of most nodes, if they have told them. Varies says that some keys have others, by
	// the configuration or by overrides.
	Limits []KnownLimit `json:"limits,omitempty"`
	Varies bool         `json:"varies,omitempty"`
	// Seconds is the longest time that a report covers. The rates and the share of refused requests
	// are exact.
	Seconds float64 `json:"seconds"`
	// Requests were counted in that time, and RefusedRequests of them were refused.
	Requests                 uint64  `json:"requests"`
	RefusedRequests          uint64  `json:"refused_requests"`
	RequestsPerSecond        float64 `json:"requests_per_second"`
	HitsPerSecond            float64 `json:"hits_per_second"`
	RefusedRequestsPerSecond float64 `json:"refused_requests_per_second"`
	RefusedHitsPerSecond     float64 `json:"refused_hits_per_second"`
	ShareRefused             float64 `json:"share_refused"`
	// Recent covers the last RecentSeconds, about ten. It is left out if no node reports it.
	RecentSeconds float64        `json:"recent_seconds,omitempty"`
	Recent        *backend.Rates `json:"recent,omitempty"`
	// Used are the keys that asked for most hits, and Refused the keys that were refused most.
	Used    []TopKey `json:"used"`
	Refused []TopKey `json:"refused"`
	// Others is the most hits a second that a key in no list can have asked for, and OthersRefused
	// the most that such a key can have been refused.
	Others        float64 `json:"others_hits_per_second"`
	OthersRefused float64 `json:"others_refused_per_second"`
	// Measured says what a shadow rule would do.
	Measured *backend.Measured `json:"measured,omitempty"`
}

// TopKey has the figures of a key, in hits a second.
type TopKey struct {
	// Hash is the key's identity in the backend. Values are those of the rule's selectors, if the
	// rule reveals them.
	Hash   string  `json:"hash"`
	Values []Value `json:"values,omitempty"`
	// A rate may be up to More higher, because nodes track only their first keys. It may also be
	// off by Margin, twice the standard error of a random sample.
	HitsPerSecond    float64 `json:"hits_per_second"`
	HitsMore         float64 `json:"hits_more"`
	HitsMargin       float64 `json:"hits_margin"`
	RefusedPerSecond float64 `json:"refused_per_second"`
	RefusedMore      float64 `json:"refused_more"`
	RefusedMargin    float64 `json:"refused_margin"`
	// These cover the rule's RecentSeconds, as far as nodes know.
	RecentHitsPerSecond    float64 `json:"recent_hits_per_second"`
	RecentRefusedPerSecond float64 `json:"recent_refused_per_second"`
	// Use is the used share of the key's tightest limit when it was last seen.
	Use   float64 `json:"use"`
	Nodes int     `json:"nodes"`
	// Limits say how the key stands now, if that was asked and its limits are those of the rule.
	Limits []CounterLimit `json:"limits,omitempty"`
}

// Value is one value of a key. Bytes that are not UTF-8 are shown as U+FFFD.
type Value = backend.Value

// top answers with what nodes have seen of a namespace's keys, or of those of a rule.
func (h *handler) top(_ http.ResponseWriter, r *http.Request, namespace string) (any, error) {
	first, err := topAsked(r.URL.Query().Get("keys"))
	if err != nil {
		return nil, err
	}
	found, err := h.backend.Top(r.Context(), namespace, r.URL.Query().Get("rule"))
	top := TopOf(&found, h.health.now())
	if err == nil && first > 0 {
		err = h.stand(r, namespace, &top, &found, first)
	}
	return top, err
}

// TopOf converts what a backend has found, for a moment.
func TopOf(found *backend.Top, now time.Time) Top {
	t := Top{Nodes: found.Nodes, Senders: found.Senders, Rules: []TopRule{}, Configurations: configurationsOf(found.Configurations)}
	if found.OldestNanos != 0 {
		t.OldestSeconds = rounded(max(0, now.Sub(time.Unix(0, int64(min(found.OldestNanos, math.MaxInt64)))).Seconds()))
	}
	for _, f := range found.Rules {
		r := TopRule{
			Rule: f.Name, Shadow: f.Shadow, Nodes: f.Nodes, Seconds: rounded(f.Seconds), RequestsPerSecond: rounded(f.Requests),
			HitsPerSecond: rounded(f.Hits), RefusedRequestsPerSecond: rounded(f.RefusedRequests), RefusedHitsPerSecond: rounded(f.RefusedHits),
			Requests: f.Asked, RefusedRequests: f.Rejected, ShareRefused: f.ShareRefused, Used: topKeys(f.Used), Refused: topKeys(f.Refused), Others: rounded(f.Others),
			OthersRefused: rounded(f.OthersRefused), Measured: f.Measured,
		}
		if f.RecentSeconds > 0 {
			r.RecentSeconds = rounded(f.RecentSeconds)
			r.Recent = &backend.Rates{
				Requests: rounded(f.Recent.Requests), Hits: rounded(f.Recent.Hits),
				RefusedRequests: rounded(f.Recent.RefusedRequests), RefusedHits: rounded(f.Recent.RefusedHits),
			}
		}
		t.Rules = append(t.Rules, r)
	}
	return t
}

func topKeys(found []backend.TopKey) []TopKey {
	keys := make([]TopKey, len(found))
	for i, f := range found {
		keys[i] = TopKey{
			Hash: hex.EncodeToString(f.ID[:]), HitsPerSecond: rounded(f.Hits), HitsMore: rounded(f.MoreHits), HitsMargin: rounded(f.Margin),
			RefusedPerSecond: rounded(f.Refused), RefusedMore: rounded(f.MoreRefused), RefusedMargin: rounded(f.MarginRefused),
			RecentHitsPerSecond: rounded(f.RecentHits), RecentRefusedPerSecond: rounded(f.RecentRefused),
			Use: f.Use, Nodes: f.Nodes,
		}
		keys[i].Values = valuesOf(f.Name)
	}
	return keys
}

// rounded rounds a number to three places.
func rounded(n float64) float64 { return math.Round(n*1000) / 1000 }
