package filter

import (
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/proxywasm"
)

// stream is one request.
type stream struct {
	types.DefaultHttpContext
	plugin *plugin
	// decorate tells whether the response gets the headers, which the request phase has written: a local reply has them
	// already.
	decorate bool
	headers  headers
}

// OnHttpRequestHeaders implements types.HttpContext: it decides the request.
func (s *stream) OnHttpRequestHeaders(int, bool) types.Action {
	p := s.plugin
	s.decorate = false
	p.request.begin()
	matched := p.match()
	if len(matched) == 0 {
		return types.ActionContinue
	}
	now := proxywasm.Now()
	p.addHeld(now)
	if !p.decide(matched, now) {
		for i := range matched {
			p.metrics.rules[matched[i].index].rejected.count()
		}
		if !p.answer.reject(matched, now, &s.headers) {
			// A proxy that takes no reply would leave the client waiting for ever.
			return types.ActionContinue
		}
		return types.ActionPause
	}
	for i := range matched {
		p.metrics.rules[matched[i].index].allowed.count()
	}
	s.decorate = p.answer.describe(matched, now, &s.headers)
	return types.ActionContinue
}

// match finds the rules that apply to the current request, and the keys that it has for them.
func (p *plugin) match() []match {
	n := 0
	for i := range p.rules {
		r := &p.rules[i]
		if !p.request.matches(&r.match) {
			continue
		}
		m := &p.matches[n]
		m.rule, m.index, m.cost = r, i, 1
		m.key = p.request.appendKey(m.key[:0], r)
		n++
	}
	return p.matches[:n]
}

// OnHttpResponseHeaders implements types.HttpContext.
func (s *stream) OnHttpResponseHeaders(int, bool) types.Action {
	if s.decorate {
		s.headers.replace()
	}
	return types.ActionContinue
}

// OnHttpStreamDone implements types.HttpContext.
func (s *stream) OnHttpStreamDone() {
	s.decorate = false
	s.plugin.idle = append(s.plugin.idle, s)
}
