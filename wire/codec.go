package wire

import (
	"encoding/binary"
	"errors"
	"strconv"
)

// The first byte of a message says what it is and in which version; a change of the format takes new ones.
const (
	pushVersion   = 0x50 // 'P'
	answerVersion = 0x41 // 'A'
)

// ErrMalformed is wrapped by every error of the decoders.
var ErrMalformed = errors.New("malformed message")

// formatError says what is wrong with a message and where.
type formatError struct {
	offset int
	reason string
}

func (e *formatError) Error() string {
	return "malformed message at byte " + strconv.Itoa(e.offset) + ": " + e.reason
}

func (e *formatError) Unwrap() error { return ErrMalformed }

// AppendPushHeader appends the part of a push that comes before its items. The caller appends count items with
// [AppendItem]; together they make a message that [DecodePush] reads.
func AppendPushHeader(dst []byte, namespace string, sender, sequence, floor uint64, count int) []byte {
	dst = append(dst, pushVersion, byte(len(namespace)))
	dst = append(dst, namespace...)
	dst = binary.LittleEndian.AppendUint64(dst, sender)
	dst = binary.AppendUvarint(dst, sequence)
	dst = binary.AppendUvarint(dst, floor)
	// Two fixed bytes, so that a sender can write the count when it knows it.
	return binary.LittleEndian.AppendUint16(dst, uint16(count))
}

// SetCount corrects the number of items in a push whose header, alone in message when it was appended, is head bytes long.
func SetCount(message []byte, head, count int) {
	binary.LittleEndian.PutUint16(message[head-2:], uint16(count))
}

// AppendItem appends one item of a push.
func AppendItem(dst []byte, item *Item) []byte {
	dst = append(dst, item.ID[:]...)
	dst = append(dst, item.Kind, item.Ordinal)
	dst = binary.AppendUvarint(dst, item.WidthMillis)
	if item.Kind == kindBuckets {
		dst = binary.AppendUvarint(dst, item.Precision)
	}
	if item.Kind == kindBuckets || item.Kind == kindTokens {
		dst = binary.AppendUvarint(dst, item.Limit)
	}
	aged := item.Kind == kindBuckets
	dst = appendWindows(dst, item.Newest, len(item.Hits), aged)
	for i, h := range item.Hits {
		if aged {
			dst = binary.AppendUvarint(dst, item.Ages[i])
		}
		dst = binary.AppendVarint(dst, h)
	}
	return dst
}

// appendWindows begins a list of windows: their number times two, plus one if they have ages.
func appendWindows(dst []byte, newest uint64, count int, aged bool) []byte {
	dst = binary.AppendUvarint(dst, newest)
	head := uint64(count) << 1
	if aged {
		head |= 1
	}
	return binary.AppendUvarint(dst, head)
}

// AppendPush appends a whole push.
func AppendPush(dst []byte, p *Push) []byte {
	dst = AppendPushHeader(dst, p.Namespace, p.Sender, p.Sequence, p.Floor, len(p.Items))
	for i := range p.Items {
		dst = AppendItem(dst, &p.Items[i])
	}
	return dst
}

// AppendAnswer appends a whole answer.
func AppendAnswer(dst []byte, a *Answer) []byte {
	dst = append(dst, answerVersion)
	dst = binary.LittleEndian.AppendUint64(dst, a.NowNanos)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(a.Totals)))
	for i := range a.Totals {
		t := &a.Totals[i]
		aged := len(t.Ages) > 0
		dst = appendWindows(dst, t.Newest, len(t.Hits), aged)
		for i, h := range t.Hits {
			if aged {
				dst = binary.AppendUvarint(dst, t.Ages[i])
			}
			dst = binary.AppendUvarint(dst, h)
		}
	}
	return dst
}

