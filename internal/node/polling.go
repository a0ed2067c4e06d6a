package node

// pollSlack is how much longer than the backend a node waits, in nanoseconds.
const pollSlack = longestPause

// longestPlain is the longest time that a process whose polls fail asks without polling, in
// nanoseconds.
const longestPlain = int64(60e9)

// polling is a worker's poll.
type polling struct {
	batch batch
	// failures is how many polls failed in a row; the worker does not poll again until then.
	failures  int
	notBefore int64
}

// out reports whether the poll is unanswered.
func (p *polling) out(now int64) bool {
	ago := now - p.batch.sentAt
	return p.batch.state == sent && ago >= 0 && ago <= p.batch.patience+pollSlack
}
