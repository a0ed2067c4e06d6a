package node

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
	polling  polling
}

// asksEvery is how long a process that hears nothing waits before it asks. With a tick to notice that,
// and one for other workers to hear of what has come, that makes an interval.
func (v *overrides) asksEvery() int64 { return v.rules.interval * 3 / 4 }
