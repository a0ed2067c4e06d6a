package filter

import (
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/fields"
	"weir/internal/proxywasm"
	"weir/sharedata"
)

// heeding is a key that heeds what the response of a request's upstream says. limits are the rule's if they follow that, and nil
// otherwise.
type heeding struct {
	of     engine.Ref
	limits *variants
}

// noteUpstream records the keys of a request that wait if the upstream says so.
func (s *stream) noteUpstream(checks []engine.Check, verdict counter.Verdict) {
	s.upstream = s.upstream[:0]
	if verdict == counter.Rejected {
		return
	}
	for i := range checks {
		rule := s.all.rules.of(&checks[i])
		if !rule.config.Upstream {
			continue
		}
		h := heeding{of: s.all.decider.node.Save(&checks[i])}
		if v := rule.variants; v != nil && v.told != nil {
			h.limits = v
		}
		s.upstream = append(s.upstream, h)
	}
}

// heedUpstream holds back the keys of a request until the time at which its response says that the
// upstream wants the next, and has their limits follow the upstream's. An answer of the proxy itself says nothing of the upstream.
func (s *stream) heedUpstream() {
	all := s.all
	details, ok := proxywasm.Property("response\x00code_details")
	if ok && string(details) == "via_upstream" {
		now := all.decider.now()
		for i := range s.upstream {
			if h := &s.upstream[i]; h.limits != nil {
				h.limits.follow(h.of.Address)
			}
		}
		status := statusOf(proxywasm.ResponseHeader(":status"))
		if wait := fields.Held(status, proxywasm.ResponseHeader, proxywasm.Now()); wait > 0 {
			for i := range s.upstream {
				if all.decider.node.Charges.HoldBack(&s.upstream[i].of, now+wait, now) {
					all.rules.request.upstreamHolds++
				}
			}
			all.decider.node.PushCharges()
		}
	}
	s.upstream = s.upstream[:0]
}

// follow notes the limit that the current response tells for the key at an address.
func (v *variants) follow(key sharedata.Address) {
	if limit, ok := fields.Limit(v.tokens, proxywasm.ResponseHeader); ok {
		t := v.toldOf(key)
		t.key, t.limit, t.until = key, limit, proxywasm.Now()+toldFor
	}
}
