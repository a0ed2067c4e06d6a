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
	// MaxWindows is the most windows of one item that are named by their place.
	MaxWindows = 64
	// MaxBuckets is the most buckets of one item that are named by their age.
	MaxBuckets = 4096
	// MaxNamespace is the length of the longest namespace.
	MaxNamespace = 64
	// MaxHits is the most hits that one window counts, and one diff carries: the greatest integer that a double holds exactly.
	MaxHits = 1<<53 - 1
	// MaxWidthMillis is the longest window: 366 days.
	MaxWidthMillis = 366 * 24 * 60 * 60 * 1000
	// MaxBody bounds a push's size in bytes: what MaxItems items of two windows take at most, with room for items of more,
	// of which a push then carries fewer.
	MaxBody = 128 << 10
	// MaxAnswer bounds an answer's size in bytes. A sender makes pushes whose answers keep to it: see [Item.AnswerSize].
	MaxAnswer = 1 << 20
)

// The kinds whose items have more than the others, as package window numbers them.
const (
	kindBuckets = 4
	kindTokens  = 5
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
	// Precision is the width of buckets in nanoseconds, for kind 4; 0 for others.
	Precision uint64
}

// Item is a counter and the hits to add to its newest windows.
//
// For windows of the clock (fixed and sliding) Newest is the number of the newest window, Unix time divided by the width,
// and Hits[i] belongs to window Newest-i. For windows that start with their first hit, Newest is that start in nanoseconds
// of Unix time, and there is one window. For token buckets (kind 5) Newest is the time in nanoseconds since when Hits[0] tokens
// were taken from a bucket that was full then. For buckets of a precision (kind 4) Newest is the number of the newest bucket,
// Unix time divided by the precision, and Hits[i] belongs to bucket Newest-Ages[i]; ages are ascending, and only buckets with
// hits are there.
//
// Hits are negative, down to -MaxHits, where a sender gives back more than it took since its last push; a total never goes
// below 0 for it.
type Item struct {
	Counter
	// Limit is the limit that the sender has, for kinds 4 and 5: so many hits of a log need be kept, and so many tokens come
	// back in a window.
	Limit  uint64
	Newest uint64
	Hits   []int64
	// Ages are there for kind 4 only, one for each of Hits.
	Ages []uint64
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
// that began with its first hit, or for a token bucket, Newest is that start; a token bucket's may also be written as of some
// whole windows later, with fewer tokens. For buckets of a precision all buckets that count are there, whether or not the push
// had hits of them; Newest is later than asked for if one of them is.
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
	// Ages are there for kind 4 only, one for each of Hits.
	Ages []uint64
}

// AnswerSize is the most bytes that the item's part of an answer takes.
func (i *Item) AnswerSize() int {
	const number = 10
	switch {
	case i.Kind != kindBuckets:
		return number + 2 + number*len(i.Hits)
	case i.Precision == 1:
		return number + 4 + 2*number*int(min(i.Limit+1, MaxBuckets))
	}
	return number + 4 + 2*number*MaxWindows
}
