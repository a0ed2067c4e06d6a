// Package wire is the format of the messages between the plugin and the counter backend.
//
// A [Push] carries what one sender has counted since its last push, and what it asks for. An
// [Answer] carries the totals of the same windows, and what was granted. Both are binary, versioned
// and bounded. Integers are varints (encoding/binary). Counters have 16-byte identities in place of
// keys. So no user's key leaves the proxy, and no message grows with what a client sends.
//
// A [Report] tells people which keys have most hits. It has names of keys only if their rule reveals
// them.
package wire

import "weir/window"

// ContentType is the media type of both messages.
const ContentType = "application/x-weir"

// PushPath is where pushes are posted to.
const PushPath = "/v1/push"

// Bounds that both sides keep to. A message beyond them is malformed.
const (
	// MaxItems is the most items of one push, rooms of takes included. It bounds the rooms of a
	// single take, too.
	MaxItems = 1024
	// MaxWindows is the most windows of one item that are named by their place.
	MaxWindows = 64
	// MaxBuckets is the most buckets of one item that are named by their age. No log has as large a
	// limit: see [window.Limit.LargestLog].
	MaxBuckets = 1024
	// MaxNamespace is the length of the longest namespace.
	MaxNamespace = 64
	// MaxHits is the most hits that one window counts, and that one item carries. It is the
	// greatest integer that a double holds exactly.
	MaxHits = window.MaxHits
	// MaxWidthMillis is the longest window: 366 days.
	MaxWidthMillis = 366 * 24 * 60 * 60 * 1000
	// MaxBody bounds a push's size in bytes. It is more than MaxItems items of two windows take. If
	// items have more windows, a push carries fewer of them.
	MaxBody = 128 << 10
	// MaxAnswer bounds an answer's size in bytes. A sender makes no push whose answer may exceed
	// it: see [Item.AnswerSize].
	// MaxNear comes on top of it.
	MaxAnswer = 1 << 20
)

// longestTake bounds [Room.AgainNanos]: a day.
const longestTake = uint64(24 * 60 * 60 * 1e9)

// ID is the identity of a counter: a 128-bit cryptographic hash of the rule's name and the key's
// values. It is the same in every proxy.
type ID [16]byte

// Partitions is how many partitions a store divides a namespace into that has several: all limits of a
// key are in one. It is part of the names of what Redis Cluster keeps, and so the same for ever.
const Partitions = 32

// Partition is the partition that a key is in: its CRC-32 (IEEE 802.3), modulo Partitions.
func (id ID) Partition() uint32 {
	crc := ^uint32(0)
	for _, b := range id {
		crc ^= uint32(b)
		crc = crc>>4 ^ crcOfNibble[crc&15]
		crc = crc>>4 ^ crcOfNibble[crc&15]
	}
	return ^crc % Partitions
}

// crcOfNibble is the CRC-32 of four bits. Package hash/crc32 has a larger table, and its code for processors
// would be most of what is added to the plugin.
var crcOfNibble = [16]uint32{
	0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
	0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
}

// LimitCounter names what is counted: the windows of one limit for one key.
type LimitCounter struct {
	ID ID
	// Kind is the algorithm, as package window numbers it.
	Kind uint8
	// Ordinal tells apart limits of one rule that are alike otherwise.
	Ordinal uint8
	// WidthMillis is the window's width in milliseconds.
	WidthMillis uint64
	// Precision is the width of buckets in nanoseconds, for bucketed kinds; 0 for others.
	Precision uint64
}

// kind says which fields there are. An unknown kind has those that all have.
func (c *LimitCounter) kind() window.Kind { return window.Kind(c.Kind) }

// Shape is the counter's as a limit has it. It is at fault if the counter is.
func (c *LimitCounter) Shape() window.Shape {
	return window.Shape{
		Kind: c.kind(), Ordinal: c.Ordinal, Width: int64(min(c.WidthMillis, MaxWidthMillis+1)) * 1e6,
		Precision: int64(min(c.Precision, MaxWidthMillis*1e6)),
	}
}

// Item is a counter and the hits to add to its newest windows.
//
// For windows of the clock (fixed and sliding) Newest is the number of the newest window, Unix time
// divided by the width. Hits[i] belongs to window Newest-i. A window that starts with its first hit
// is the only one, and Newest is its start in nanoseconds of Unix time. For token buckets Newest is
// the time in nanoseconds when the bucket was full, and Hits[0] tokens were taken since. For
// buckets of a precision Newest is the number of the newest bucket, Unix time divided by the
// precision. Hits[i] belongs to bucket Newest-Ages[i]. Ages are ascending, and only buckets with
// hits are there.
//
// Hits are negative, down to -MaxHits, where a sender gives back more than it counted since its
// last push. A total does not go below 0 for that. For token buckets Newest is then a time until
// which the tokens can't have come back. The backend adds those that have not come back since.
type Item struct {
	LimitCounter
	// Limit is the limit that the sender has, for kinds that are bucketed or refill. It is how many
	// hits of a log need to be kept, or how many tokens come back in a window.
	Limit  uint64
	Newest uint64
	Hits   []int64
	// Ages are there for bucketed kinds only, one for each of Hits.
	Ages []uint64
}