// DecodePush reads a push and checks it against the package's bounds. The result shares no memory with b.
func DecodePush(b []byte) (*Push, error) {
	r := reader{data: b}
	if r.byte() != pushVersion {
		r.fail("not a push of a known version")
	}
	p := &Push{Namespace: r.namespace()}
	p.Sender = r.uint64()
	p.Sequence = r.uvarint()
	p.Floor = r.uvarint()
	count := r.count()
	if r.err == nil && (p.Sequence == 0 || p.Floor > p.Sequence) {
		r.fail("want a sequence from 1 and a floor not above it")
	}
	if r.err == nil {
		// The smallest item has 22 bytes, so the allocation is bounded by the message.
		p.Items = make([]Item, 0, min(count, len(r.data)/22))
	}
	for range count {
		if r.err != nil {
			break
		}
		p.Items = append(p.Items, r.item())
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return p, nil
}

// DecodeAnswer reads a whole answer. The result shares no memory with b.
func DecodeAnswer(b []byte) (*Answer, error) {
	r, err := NewAnswerReader(b)
	if err != nil {
		return nil, err
	}
	a := &Answer{NowNanos: r.NowNanos}
	var t Total
	for r.Next(&t) {
		a.Totals = append(a.Totals, Total{Newest: t.Newest, Hits: append([]uint64(nil), t.Hits...), Ages: append([]uint64(nil), t.Ages...)})
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return a, nil
}

// AnswerReader reads an answer total by total without allocating. Read a message to its end, and see what [AnswerReader.Err]
// says, before acting on any of it.
type AnswerReader struct {
	// NowNanos is the backend's time.
	NowNanos uint64
	// Count is the number of totals.
	Count int

	r    reader
	left int
}

// NewAnswerReader checks an answer's head. The reader keeps b, but does not modify it.
func NewAnswerReader(b []byte) (AnswerReader, error) {
	a := AnswerReader{r: reader{data: b}}
	if a.r.byte() != answerVersion {
		a.r.fail("not an answer of a known version")
	}
	a.NowNanos = a.r.uint64()
	a.Count = a.r.count()
	a.left = a.Count
	return a, a.r.err
}

// Next reads the next total into t, reusing t.Hits, and tells whether there was one.
func (a *AnswerReader) Next(t *Total) bool {
	if a.left == 0 || a.r.err != nil {
		return false
	}
	a.left--
	t.Newest = a.r.uvarint()
	count, aged := a.r.windows()
	t.Hits, t.Ages = t.Hits[:0], t.Ages[:0]
	for range count {
		if a.r.err != nil {
			break
		}
		if aged {
			t.Ages = append(t.Ages, a.r.age(t.Ages))
		}
		t.Hits = append(t.Hits, a.r.uvarint())
	}
	return a.r.err == nil
}

// Err tells what was wrong with the message, once Next has returned false.
func (a *AnswerReader) Err() error { return a.r.end() }

// reader takes a message apart. After the first error it returns zeros.
type reader struct {
	data []byte
	pos  int
	err  error
}

func (r *reader) fail(reason string) {
	if r.err == nil {
		r.err = &formatError{offset: r.pos, reason: reason}
	}
}

func (r *reader) take(n int) []byte {
	if r.err != nil || len(r.data)-r.pos < n {
		r.fail("the message ends too early")
		return nil
	}
	b := r.data[r.pos : r.pos+n]
	r.pos += n
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
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
	b := r.take(2)
	if b == nil {
		return 0
	}
	n := int(binary.LittleEndian.Uint16(b))
	if n > MaxItems {
		r.fail("want at most " + strconv.Itoa(MaxItems) + " items, got " + strconv.Itoa(n))
		return 0
	}
	return n
}

func (r *reader) namespace() string {
	n := int(r.byte())
	if r.err == nil && (n == 0 || n > MaxNamespace) {
		r.fail("want a namespace of 1 to 64 bytes")
	}
	b := r.take(n)
	for _, c := range b {
		if c != '.' && c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			r.fail("want a namespace of A-Za-z0-9._-")
		}
	}
	return string(b)
}

func (r *reader) item() (item Item) {
	copy(item.ID[:], r.take(len(item.ID)))
	item.Kind = r.byte()
	item.Ordinal = r.byte()
	item.WidthMillis = r.uvarint()
	if r.err == nil && (item.WidthMillis == 0 || item.WidthMillis > MaxWidthMillis) {
		r.fail("want a window of 1 ms to 366 days")
	}
	if item.Kind == kindBuckets {
		item.Precision = r.uvarint()
		if r.err == nil && (item.Precision == 0 || item.Precision > item.WidthMillis*1e6 || item.WidthMillis*1e6%item.Precision != 0) {
			r.fail("want a precision that divides the window")
		}
	}
	if item.Kind == kindBuckets || item.Kind == kindTokens {
		if item.Limit = r.uvarint(); item.Limit > MaxHits {
			r.fail("want a limit of at most 2^53-1")
		}
	}
	item.Newest = r.uvarint()
	count, aged := r.windows()
	if r.err == nil && aged != (item.Kind == kindBuckets) {
		r.fail("want ages for kind 4, and for no other")
	}
	if r.err == nil && count == 0 && !aged {
		r.fail("want at least one window")
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

// windows reads the head of a list of windows.
func (r *reader) windows() (count int, aged bool) {
	head := r.uvarint()
	most := uint64(MaxWindows)
	if aged = head&1 != 0; aged {
		most = MaxBuckets
	}
	if head>>1 > most {
		r.fail("want at most " + strconv.FormatUint(most, 10) + " windows")
		return 0, aged
	}
	return int(head >> 1), aged
}

// age reads the age of a bucket behind others.
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

// end wants nothing left.
func (r *reader) end() error {
	if r.err == nil && r.pos != len(r.data) {
		r.fail("bytes after the end of the message")
	}
	return r.err
}
