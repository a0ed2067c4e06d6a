package filter

import (
	"weir/internal/engine"
	"weir/internal/fields"
	"weir/internal/usage"
	"weir/internal/wire"
)

// This file is all that tests see of the package's layout; the others are of package filter_test.

const (
	MaxIdle        = maxIdle
	MaxIdleKeys    = maxIdleKeys
	BodyPiece      = bodyPiece
	BodyWait       = bodyWait
	KeptAfter      = keptAfter
	KeptFor        = keptFor
	MaxRequestBody = maxRequestBody
)

// ParseHits is the number of hits that a text says.
var ParseHits = parseHits

// Plugin is a plugin context.
type Plugin = plugin

// Node is the node that decides; nil if the plugin has not started.
func (p *plugin) Node() *engine.Engine { return p.streams.decider.node }

// Rules are the rules as the node decides them.
func (p *plugin) Rules() []engine.Rule { return p.streams.rules.limits }

// Find returns the current request's checks on rules that are no shadow rules.
func (p *plugin) Find() []engine.Check {
	p.streams.rules.request.beginRequest(nil)
	checks, _ := p.streams.rules.findChecks()
	return checks
}

// First is the first check of the last request that was decided.
func (p *plugin) First() *engine.Check { return &p.streams.rules.checks[0] }

// Named is a check on a rule for the key that people name by these values.
func (p *plugin) Named(rule int, values ...string) (d engine.Check) {
	var texts [][]byte
	for _, value := range values {
		texts = append(texts, []byte(value))
	}
	d.Rule = &p.streams.rules.limits[rule]
	d.Key, _ = p.streams.rules.AppendKey(nil, rule, texts)
	return d
}

// Varies is what people are told of a rule's limits.
func (p *plugin) Varies(rule int) wire.RuleFlags {
	_, varies := p.streams.rules.KeyOf(rule)
	return varies
}

// KeysMemory is how many bytes are kept for the keys of the next request.
func (p *plugin) KeysMemory() int { return cap(p.streams.rules.keys) }

// Prices is the list by which a rule charges now.
func (p *plugin) Prices(rule int) *usage.PriceList { return p.streams.rules.list[rule].prices.list }

// Idle is how many streams are kept for reuse.
func (p *plugin) Idle() int { return len(p.streams.idle) }

// Bodies is how many requests wait for their bodies.
func (p *plugin) Bodies() int { return len(p.streams.waiting) }

// Open is how many responses are read for their cost.
func (p *plugin) Open() int { return len(p.streams.responses.open) }

// Holds reports whether any request holds places.
func (p *plugin) Holds() bool { return p.streams.responses.holders.first != nil }

// Stream is a request.
type Stream = stream

// ID is the proxy's number of the stream.
func (s *stream) ID() uint32 { return s.id }

// Waits reports whether the request waits for the backend, or for room.
func (s *stream) Waits() bool { return s.wait.Waiting() }

// Passed reports whether the request has passed, with headers for its response.
func (s *stream) Passed() bool { return s.decorate }

// Answered reports whether the proxy has replied in the upstream's place.
func (s *stream) Answered() bool { return s.answered }

// Headers are those that rules have written.
func (s *stream) Headers() *fields.List { return &s.headers }

// Charges is how many rules charge the request for its response.
func (s *stream) Charges() int { return len(s.charges.list) }

// Names is how many bytes the stream keeps for the names of models.
func (s *stream) Names() int { return cap(s.charges.names) }

// Holds reports whether the request holds places.
func (s *stream) Holds() bool { return s.charges.holding.holders != nil }

// GoAround makes the plugin decide all requests the general way. It reports whether the straight one was to be had.
func (p *plugin) GoAround() (straight bool) {
	straight = p.streams.rules.only != nil
	p.streams.rules.only = nil
	return straight
}

// Move moves a rule to a mode at run time.
func (p *plugin) Move(rule int, mode wire.Mode) { p.streams.rules.Move(rule, mode) }
