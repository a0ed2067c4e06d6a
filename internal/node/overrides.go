package node

import "weir/internal/wire"

// overrides come from the backend, and change limits here.
type overrides struct {
	tallies  *Tallies
	link     *link
	ticks    *ticks
	rules    *ruleset
	variants *variants
	keys     *keys
	callouts *callouts
	pushes   *pushes
	refusals *refusals
	news     news
}

// building is a list on its way into a table.
type building struct {
	overrideTable
	reader wire.OverrideReader
	rule   int // that the last override was of
	// name is that of a rule, and key that of an override, as keys have them.
	name, key []byte
	// emptied is sharedNews.emptied when the building began, and newest what it is to be.
	emptied, newest uint64
}

// asksEvery is how long a process that hears nothing waits before it asks. With a tick to notice that,
// and one for other workers to hear of what has come, that makes an interval.
func (v *overrides) asksEvery() int64 { return v.rules.interval * 3 / 4 }
