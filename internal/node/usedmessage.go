package node

// usedMessage is a message of what keys have used, until it was answered. It is sent again unchanged,
// and so counts once.
type usedMessage struct {
	sender, sequence uint64
	body             []byte
	hits             uint64
	// onWay says that nobody has said yet how it ended.
	onWay bool
	// sentAt is when it was sent last, and since when it was for the first time, by the host's clock.
	sentAt, since int64
	failures      int
	retryAt       int64
}
