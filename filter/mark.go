package filter

import (
	"weir/internal/node"
	"weir/internal/proxywasm"
)

// overHeader names the rules that have had no room for a request that passes.
const overHeader = "x-weir-over"

// clearMark takes the header away that clients may have sent.
func clearMark() {
	if _, sent := proxywasm.RequestHeader(overHeader); sent {
		proxywasm.RemoveRequestHeader(overHeader)
		proxywasm.ClearRouteCache() // it may have been chosen by what the client has sent
	}
}

// mark names to the upstream, and to the choice of the route, the rules that have had no room for a
// request.
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
