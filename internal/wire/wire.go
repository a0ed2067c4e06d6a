// Package wire defines the format of messages between the plugin and the counter backend.
//
// A [Push] has the hits that a sender has counted since its last push, and its questions. An
// [Answer] has the totals of the same windows, and the grants. Both are binary, versioned and
// bounded. Integers are varints (encoding/binary). Counters have 16-byte identities in place of
// keys, so no key leaves the proxy, and no message grows with a client's input.
//
// A [Report] has the keys with most hits, for people to read. It names keys only if their rules
// reveal them.
package wire

import "weir/window"

// ContentType is the media type of all messages.
const ContentType = "application/x-weir"

// PushPath is the path that messages are posted to.
const PushPath = "/v1/push"

// Bounds that both sides respect. A message beyond them is malformed.
const (
	// MaxItems is the most items and rooms of a push together. It also bounds the rooms of a single
	// take.
	MaxItems = 1024
	// MaxWindows is the most windows of an item that are identified by their position.
	MaxWindows = 64
	// MaxBuckets is the most buckets of an item that are identified by their age. The limits of all
	// logs are smaller: see [window.Shape.LargestLog].
	MaxBuckets = 1024
	// MaxLimits is the most limits of a rule, and so of an override and of a rule in a report. What
	// is kept for each limit of a rule has this fixed size, and a set of them is a byte with a bit
	// for each. Readers refuse more, so a larger number would need new formats.
	MaxLimits = 8
	// MaxHits is the most hits that a window counts and that an item carries: the largest integer
	// that a double represents exactly.
	MaxHits = window.MaxHits
	// MaxWidthMillis is the longest window: 366 days.
	MaxWidthMillis = 366 * 24 * 60 * 60 * 1000
	// MaxBody bounds a push in bytes. MaxItems items of two windows fit. With more windows per
	// item, fewer items fit.
	MaxBody = 128 << 10
	// MaxAnswer bounds an answer in bytes, apart from MaxNear. A sender makes no push whose answer
	// might exceed it: see [Item.AnswerSize].
	MaxAnswer = 1 << 20
)

// Sum is a + b, limited to MaxHits on both sides of zero, as a and b are. A message with more hits is
// malformed.
func Sum(a, b int64) int64 { return max(-MaxHits, min(a+b, MaxHits)) }

// longestTake bounds [Room.AgainNanos]: a day, in nanoseconds.
const longestTake = uint64(24 * 60 * 60 * 1e9)

// ID is the identity of a key: 128 bits of a cryptographic hash of the rule's name and the key's
// values. It is the same in every process of the deployment.
type ID [16]byte

// Partitions is the number of partitions of a namespace in a store that has several. All limits of
// a key are in the same partition. It is part of the names in Redis Cluster, so it never changes.
const Partitions = 32

// Partition returns the partition of a key: the CRC-32 (IEEE 802.3) of its identity, modulo
// Partitions.
func (id ID) Partition() uint32 {
	crc := ^uint32(0)
	for _, b := range id {
		crc ^= uint32(b)
		crc = crc>>4 ^ crcOfNibble[crc&15]
		crc = crc>>4 ^ crcOfNibble[crc&15]
	}
	return ^crc % Partitions
}

// PartitionSet is a set of the partitions that a store may divide a namespace into: a bit for each.
//
// While a partition fails, batches with anything for it stay, because they must be repeated
// unchanged. To keep them few, nothing else is sent to the partition until they are answered: its
// keys' hits gather in the table, and requests are decided without the backend. If the answer lacks
// a take of several partitions, a question to each tells which of them it is.
type PartitionSet uint32

// Has reports whether a key's partition is one of them.
//
//go:noinline
func (p PartitionSet) Has(id [16]byte) bool { return p != 0 && p&PartitionOf(id) != 0 }

// PartitionOf returns the set with the partition of a key.
func PartitionOf(id [16]byte) PartitionSet { return 1 << ID(id).Partition() }

// crcOfNibble is the CRC-32 of four bits. Package hash/crc32 has a larger table, and its code for
// special processors would be most of what it adds to the plugin.
var crcOfNibble = [16]uint32{
	0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
	0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
}

