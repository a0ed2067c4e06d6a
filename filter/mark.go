package filter

import (
	"weir/internal/node"
	"weir/internal/proxywasm"
)

// overHeader lists the rules that had no room for a request that passes nevertheless.
const overHeader = "x-weir-over"

// clearMark removes the header, which clients may have sent.
func clearMark() {
	if _, sent := proxywasm.RequestHeader(overHeader); sent {
		proxywasm.RemoveRequestHeader(overHeader)
		proxywasm.ClearRouteCache() // the client's header may have chosen the route
	}
}

// mark adds the header with the rules that had no room for a request. The route is chosen anew by
// it.
//
//go:noinline
func (a *answer) mark(demands []node.Demand) {
	a.over = a.over[:0]
	for i := range demands {
		if !demands[i].Over {
			continue
		}
		if len(a.over) > 0 {
			a.over = append(a.over, ", "...)
		}
		a.over = append(a.over, answerOf(demands[i].Rule).name...)
	}
	proxywasm.ReplaceRequestHeader(overHeader, a.over)
	proxywasm.ClearRouteCache()
}
