package wire

import (
	"encoding/binary"
	"errors"
	"strconv"
)

// The first byte of a message has its type and version. Any change of the format takes new numbers.
const (
	pushVersion   = 0x51 // 0x50, 'P', had no overrides, nor had
	answerVersion = 0x42 // 0x41, 'A'
	// partVersion is an incomplete answer. A sender that doesn't know it sees no answer, and sends
	// the whole push again.
	partVersion = 0x43
	// advanceVersion is a push with a part about advanced hits, and nearVersion its answer.
	advanceVersion = 0x52
	nearVersion    = 0x44
)

// Formats names the formats of pushes, answers and reports. Senders and backends need the same
// formats.
func Formats() string {
	const last = 15 // the last four bits are the number, and the others the type
	digit := func(version byte) string { return string('0' + rune(version&last)) }
	return "push " + digit(advanceVersion) + ", answer " + digit(nearVersion) + ", report " + digit(reportVersion) + ", usage " + digit(usedVersion)
}

// ErrMalformed is wrapped by every error of the decoders.
var ErrMalformed = errors.New("malformed message")

// ErrVersion is the error of a push in another version of the format. It wraps [ErrMalformed].
var ErrVersion error = &formatError{
	offset: 1, reason: "not a push of a known version: the sender's version and that of weir serve don't fit each other",
}

// formatError says what is wrong with a message, and at which byte.
type formatError struct {
	_ [0]func() // keeps Go from generating an equality function

	offset int
	reason string
}

func (e *formatError) Error() string {
	return "malformed message at byte " + strconv.Itoa(e.offset) + ": " + e.reason
}

func (e *formatError) Unwrap() error { return ErrMalformed }

// Items and takes follow a push's header, each after a byte that says which it is.
const (
	isItem  = 0
	isTake  = 1
	isLease = 2
)

// Flags of a room.
const (
	countRejected = 1 << iota
	tagged
)

// AppendPushHeader appends the part of a push before its items and takes. The caller then appends
// count of these with [AppendItem] and [AppendTake], in any order. Together they make a message for
// [DecodePush].
func AppendPushHeader(dst []byte, p *Push, count int) []byte {
	version := byte(pushVersion)
	if p.Advance.Present {
		version = advanceVersion
	}
	dst = appendText(append(dst, version), p.Namespace) // its length takes a byte
	dst = binary.LittleEndian.AppendUint64(dst, p.Node)
	dst = binary.LittleEndian.AppendUint64(dst, p.Sender)
	dst = appendUvarints(dst, p.Sequence, p.Floor)
	dst = appendKnown(dst, &p.Known)
	if p.Advance.Present {
		dst = appendAdvance(dst, &p.Advance)
	}
	return binary.LittleEndian.AppendUint16(dst, uint16(count))
}

// AppendItem appends one item of a push.
func AppendItem(dst []byte, item *Item) []byte {
	dst = appendCounter(append(dst, isItem), &item.LimitCounter)
	if item.hasLimit() {
		dst = appendUvarint(dst, item.Limit)
	}
	aged := item.kind().Bucketed()
	dst = appendWindows(dst, item.Newest, len(item.Hits), aged)
	for i, h := range item.Hits {
		if aged {
			dst = appendUvarint(dst, item.Ages[i])
		}
		dst = binary.AppendVarint(dst, h)
	}
	return dst
}

// ItemID returns the identity in an item's bytes from AppendItem.
func ItemID(item []byte) (id ID) {
	copy(id[:], item[min(1, len(item)):])
	return id
}

// hasLimit reports whether an item is sent with its limit.
func (i *Item) hasLimit() bool { return i.kind().Bucketed() || i.kind().Refills() }

// appendUvarint is binary.AppendUvarint out of line: inlined, it would be most of the package's
// code.
//
//go:noinline
func appendUvarint(dst []byte, v uint64) []byte { return binary.AppendUvarint(dst, v) }

