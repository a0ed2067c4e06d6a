package filter

import (
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/fields"
	"weir/internal/proxywasm"
)

// noteUpstream records the keys of a request that wait if the upstream says so.
func (s *stream) noteUpstream(checks []engine.Check, verdict counter.Verdict) {
	s.upstream = s.upstream[:0]
	if verdict == counter.Rejected {
		return
	}
	for i := range checks {
		if s.all.rules.of(&checks[i]).config.Upstream {
			s.upstream = append(s.upstream, s.all.decider.node.Save(&checks[i]))
		}
	}
}

// heedUpstream holds back the keys of a request until the time at which its response says that the
// upstream wants the next. An answer of the proxy itself says nothing of the upstream.
func (s *stream) heedUpstream() {
	all := s.all
	details, ok := proxywasm.Property("response\x00code_details")
	if ok && string(details) == "via_upstream" {
		status := statusOf(proxywasm.ResponseHeader(":status"))
		if wait := fields.Held(status, proxywasm.ResponseHeader, proxywasm.Now()); wait > 0 {
			now := all.decider.now()
			for i := range s.upstream {
				if all.decider.node.Charges.HoldBack(&s.upstream[i], now+wait, now) {
					all.rules.request.upstreamHolds++
				}
			}
			all.decider.node.PushCharges()
		}
	}
	s.upstream = s.upstream[:0]
}
