package observe

// MaxWarnings, MaxAccounts and Sampled are bounds that tests of the engine look at: see maxWarnings,
// maxAccounts and sampled.
const (
	MaxWarnings = maxWarnings
	MaxAccounts = maxAccounts
	Sampled     = sampled
)

// View is what tests of the engine see of a meter.
type View struct {
	Accounts []int64 // the hits of each account
	Rules    []int   // and its rule
	Sent     int     // messages without an answer
	OnWay    bool    // the first of them is on its way
}

// View returns the present state.
func (a *Meter) View() (v View) {
	for i := range a.list {
		v.Accounts, v.Rules = append(v.Accounts, a.list[i].hits), append(v.Rules, int(a.list[i].rule))
	}
	v.Sent = len(a.sent)
	v.OnWay = v.Sent > 0 && a.sent[0].onWay
	return v
}
