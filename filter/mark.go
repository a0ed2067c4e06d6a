package filter

import (
	"weir/internal/engine"
	"weir/internal/proxywasm"
)

const (
	// overHeader lists the rules that had no room for a request that passes nevertheless.
	overHeader = "x-weir-over"
	// overProperty has the same list for Weir's later filters of this proxy, in the stream's state,
	// which no client can write. They believe a header that equals it.
	overProperty   = "weir_over"
	marksSeparator = ", "
)

// clearMark removes the header if a client may have sent it. A header that a filter before has set
// stays, and so does that of a proxy before if the configuration trusts it.
func (a *answer) clearMark() {
	if _, sent := proxywasm.RequestHeader(overHeader); !sent {
		return
	}
	a.readMarks()
	if a.trusts {
		proxywasm.SetProperty(overProperty, a.over)
		return
	}
	if set, ok := proxywasm.Property(overProperty); ok && string(set) == string(a.over) {
		return
	}
	proxywasm.RemoveRequestHeader(overHeader)
	proxywasm.ClearRouteCache() // the client's header may have chosen the route
}

// readMarks reads the header's lines.
func (a *answer) readMarks() {
	lines, _ := proxywasm.RequestLines(overHeader, marksSeparator)
	a.over = append(a.over[:0], lines...)
}

// mark adds the rules that had no room for a request to the header. The route is chosen anew by it.
func (a *answer) mark(checks []engine.Check) {
	a.over = a.over[:0]
	if _, marked := proxywasm.RequestHeader(overHeader); marked {
		a.readMarks()
	}
	for i := range checks {
		if !checks[i].Marked() {
			continue
		}
		if len(a.over) > 0 {
			a.over = append(a.over, marksSeparator...)
		}
		a.over = append(a.over, a.rules.of(&checks[i]).config.Name...)
	}
	proxywasm.ReplaceRequestHeader(overHeader, a.over)
	proxywasm.SetProperty(overProperty, a.over)
	proxywasm.ClearRouteCache()
}