// appendUvarints appends several integers. Messages of many items and totals do without it.
//
//go:noinline
func appendUvarints(dst []byte, all ...uint64) []byte {
	for _, v := range all {
		dst = appendUvarint(dst, v)
	}
	return dst
}

// appendCounted appends bytes after their length, out of line: inlined, it would be most of its
// callers.
//
//go:noinline
func appendCounted(dst, bytes []byte) []byte {
	return append(appendUvarint(dst, uint64(len(bytes))), bytes...)
}

// appendText is appendCounted for a string.
//
//go:noinline
func appendText(dst []byte, text string) []byte {
	return append(appendUvarint(dst, uint64(len(text))), text...)
}

// AppendEnd ends the rules of a report, or the rows of a usage message: each of these begins with
// the length of something that is not empty.
func AppendEnd(dst []byte) []byte { return append(dst, 0) }

func appendCounter(dst []byte, c *LimitCounter) []byte {
	dst = append(dst, c.ID[:]...)
	dst = append(dst, c.Kind, c.Ordinal)
	dst = appendUvarint(dst, c.WidthMillis)
	if c.kind().Bucketed() {
		dst = appendUvarint(dst, c.Precision)
	}
	return dst
}

// AppendTake appends one take of a push.
func AppendTake(dst []byte, t *Take) []byte {
	head := byte(isTake)
	if t.Lease {
		head = isLease
	}
	dst = appendUvarints(append(dst, head), t.Least, t.Most)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(t.Rooms)))
	for i := range t.Rooms {
		r := &t.Rooms[i]
		dst = appendCounter(dst, &r.LimitCounter)
		dst = appendUvarint(dst, r.Limit)
		if r.kind().Bursts() {
			dst = appendUvarint(dst, r.Burst)
		}
		dst = appendUvarint(dst, r.Cost)
		flags := byte(0)
		if r.CountRejected {
			flags = countRejected
		}
		if r.Tag != 0 {
			flags |= tagged
		}
		if dst = append(dst, flags); r.Tag != 0 {
			dst = binary.LittleEndian.AppendUint16(dst, r.Tag)
		}
	}
	return dst
}

// appendWindows begins a list of windows with twice their number, plus one if they have ages.
func appendWindows(dst []byte, newest uint64, count int, aged bool) []byte {
	dst = appendUvarint(dst, newest)
	head := uint64(count) << 1
	if aged {
		head |= 1
	}
	return appendUvarint(dst, head)
}

// AppendPush appends a whole push.
func AppendPush(dst []byte, p *Push) []byte {
	dst = AppendPushHeader(dst, p, len(p.Items)+len(p.Takes))
	for i := range p.Items {
		dst = AppendItem(dst, &p.Items[i])
	}
	for i := range p.Takes {
		dst = AppendTake(dst, &p.Takes[i])
	}
	return dst
}

// AppendAnswer appends a whole answer.
func AppendAnswer(dst []byte, a *Answer) []byte {
	version := byte(answerVersion)
	switch {
	case a.Missing != nil:
		version = partVersion
	case a.Near.Present:
		version = nearVersion
	}
	dst = append(dst, version)
	dst = binary.LittleEndian.AppendUint64(dst, a.NowNanos)
	dst = appendUvarint(dst, a.Nodes)
	dst = appendOverrides(dst, &a.Overrides)
	if version == nearVersion {
		dst = appendNear(dst, &a.Near)
	}
	if a.Missing != nil {
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(a.Missing)))
		for _, m := range a.Missing {
			dst = append(dst, byte(m))
		}
	}
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(a.Totals)))
	for i := range a.Totals {
		dst = appendTotal(dst, &a.Totals[i])
	}
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(a.Grants)))
	for i := range a.Grants {
		g := &a.Grants[i]
		dst = appendUvarint(dst, g.Units)
		dst = binary.LittleEndian.AppendUint64(dst, g.AtNanos)
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(g.Totals)))
		for j := range g.Totals {
			dst = appendTotal(dst, &g.Totals[j])
		}
	}
	return dst
}

