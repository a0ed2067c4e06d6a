package filter

import "github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

// stream is one request.
type stream struct {
	types.DefaultHttpContext
	plugin *plugin
	// decorate tells whether the response gets the headers, which the request phase has written: a local reply has them
	// already.
	decorate bool
	headers  headers
	// later are the rules that charge when the response is there.
	later []laterCharge
}

// laterCharge is what is needed to charge a rule once the request is gone. Its memory is reused.
type laterCharge struct {
	rule int
	key  []byte
	cost uint64
}

// OnHttpRequestHeaders implements types.HttpContext: it decides the request.
func (s *stream) OnHttpRequestHeaders(int, bool) types.Action {
	p := s.plugin
	s.decorate, s.later = false, s.later[:0]
	if len(p.held) > 0 {
		p.addHeld(p.now())
	}
	p.request.begin()
	matched := p.match()
	if len(matched) == 0 {
		return types.ActionContinue
	}
	now := p.now()
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
		if matched[i].rule.charged {
			s.chargeLater(&matched[i])
		}
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
		m.rule, m.index, m.cost = r, i, p.cost(&r.cost)
		m.key = p.request.appendKey(m.key[:0], r)
		n++
	}
	return p.matches[:n]
}

// OnHttpResponseHeaders implements types.HttpContext.
func (s *stream) OnHttpResponseHeaders(int, bool) types.Action {
	if len(s.later) > 0 {
		s.charge()
	}
	if s.decorate {
		s.headers.replace()
	}
	return types.ActionContinue
}

// chargeLater remembers a rule that charges when the response is there. What the request says of it is read now.
func (s *stream) chargeLater(m *match) {
	n := len(s.later)
	if n < cap(s.later) {
		s.later = s.later[:n+1]
	} else {
		s.later = append(s.later, laterCharge{})
	}
	l := &s.later[n]
	l.rule, l.cost = m.index, 0
	l.key = append(l.key[:0], m.key...)
	if m.rule.onResponse.selected {
		l.cost = s.plugin.selectedCost(&m.rule.onResponse, 0)
	}
}

// charge takes what the response costs, whether or not there is room.
func (s *stream) charge() {
	p := s.plugin
	now := p.now()
	m := &p.matches[0]
	for i := range s.later {
		l := &s.later[i]
		m.rule, m.index, m.cost = &p.rules[l.rule], l.rule, l.cost
		if name := m.rule.onResponse.responseHeader; name != "" {
			m.cost = p.responseCost(name)
		}
		if m.cost == 0 {
			continue
		}
		m.key = append(m.key[:0], l.key...)
		m.address = p.table.Address(m.key)
		p.read(m, now)
		p.charge(m, now, forced)
	}
	s.later = s.later[:0]
}

// OnHttpStreamDone implements types.HttpContext.
func (s *stream) OnHttpStreamDone() {
	s.decorate, s.later = false, s.later[:0]
	s.plugin.idle = append(s.plugin.idle, s)
}
