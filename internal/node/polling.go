package node

// pollSlack is for how much longer than the backend a node waits.
const pollSlack = longestPause

// longestPlain is for how long a process whose polls fail asks without.
const longestPlain = int64(60e9)

// polling is a worker's poll.
type polling struct {
	batch batch
	// failures in a row, and until when the worker does not poll for them.
	failures  int
	notBefore int64
}

// out reports whether the poll waits for its answer.
func (p *polling) out(now int64) bool {
	ago := now - p.batch.sentAt
	return p.batch.state == sent && ago >= 0 && ago <= p.batch.patience+pollSlack
}