// LimitCounter names the counter of one limit for one key.
type LimitCounter struct {
	ID ID
	// Kind is the number of the algorithm in package window.
	Kind uint8
	// Ordinal distinguishes limits of a rule that are otherwise alike.
	Ordinal uint8
	// WidthMillis is the window's width in milliseconds.
	WidthMillis uint64
	// Precision is the width of buckets in nanoseconds, for bucketed kinds; 0 for others.
	Precision uint64
}

// kind is Kind in the type of package window. An unknown kind has only the fields that all kinds
// have.
func (c *LimitCounter) kind() window.Kind { return window.Kind(c.Kind) }

// Shape returns the counter's shape. It has a fault if the counter is invalid.
func (c *LimitCounter) Shape() window.Shape {
	return window.Shape{
		Kind: c.kind(), Ordinal: c.Ordinal, Width: int64(min(c.WidthMillis, MaxWidthMillis+1)) * 1e6,
		Precision: int64(min(c.Precision, MaxWidthMillis*1e6)),
	}
}

// Item is a counter, and the hits to add to its newest windows.
//
// For windows of the clock (fixed and sliding), Newest is the number of the newest window: Unix
// time divided by the width. Hits[i] belongs to window Newest-i. A first-hit window is the only
// one, and Newest is its start in nanoseconds of Unix time. For token buckets, Newest is the time
// in nanoseconds when the bucket was last full, and Hits[0] tokens were taken since. For buckets of
// a precision, Newest is the number of the newest bucket: Unix time divided by the precision.
// Hits[i] belongs to bucket Newest-Ages[i]. Ages ascend, and only buckets with hits are included.
//
// Hits are negative, down to -MaxHits, if a sender gives back more than it has counted since its
// last push. A total never goes below 0. For token buckets, Newest is then a time until which the
// tokens can't have returned, and the backend adds those that have not returned since.
type Item struct {
	LimitCounter
	// Limit is the sender's limit, for kinds that are bucketed or refill: how many hits of a log to
	// keep, or how many tokens return in a window.
	Limit  uint64
	Newest uint64
	Hits   []int64
	// Ages exist for bucketed kinds only, one for each element of Hits.
	Ages []uint64
}

// Push has the hits that a sender has counted, and its questions. A push is applied once, however
// often it arrives: Sender and Sequence name it.
type Push struct {
	Namespace string
	// Sender is a random number that identifies the sender for its life.
	Sender uint64
	// Sequence numbers the sender's pushes, from 1.
	Sequence uint64
	// Floor is the lowest sequence that the sender has no answer to yet. It never again sends a
	// lower sequence. The backend may forget lower pushes, and ignores their hits.
	Floor uint64
	// Node is a random number that identifies the sender's process.
	Node uint64
	// Known is the part about the namespace's overrides.
	Known Known
	// Advance is the part about hits that the sender has admitted before they were counted.
	Advance Advance
	Items   []Item
	// Takes are decided in their order, after the items were added.
	Takes []Take
}

// Take asks for units of hits. It gets them from all of its rooms, or from none.
type Take struct {
	// Least is the fewest units of use, at least 1. Most is the most units of use, at least Least.
	Least, Most uint64
	// Lease means that the units are for hits to come, so that a room gives at most
	// [window.Limit.Ahead]. Without Lease it gives all it has.
	Lease bool
	Rooms []Room
}

// Room is a take's question to one counter. Windows are those at the backend's time.
type Room struct {
	_ [0]func() // keeps Go from generating an equality function

	LimitCounter
	// Limit and Burst are those of the sender's limit; Burst only for kinds that burst.
	Limit, Burst uint64
	// Cost is how many hits a unit takes here; 0 only asks whether the limit is kept.
	Cost uint64
	// CountRejected makes the room count the cost of the least units even if they have no room.
	CountRejected bool
	// Tag distinguishes rules: a hash of the rule's name, odd if nodes advance hits of the rule. It
	// is 0 in pushes of a format without tags.
	Tag uint16
}

