package trust

import (
	"fmt"
	"strings"
)

// Verbs are what a client may do.
type Verbs uint8

// The verbs. Whoever may change may read what there is to change.
const (
	Push   Verbs = 1 << iota // count, take and give back hits, and report, as proxies do
	Read                     // see counters, limits, usage and changes
	change                   // without reading
	admin                    // what the others do not have
	Change = change | Read
	Admin  = admin | Push | Change
	// AsBefore is what a token may do that has no verbs.
	AsBefore = Push | Change
)

var verbNames = []struct {
	name  string
	verbs Verbs
}{{"push", Push}, {"read", Read}, {"change", Change}, {"admin", Admin}}

// parseVerbs parses verbs with commas between. An unknown verb is named unless it is long.
func parseVerbs(text string) (v Verbs, err error) {
next:
	for name := range strings.SplitSeq(text, ",") {
		for _, known := range verbNames {
			if name == known.name {
				v |= known.verbs
				continue next
			}
		}
		return 0, fmt.Errorf("verbs: want push, read, change or admin, with commas between, got %.16q", name)
	}
	return v, nil
}

// name returns the name of the least verb that has all of v.
func (v Verbs) name() string {
	for _, known := range verbNames {
		if known.verbs&v == v {
			return known.name
		}
	}
	return ""
}

// Where says in which namespaces a client needs a call's verb.
type Where uint8

const (
	// Asked is the namespace that the call names.
	Asked Where = iota
	// All are all namespaces.
	All
)

// Call is something that a client can have done.
type Call uint8

// The calls.
const (
	GetCounters Call = iota
	GetWindow
	GetCounter
	GetOverrides
	GetPrices
	GetUsage
	GetTop
	GetWatch
	GetChanges
	GetNamespaces
	ChangeCounter
	SetOverrides
	UnsetOverrides
	SetPrices
	UnsetPrices
	PushHits
	RateLimit
	RateLimitGiveBack
	GetMetrics
	GetNames
	GetLive
	GetReady
	GetHealth
	calls
)

// Need is what a call needs.
type Need struct {
	// Pattern is that of the call's route or, in words, what it is of.
	Pattern string
	// Verbs are needed; none if anybody may call.
	Verbs Verbs
	Where Where
	// Does says what the call does.
	Does string
}

// needs is the matrix of calls, verbs and namespaces.
var needs = [calls]Need{
	GetCounters:       {"GET /v1/counters", Read, Asked, "lists counters"},
	GetWindow:         {"GET /v1/window", Read, Asked, "shows a window"},
	GetCounter:        {"GET /v1/counter", Read, Asked, "shows a key's counter"},
	GetOverrides:      {"GET /v1/overrides", Read, Asked, "lists overrides"},
	GetPrices:         {"GET /v1/prices", Read, Asked, "lists prices"},
	GetUsage:          {"GET /v1/usage", Read, Asked, "tells what keys have used"},
	GetTop:            {"GET /v1/top", Read, Asked, "tells which keys have most hits"},
	GetWatch:          {"GET /v1/watch", Read, Asked, "the same again and again, as the page does"},
	GetChanges:        {"GET /v1/changes", Read, Asked, "tells who has changed what"},
	GetNamespaces:     {"GET /v1/namespaces", Read, Asked, "lists the namespaces that the token may read, or tells the rules of one"},
	ChangeCounter:     {"POST /v1/counter", change, Asked, "empties a counter, or gives hits back"},
	SetOverrides:      {"PUT /v1/overrides", change, Asked, "sets overrides"},
	UnsetOverrides:    {"DELETE /v1/overrides", change, Asked, "removes overrides"},
	SetPrices:         {"PUT /v1/prices", change, Asked, "sets prices"},
	UnsetPrices:       {"DELETE /v1/prices", change, Asked, "removes prices"},
	PushHits:          {"POST /v1/push", Push, Asked, "counts, takes and gives back hits, reports, and hears of overrides"},
	RateLimit:         {"ShouldRateLimit", Push, Asked, "the rate limit service by gRPC, in the namespace `ratelimit`"},
	RateLimitGiveBack: {"ShouldRateLimit, is_negative_hits", Push, Asked, "gives hits back there"},
	GetMetrics:        {"GET /metrics", 0, All, "metrics that name nobody"},
	GetNames:          {"GET /metrics, with names", Read, All, "those that name namespaces, rules or descriptors, too"},
	GetLive:           {"GET /livez", 0, All, "whether the backend answers"},
	GetReady:          {"GET /readyz", 0, All, "whether the store takes hits"},
	GetHealth:         {"GET /healthz", 0, All, "the same"},
}

// Known reports whether a call has this path, but for those that only tell how the backend is.
func Known(path string) bool {
	for _, need := range needs[:PushHits+1] {
		if _, of, _ := strings.Cut(need.Pattern, " "); of == path {
			return true
		}
	}
	return false
}

// Needs returns what the call needs.
func (c Call) Needs() Need { return needs[c] }

// Calls returns all calls.
func Calls() (all []Call) {
	for c := range calls {
		all = append(all, c)
	}
	return all
}

// Changes reports whether the call changes what people have set or counted.
func (c Call) Changes() bool { return needs[c].Verbs&change != 0 }

// Refusal is why a client may not call.
type Refusal string

// The refusals.
const (
	Allowed Refusal = ""
	// Foreign is for a client that may do nothing in the namespace.
	Foreign Refusal = "authorization: the token is not for this namespace"
	// lacks is for a client that lacks the verb there.
	lacks = "authorization: want the verb "
)

// IsOfNamespace reports whether a refusal's text is about a namespace, so that others may be
// allowed.
func IsOfNamespace(text string) bool {
	return strings.HasPrefix(text, string(Foreign)) || strings.HasPrefix(text, lacks)
}

// May decides whether a client may call. namespace is that which the call names, if it names one.
func (c *Client) May(call Call, namespace string) Refusal {
	need, has := needs[call], Verbs(0)
	for _, g := range c.grants {
		if g.namespace == "" || need.Where == Asked && g.namespace == namespace {
			has |= g.verbs
		}
	}
	switch {
	case need.Verbs&^has == 0:
		return Allowed
	case has == 0:
		return Foreign
	}
	return Refusal(lacks + need.Verbs.name() + " for this namespace")
}