// Push tells what one sender has counted, and what it asks for. A push is applied once, however
// often it arrives: Sender and Sequence name it.
type Push struct {
	Namespace string
	// Sender is a random number that the sender keeps for its life.
	Sender uint64
	// Sequence numbers the sender's pushes, from 1.
	Sequence uint64
	// Floor is the lowest sequence that the sender has no answer to yet. It never sends a lower
	// sequence again. The backend may forget pushes below it, and ignores their hits.
	Floor uint64
	// Node is a random number of the process that the sender is part of.
	Node uint64
	// Known tells what the sender knows of the namespace's overrides.
	Known Known
	// Advance tells what the sender has let pass, and not yet pushed.
	Advance Advance
	Items   []Item
	// Takes are decided after the items were added, in their order.
	Takes []Take
}

// Take asks for units of hits, and gets them from all of its rooms or from none.
type Take struct {
	// Least is the fewest units that are of use, at least 1. Most is the most that are, at least
	// Least.
	Least, Most uint64
	// Lease tells that the units are for hits to come: then no more is given of a room than
	// [window.Limit.Ahead] says. Without it, all that is there is given.
	Lease bool
	Rooms []Room
}

// Room is the part of a take that asks one counter. Windows are those of the backend's time.
type Room struct {
	_ [0]func() // keeps Go from generating an equality function

	LimitCounter
	// Limit and Burst are the limit's that the sender has; Burst for kinds that burst only.
	Limit, Burst uint64
	// Cost is how many hits a unit takes here; 0 only asks whether the limit is kept as it stands.
	Cost uint64
	// CountRejected says that the cost of the least units is counted here even if it has no room
	// here.
	CountRejected bool
	// Tag tells apart rules: it is of the rule's name, and odd if nodes advance hits of the rule. It is 0
	// in pushes of a format that has none.
	Tag uint16
}

// AgainNanos is for how long a push that asks for hits of the room may be sent again: until what it
// was granted has left the limit, but for a day at most.
func (r *Room) AgainNanos() uint64 { return min(2*r.WidthMillis*1e6, longestTake) }

// AgainNanos is for how long the push may be sent again for its takes. A backend remembers it for
// longer. So they are decided once, however late it comes again.
func (p *Push) AgainNanos() (longest uint64) {
	for i := range p.Takes {
		for j := range p.Takes[i].Rooms {
			longest = max(longest, p.Takes[i].Rooms[j].AgainNanos())
		}
	}
	return longest
}

// Answer has, for each item of a push and in its order, the totals of the item's windows after the
// push.
//
// Totals are those of all senders, with the Newest of the item. If the backend has another start
// for a first-hit window or a token bucket, Newest is that start. A token bucket's start may also
// be some whole windows later, with fewer tokens. For buckets of a precision all buckets that count
// are there, whether or not the push had hits of them. If one of them is newer than the item's
// newest, Newest is its number.
type Answer struct {
	// NowNanos is the backend's Unix time in nanoseconds.
	NowNanos uint64
	// Nodes is how many nodes are active in the namespace, the sender's own included.
	Nodes uint64
	// Overrides tells the sender of the namespace's overrides.
	Overrides Overrides
	// Near tells the sender of keys that are near their limits, if its push has told of advanced hits.
	Near Near
	// Totals are in the order of the push's items.
	Totals []Total
	// Grants are in the order of the push's takes.
	Grants []Grant
	// Missing says of each item, and then of each take, whether the answer lacks it: the total of such
	// an item, or the grant of such a take, is of nothing. It is nil if nothing is missing.
	Missing []Missing
}

// Missing says what is known of a part of a push that an answer lacks.
type Missing uint8

const (
	// Answered parts are not missing.
	Answered Missing = iota
	// NotApplied parts were not applied as the push came this time. Another backend may have applied them,
	// if the network has brought the push there, too: so the sender sends it again, unchanged.
	NotApplied
	// InDoubt parts may have been applied. The sender sends the push again, unchanged.
	InDoubt
)

// Grant tells what a take was given.
type Grant struct {
	// Units is 0 if there was too little in one of the rooms.
	Units uint64
	// AtNanos is the backend's time of the decision. Hits were counted in the windows of the clock,
	// or the buckets of a precision, of this time. A push that is sent again gets the grant of the
	// first time.
	AtNanos uint64
	// Totals are in the order of the take's rooms. They are those after the take, as an Item that
	// names the windows of AtNanos would get them.
	Totals []Total
}

// Total is one item's part of an answer.
type Total struct {
	Newest uint64
	Hits   []uint64
	// Ages are there for bucketed kinds only, one for each of Hits.
	Ages []uint64
}

// number is the most bytes of a varint.
const number = 10

// AnswerSize is the most bytes that the item's part of an answer takes.
func (i *Item) AnswerSize() int { return totalSize(i.kind(), i.Precision, i.Limit, len(i.Hits)) }

// AnswerSize is the most bytes that the take's part of an answer takes.
func (t *Take) AnswerSize() int {
	size := GrantSize
	for i := range t.Rooms {
		r := &t.Rooms[i]
		size += totalSize(r.kind(), r.Precision, r.Limit, roomWindows)
	}
	return size
}

const (
	// GrantSize is the part of [Take.AnswerSize] that is not its rooms'.
	GrantSize = number + 8
	// roomWindows is the most windows that a room is answered with.
	roomWindows = 2
)

// RoomSize is the part of [Take.AnswerSize] of a room for a limit. It is known before there is a
// take.
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