// AgainNanos is how long a push that asks the room for hits may be sent again: until granted hits
// would have left the limit, and at most a day.
func (r *Room) AgainNanos() uint64 { return min(2*r.WidthMillis*1e6, longestTake) }

// AgainNanos is how long the push may be sent again because of its takes. A backend remembers it
// for longer, so its takes are decided once, however late a copy comes.
func (p *Push) AgainNanos() (longest uint64) {
	for i := range p.Takes {
		for j := range p.Takes[i].Rooms {
			longest = max(longest, p.Takes[i].Rooms[j].AgainNanos())
		}
	}
	return longest
}

// Answer has the totals of each item's windows after a push, in the order of the items.
//
// Totals are those of all senders, with the item's Newest. If the backend has another start for a
// first-hit window or a token bucket, Newest is that start. The start of a token bucket may also be
// some whole windows later, with fewer tokens. For buckets of a precision, the answer has all
// buckets that count, whether or not the push had hits for them. If one of them is newer than the
// item's newest, Newest is its number.
type Answer struct {
	// NowNanos is the backend's Unix time in nanoseconds.
	NowNanos uint64
	// Nodes is how many nodes are active in the namespace, including the sender's.
	Nodes uint64
	// Overrides is the part about the namespace's overrides.
	Overrides Overrides
	// Near is the part about keys near their limits, if the push had a part about advanced hits.
	Near Near
	// Totals are in the order of the push's items.
	Totals []Total
	// Grants are in the order of the push's takes.
	Grants []Grant
	// Missing says, for each item and then for each take, whether the answer lacks it: its total or
	// its grant is then empty. It is nil if nothing is missing.
	Missing []Missing
}

// Missing says how much is known of a part of a push that the answer lacks.
type Missing uint8

const (
	// Answered means that the part is not missing.
	Answered Missing = iota
	// NotApplied means that the part was not applied this time. Another backend may have applied
	// it, if the network delivered the push there too, so the sender sends it again unchanged.
	NotApplied
	// InDoubt means that the part may have been applied. The sender sends the push again unchanged.
	InDoubt
)

// Grant is the result of a take.
type Grant struct {
	// Units is 0 if a room had too few hits.
	Units uint64
	// AtNanos is the backend's time of the decision. Hits were counted in the windows of the clock,
	// or the buckets, of this time. A push that is sent again gets its first grant.
	AtNanos uint64
	// Totals are those after the take, in the order of its rooms, in the form for an Item that
	// names the windows of AtNanos.
	Totals []Total
}

// Total is an answer's part about one item.
type Total struct {
	Newest uint64
	Hits   []uint64
	// Ages exist for bucketed kinds only, one for each element of Hits.
	Ages []uint64
}

// number is the most bytes of a varint.
const number = 10

// AnswerSize is the most bytes of the answer's part about the item.
func (i *Item) AnswerSize() int { return totalSize(i.kind(), i.Precision, i.Limit, len(i.Hits)) }

// AnswerSize is the most bytes of the answer's part about the take.
func (t *Take) AnswerSize() int {
	size := GrantSize
	for i := range t.Rooms {
		r := &t.Rooms[i]
		size += totalSize(r.kind(), r.Precision, r.Limit, roomWindows)
	}
	return size
}

const (
	// GrantSize is [Take.AnswerSize] without rooms.
	GrantSize = number + 8
	// roomWindows is the most windows in the answer about a room.
	roomWindows = 2
)

// RoomSize is the share of a room in [Take.AnswerSize], for rooms of a limit.
func RoomSize(l *window.Limit) int {
	return totalSize(l.Kind, uint64(l.Precision), l.Max, roomWindows)
}

func totalSize(kind window.Kind, precision, limit uint64, windows int) int {
	switch {
	case !kind.Bucketed():
		return number + 2 + number*windows
	case precision == uint64(window.LogPrecision):
		return number + 4 + 2*number*int(min(limit+1, MaxBuckets))
	}
	return number + 4 + 2*number*MaxWindows
}
