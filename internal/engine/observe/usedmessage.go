package observe

// Message is a message about usage, until it is answered. It is repeated unchanged, so it
// counts once.
type Message struct {
	Sender, Sequence uint64
	Body             []byte
	hits             uint64
	// onWay means that its end is not known yet.
	onWay bool
	// sentAt is when it was last sent, and since when it was first sent, by the host's clock.
	sentAt, since int64
	failures      int
	retryAt       int64
}
