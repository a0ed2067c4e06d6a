package node

// overrides takes in the overrides from the backend, which change limits here.
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

// asksEvery is how long a process that hears nothing waits before it asks. Together with a tick to
// notice that and a tick for the other workers, this makes an interval.
func (v *overrides) asksEvery() int64 { return v.rules.interval * 3 / 4 }
