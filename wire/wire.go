// Package wire is the format of the messages between the plugin and the counter backend.
//
// A [Push] carries what one sender has counted since its last one, an [Answer] the totals of the same windows. Both are
// binary, versioned and bounded: integers are varints (encoding/binary), counters are 16-byte identities in
// place of keys, so that no key of a user's leaves the proxy, and no message grows with what a client sends.
package wire

// ContentType is the media type of both messages.
const ContentType = "application/x-weir"

// PushPath is where pushes are posted to.
const PushPath = "/v1/push"

// Bounds that both sides keep to. A message beyond them is malformed.
const (
	// MaxItems is the most items of one push.
	MaxItems = 1024
	// MaxBuckets is the most windows of one item.
	MaxBuckets = 64
	// MaxNamespace is the length of the longest namespace.
	MaxNamespace = 64
	// MaxHits is the most hits that one window counts, and one diff carries: the greatest integer that a double holds exactly.
	MaxHits = 1<<53 - 1
	// MaxWidthMillis is the longest window: 366 days.
	MaxWidthMillis = 366 * 24 * 60 * 60 * 1000
	// MaxBody bounds a message's size in bytes: what MaxItems items of two buckets take at most, with room for items of
	// more buckets, of which a push then carries fewer.
	MaxBody = 128 << 10
)

// ID is the identity of a counter: a 128-bit cryptographic hash of the rule's name and the key's values. It is the same in
// every proxy.
type ID [16]byte

// Counter names what is counted: the windows of one limit for one key.
type Counter struct {
	ID ID
	// Kind is the algorithm, as package window numbers it.
	Kind uint8
	// Ordinal tells apart limits of one rule that are alike otherwise.
	Ordinal uint8
	// WidthMillis is the window's width in milliseconds.
	WidthMillis uint64
}

// Item is a counter and the hits to add to its newest windows.
//
// For windows of the clock (fixed and sliding) Newest is the number of the newest window, Unix time divided by the width,
// and Hits[i] belongs to window Newest-i. For windows that start with their first hit, Newest is that start in nanoseconds
// of Unix time, and there is one window.
//
// Hits are negative, down to -MaxHits, where a sender gives back more than it took since its last push; a total never goes
// below 0 for it.
type Item struct {
	Counter
	Newest uint64
	Hits   []int64
}

// Push is what one sender has counted. A push is applied once, however often it arrives: Sender and Sequence name it.
type Push struct {
	Namespace string
	// Sender is a random number that the sender keeps for its life.
	Sender uint64
	// Sequence numbers the sender's pushes, from 1.
	Sequence uint64
	// Floor is the lowest sequence that the sender has no answer to yet; it will never resend one below. The backend may
	// forget those, and ignores the hits of pushes below it.
	Floor uint64
	Items []Item
}

// Answer has, for each item of a push and in its order, the totals of the item's windows after the push.
//
// Items carry the same Newest as asked for, with totals of all senders; where the backend has another start for a window
// that began with its first hit, Newest is that start.
type Answer struct {
	// NowNanos is the backend's Unix time in nanoseconds.
	NowNanos uint64
	// Totals are in the order of the push's items.
	Totals []Total
}

// Total is one item's part of an answer.
type Total struct {
	Newest uint64
	Hits   []uint64
}