func appendTotal(dst []byte, t *Total) []byte {
	aged := len(t.Ages) > 0
	dst = appendWindows(dst, t.Newest, len(t.Hits), aged)
	for i, h := range t.Hits {
		if aged {
			dst = appendUvarint(dst, t.Ages[i])
		}
		dst = appendUvarint(dst, h)
	}
	return dst
}

// PushNamespace returns the namespace of an encoded push or report. ok is false for any other
// message.
func PushNamespace(b []byte) (namespace string, ok bool) {
	r := reader{data: b}
	if head := r.byte(); head != pushVersion && head != advanceVersion && !IsUsed(b) && !IsReport(b) {
		return "", false
	}
	namespace = r.namespace()
	return namespace, r.err == nil
}

// Polls reports whether an encoded push waits for a new list of overrides: see [Known.Within].
func Polls(b []byte) bool {
	r := reader{data: b}
	return r.byte() == pushVersion && r.pushHead().Known.Within > 0 && r.count() == 0 && r.end() == nil
}

// DecodePush reads a push, and checks the bounds of this package. The result shares no memory with
// b. Any error wraps [ErrMalformed].
func DecodePush(b []byte) (*Push, error) {
	r := reader{data: b}
	head := r.byte()
	switch {
	case head == pushVersion || head == advanceVersion || r.err != nil:
	case head&^15 == pushVersion&^15:
		r.err = ErrVersion
	default:
		r.fail("not a push")
	}
	p := r.pushHead()
	if head == advanceVersion {
		p.Advance = r.advance()
	}
	count := r.count()
	if r.err == nil && (p.Sequence == 0 || p.Floor > p.Sequence) {
		r.fail("want a sequence from 1 and a floor not above it")
	}
	if r.err == nil {
		// The smallest item has 23 bytes, so the message's length bounds the allocation.
		p.Items = make([]Item, 0, min(count, len(r.data)/23))
	}
	parts := count
	for range count {
		if r.err != nil {
			break
		}
		switch what := r.byte(); what {
		case isItem:
			p.Items = append(p.Items, r.item())
		case isTake, isLease:
			t := r.take()
			t.Lease = what == isLease
			p.Takes = append(p.Takes, t)
			parts += len(t.Rooms) - 1
		default:
			r.fail("want an item or a take")
		}
	}
	if parts > MaxItems {
		r.fail("want at most " + strconv.Itoa(MaxItems) + " items and rooms, got " + strconv.Itoa(parts))
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return p, nil
}

// DecodeAnswer reads a whole answer. The result shares no memory with b. Any error wraps
// [ErrMalformed].
func DecodeAnswer(b []byte) (*Answer, error) {
	r, err := NewAnswerReader(b)
	if err != nil {
		return nil, err
	}
	a := &Answer{NowNanos: r.NowNanos, Nodes: r.Nodes, Overrides: r.Overrides}
	a.Overrides.Part = append([]byte(nil), a.Overrides.Part...)
	if a.Near = r.Near; a.Near.Present {
		a.Near.Limits, a.Near.Keys = append([]byte(nil), a.Near.Limits...), append([]byte(nil), a.Near.Keys...)
	}
	for i := range r.missing {
		a.Missing = append(a.Missing, r.Missing(i))
	}
	var t Total
	for r.Next(&t) {
		a.Totals = append(a.Totals, t.clone())
	}
	var g Grant
	for {
		rooms, ok := r.NextGrant(&g)
		if !ok {
			break
		}
		a.Grants = append(a.Grants, Grant{Units: g.Units, AtNanos: g.AtNanos})
		for range rooms {
			if r.NextRoom(&t) {
				last := &a.Grants[len(a.Grants)-1]
				last.Totals = append(last.Totals, t.clone())
			}
		}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return a, nil
}

func (t *Total) clone() Total {
	return Total{Newest: t.Newest, Hits: append([]uint64(nil), t.Hits...), Ages: append([]uint64(nil), t.Ages...)}
}

// AnswerReader reads an answer without allocating: totals with Next, then grants with NextGrant,
// each followed by the totals of its rooms with NextRoom. Read a message to its end and check
// [AnswerReader.Err] before acting on any of it.
type AnswerReader struct {
	// NowNanos is the backend's time.
	NowNanos uint64
	// Nodes is how many nodes are active.
	Nodes uint64
	// Overrides is the answer's part about overrides. It shares the message's memory.
	Overrides Overrides
	// Near is the answer's part about near keys. It shares the message's memory.
	Near Near
	// Count is the number of totals.
	Count int
	// Grants is the number of grants, set once all totals were read.
	Grants int

	r       reader
	missing []byte
	left    int // number of totals left
	grants  int // number of grants left, once Grants is known
	known   bool
	rooms   int // number of rooms left in the current grant
}

// NewAnswerReader checks the head of an answer. The reader keeps b, and does not modify it.
func NewAnswerReader(b []byte) (AnswerReader, error) {
	a := AnswerReader{r: reader{data: b}}
	version := a.r.byte()
	if version != answerVersion && version != partVersion && version != nearVersion {
		a.r.fail("not an answer of a known version")
	}
	a.NowNanos = a.r.uint64()
	a.Nodes = a.r.uvarint()
	a.Overrides = a.r.overrides()
	switch version {
	case partVersion:
		a.missing = a.r.missing()
	case nearVersion:
		a.Near = a.r.near()
	}
	a.Count = a.r.count()
	a.left = a.Count
	return a, a.r.err
}

// Fits reports whether the answer can be that to a push with this number of items and takes.
func (a *AnswerReader) Fits(items, takes int) bool {
	return a.Count == items && (a.Whole() || len(a.missing) == items+takes)
}

// Whole reports whether the answer is complete.
func (a *AnswerReader) Whole() bool { return len(a.missing) == 0 }

// Missing returns whether the answer lacks part i, counting items first and then takes.
func (a *AnswerReader) Missing(i int) Missing {
	if i >= len(a.missing) {
		return Answered
	}
	return Missing(a.missing[i])
}

// Next reads the total of the next item into t, reusing its memory, and reports whether there was
// one.
func (a *AnswerReader) Next(t *Total) bool {
	if a.left == 0 || a.r.err != nil {
		return false
	}
	a.left--
	return a.r.total(t)
}

// NextGrant reads the next grant into g, without its totals. It reports whether there was one, and
// how many rooms follow. All totals of items, and of the previous grant, must have been read;
// otherwise it returns no grant, and Err says so.
func (a *AnswerReader) NextGrant(g *Grant) (rooms int, ok bool) {
	if a.left > 0 || a.rooms > 0 {
		a.r.fail("not all totals were read before the grants")
	}
	if !a.known && a.r.err == nil {
		a.known = true
		a.Grants = a.r.count()
		a.grants = a.Grants
	}
	if a.grants == 0 || a.r.err != nil {
		return 0, false
	}
	a.grants--
	g.Units = a.r.uvarint()
	g.AtNanos = a.r.uint64()
	a.rooms = a.r.count()
	return a.rooms, a.r.err == nil
}

// NextRoom reads the total of the next room of the current grant into t, as Next does.
func (a *AnswerReader) NextRoom(t *Total) bool {
	if a.rooms == 0 || a.r.err != nil {
		return false
	}
	a.rooms--
	return a.r.total(t)
}

// Err returns what was wrong with the message, once all of it was read.
func (a *AnswerReader) Err() error { return a.r.end() }

// reader decodes a message. After the first error it returns zeros.
type reader struct {
	data []byte
	pos  int
	err  error
}

//go:noinline
func (r *reader) fail(reason string) {
	if r.err == nil {
		r.err = &formatError{offset: r.pos, reason: reason}
	}
}

func (r *reader) bytes(n int) []byte {
	if r.err != nil || len(r.data)-r.pos < n {
		r.fail("the message ends too early")
		return nil
	}
	b := r.data[r.pos : r.pos+n]
	r.pos += n
	return b
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.data[r.pos:])
	if n <= 0 {
		r.fail("want an integer of at most 64 bits")
		return 0
	}
	r.pos += n
	return v
}

func (r *reader) count() int {
	b := r.bytes(2)
	if b == nil {
		return 0
	}
	return r.most(uint64(binary.LittleEndian.Uint16(b)), MaxItems)
}

// most returns a number that was read, if it is at most most.
//
//go:noinline
func (r *reader) most(n uint64, most int) int {
	if n > uint64(most) {
		r.fail("want at most " + strconv.Itoa(most) + " in this part, got " + strconv.FormatUint(n, 10))
		return 0
	}
	return int(n)
}

// counted reads at most most bytes after their length.
func (r *reader) counted(most int) []byte { return r.bytes(r.most(r.uvarint(), most)) }

// more reports whether another part follows in a list that [AppendEnd] ends.
func (r *reader) more() bool {
	if r.byte() == 0 {
		return false
	}
	r.pos--
	return true
}

func several[T any](r *reader, count int, part func() T) (all []T) {
	for range count {
		if r.err != nil {
			break
		}
		all = append(all, part())
	}
	return all
}

// id reads the identity of a key.
func (r *reader) id() (id ID) {
	copy(id[:], r.bytes(len(id)))
	return id
}

// missing returns which parts an answer lacks, in the message's memory.
func (r *reader) missing() []byte {
	missing := r.bytes(r.count())
	for _, m := range missing {
		if m > byte(InDoubt) {
			r.fail("want a list of missing parts")
		}
	}
	if r.err == nil && len(missing) == 0 {
		r.fail("want missing parts that the push has")
	}
	return missing
}

// pushHead reads the part of a push that all versions have.
func (r *reader) pushHead() *Push {
	return &Push{
		Namespace: r.namespace(), Node: r.uint64(), Sender: r.uint64(), Sequence: r.uvarint(), Floor: r.uvarint(), Known: r.known(),
	}
}

func (r *reader) namespace() string {
	n := int(r.byte())
	if r.err == nil && (n == 0 || n > MaxNamespace) {
		r.fail("want a namespace of 1 to 64 bytes")
	}
	namespace := string(r.bytes(n))
	if r.err == nil && !IsNamespace(namespace) {
		r.fail("want a namespace of A-Za-z0-9._-")
	}
	return namespace
}

func (r *reader) total(t *Total) bool {
	t.Newest = r.uvarint()
	count, aged := r.windows()
	t.Hits, t.Ages = t.Hits[:0], t.Ages[:0]
	for range count {
		if r.err != nil {
			break
		}
		if aged {
			t.Ages = append(t.Ages, r.age(t.Ages))
		}
		t.Hits = append(t.Hits, r.uvarint())
	}
	return r.err == nil
}

func (r *reader) counter() (c LimitCounter) {
	c.ID, c.Kind, c.Ordinal, c.WidthMillis = r.id(), r.byte(), r.byte(), r.width()
	if c.kind().Bucketed() {
		c.Precision = r.uvarint()
		if r.err == nil && (c.Precision == 0 || c.Precision > c.WidthMillis*1e6 || c.WidthMillis*1e6%c.Precision != 0) {
			r.fail("want a precision that divides the window")
		}
	}
	return c
}

// width reads the width of a window, in milliseconds.
func (r *reader) width() uint64 {
	width := r.uvarint()
	if r.err == nil && (width == 0 || width > MaxWidthMillis) {
		r.fail("want a window of 1 ms to 366 days")
	}
	return width
}

// amount reads a number of hits, requests or milliseconds.
func (r *reader) amount() uint64 {
	n := r.uvarint()
	if n > MaxHits {
		r.fail("want at most 2^53-1")
		return 0
	}
	return n
}

func (r *reader) take() (t Take) {
	t.Least, t.Most = r.uvarint(), r.uvarint()
	if r.err == nil && (t.Least == 0 || t.Most < t.Least || t.Most > MaxHits) {
		r.fail("want at least one unit, and a least that is not above most")
	}
	rooms := r.count()
	if r.err == nil && rooms == 0 {
		r.fail("want at least one room")
	}
	t.Rooms = several(r, rooms, r.room)
	return t
}

func (r *reader) room() Room {
	room := Room{LimitCounter: r.counter(), Limit: r.amount()}
	if room.kind().Bursts() {
		room.Burst = r.amount()
	}
	// A cost too large to represent is above every limit.
	room.Cost = r.amount()
	flags := r.byte()
	if flags&^(countRejected|tagged) != 0 {
		r.fail("want known flags")
	}
	if room.CountRejected = flags&countRejected != 0; flags&tagged != 0 {
		if b := r.bytes(2); b != nil {
			room.Tag = binary.LittleEndian.Uint16(b)
		}
		if r.err == nil && room.Tag == 0 {
			r.fail("want a tag that is not 0")
		}
	}
	return room
}

func (r *reader) item() (item Item) {
	item.LimitCounter = r.counter()
	if item.hasLimit() {
		item.Limit = r.amount()
	}
	item.Newest = r.uvarint()
	count, aged := r.windows()
	if r.err == nil && aged != item.kind().Bucketed() {
		r.fail("want ages if the kind has a precision, and none otherwise")
	}
	if r.err == nil && count == 0 && !aged {
		r.fail("want at least one window")
	}
	if r.err == nil && count > 0 {
		// A window has at least a byte, so the message's length bounds the allocation.
		item.Hits = make([]int64, 0, min(count, len(r.data)-r.pos))
	}
	for range count {
		if r.err != nil {
			break
		}
		if aged {
			item.Ages = append(item.Ages, r.age(item.Ages))
		}
		item.Hits = append(item.Hits, r.hits())
	}
	return item
}

// windows reads the beginning of a list of windows.
func (r *reader) windows() (count int, aged bool) {
	head, most := r.uvarint(), MaxWindows
	if aged = head&1 != 0; aged {
		most = MaxBuckets
	}
	return r.most(head>>1, most), aged
}

// age reads the age of a bucket after the ages before it.
func (r *reader) age(before []uint64) uint64 {
	age := r.uvarint()
	if n := len(before); n > 0 && age <= before[n-1] {
		r.fail("want ascending ages")
	}
	return age
}

func (r *reader) hits() int64 {
	if r.err != nil {
		return 0
	}
	h, n := binary.Varint(r.data[r.pos:])
	if n <= 0 || h > MaxHits || h < -MaxHits {
		r.fail("want at most 2^53-1 hits")
		return 0
	}
	r.pos += n
	return h
}

// end reports bytes that are left, or the first error.
func (r *reader) end() error {
	if r.err == nil && r.pos != len(r.data) {
		r.fail("bytes after the end of the message")
	}
	return r.err
}

const (
	// MaxName is the length of the longest name of a rule.
	MaxName = 64
	// MaxNamespace is the length of the longest namespace.
	MaxNamespace = 64
)

// IsName reports whether a text can name a rule: 1 to MaxName of A-Za-z0-9_-. People read names on
// terminals and in metrics.
func IsName(text string) bool { return consists(text, MaxName, IsNameByte) }

// IsNamespace reports whether a text can name a namespace: 1 to MaxNamespace of A-Za-z0-9._-, so
// that it may be a host's name.
func IsNamespace(text string) bool { return consists(text, MaxNamespace, IsNamespaceByte) }

// IsNameByte reports whether a byte may be in the name of a rule. A dot may not, because the second
// limit of a rule is NAME.2 in the fields of answers.
func IsNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// IsNamespaceByte reports whether a byte may be in a namespace.
func IsNamespaceByte(c byte) bool { return IsNameByte(c) || c == '.' }

func consists(text string, most int, ok func(byte) bool) bool {
	for i := range len(text) {
		if !ok(text[i]) {
			return false
		}
	}
	return text != "" && len(text) <= most
}
