package wire

import "encoding/binary"

// usedVersion begins a usage message, and usedAnswerVersion its answer. A backend that knows
// neither refuses the message, and its sender keeps it.
const (
	usedVersion       = 0x61
	usedAnswerVersion = 0x62
)

// Bounds of a usage message.
const (
	// MaxUsedRows is the most rows of a message, and MaxUsed the most bytes.
	MaxUsedRows = MaxItems
	MaxUsed     = 64 << 10
	// MaxUsedModel is the length of the longest name of a model.
	MaxUsedModel = 256
	// MaxUsedDay is the last valid day, in the year 2400.
	MaxUsedDay = 157_000
	// MaxUsedEnded is the most senders that a message tells have ended.
	MaxUsedEnded = 64
	// maxBudgetSeconds is above the longest window, with changes of the clock.
	maxBudgetSeconds = MaxWidthMillis/1000 + 24*3600
	// lastSecond is the end of MaxUsedDay.
	lastSecond = (MaxUsedDay + 1) * 24 * 3600
)

// Used is a sender's message about the usage of keys in a namespace since its previous message. It
// is posted like a push, and counts once, however often it arrives: Sender and Sequence name it. A
// sender sends no message before the previous message was answered.
type Used struct {
	Namespace string
	// Sender is a random number. Sequence numbers its messages, from 1.
	Sender, Sequence uint64
	Rows             []UsedRow
	// AtNanos is a time of the backend's clock: all that the sender has counted before is in this
	// message and those before it. Node is the sender's process.
	AtNanos, Node uint64
	// Ended are senders of which nothing is left to tell, this one included: no gap in the usage
	// begins if nothing is heard of them any more.
	Ended []uint64
}

// UsedRow has the hits that a key has used on a day. They are negative if more was given back than
// taken since the previous message.
type UsedRow struct {
	// Label is an encoded [UsedLabel]. A store adds up the hits of equal labels.
	Label []byte
	// Day counts from 1 January 1970, in the rule's time zone.
	Day  uint32
	Hits int64
	// Budget is an encoded [Budget]; empty if unknown.
	Budget []byte
}

// UsedLabel says which key used the hits.
type UsedLabel struct {
	Rule string
	// ID is zero for the sum of all keys without a row of their own.
	ID ID
	// Model is the entry of the rule's price list; empty without one.
	Model string
	// Name is as in a [ReportKey].
	Name []byte
}

// Budget is the state of a key in a window of a limit.
type Budget struct {
	// AtSeconds is the time of this state. StartSeconds and EndSeconds bound the window. All are
	// Unix time.
	AtSeconds, StartSeconds, EndSeconds uint64
	// Used is how much the key has used of Quota.
	Used, Quota uint64
}

// AppendUsedHeader appends the part of a message before its rows. The caller then appends these with
// [AppendUsedRow], and [AppendUsedEnd].
func AppendUsedHeader(dst []byte, u *Used) []byte {
	dst = appendText(append(dst, usedVersion), u.Namespace) // its length takes a byte
	dst = binary.LittleEndian.AppendUint64(dst, u.Sender)
	return binary.LittleEndian.AppendUint64(dst, u.Sequence)
}

// AppendUsedRow appends a row of a message.
func AppendUsedRow(dst []byte, r *UsedRow) []byte {
	dst = appendUvarint(appendCounted(dst, r.Label), uint64(r.Day))
	return appendCounted(binary.AppendVarint(dst, r.Hits), r.Budget)
}

// AppendUsedEnd appends the part of a message after its rows.
func AppendUsedEnd(dst []byte, u *Used) []byte {
	dst = binary.LittleEndian.AppendUint64(AppendEnd(dst), u.AtNanos)
	dst = append(binary.LittleEndian.AppendUint64(dst, u.Node), byte(len(u.Ended)))
	for _, sender := range u.Ended {
		dst = binary.LittleEndian.AppendUint64(dst, sender)
	}
	return dst
}

// AppendUsed appends a whole message.
func AppendUsed(dst []byte, u *Used) []byte {
	dst = AppendUsedHeader(dst, u)
	for i := range u.Rows {
		dst = AppendUsedRow(dst, &u.Rows[i])
	}
	return AppendUsedEnd(dst, u)
}

// AppendUsedLabel appends a label.
func AppendUsedLabel(dst []byte, l *UsedLabel) []byte {
	dst = append(appendText(dst, l.Rule), l.ID[:]...) // a rule's length takes a byte
	return appendCounted(appendText(dst, l.Model), l.Name)
}

// AppendBudget appends a budget.
func AppendBudget(dst []byte, b *Budget) []byte {
	return appendUvarints(dst, b.AtSeconds, b.StartSeconds, b.EndSeconds, b.Used, b.Quota)
}

// IsUsed reports whether a message is about usage.
func IsUsed(b []byte) bool { return len(b) > 0 && b[0] == usedVersion }

// DecodeUsed reads a usage message, and checks its bounds. The result shares memory with b. Any
// error wraps [ErrMalformed].
func DecodeUsed(b []byte) (*Used, error) {
	r := reader{data: b}
	if r.byte() != usedVersion {
		r.fail("not a usage message")
	}
	if len(b) > MaxUsed {
		r.fail("want a message within its bound of bytes")
	}
	u := &Used{Namespace: r.namespace(), Sender: r.uint64(), Sequence: r.uint64()}
	if r.err == nil && (u.Sequence == 0 || u.Sequence > MaxHits) {
		r.fail("want a sequence of 1 to 2^53-1")
	}
	for r.more() {
		r.most(uint64(len(u.Rows)+1), MaxUsedRows)
		u.Rows = append(u.Rows, r.usedRow())
	}
	u.AtNanos, u.Node = r.uint64(), r.uint64()
	u.Ended = several(&r, r.most(uint64(r.byte()), MaxUsedEnded), r.uint64)
	if err := r.end(); err != nil {
		return nil, err
	}
	return u, nil
}

func (r *reader) usedRow() (row UsedRow) {
	row.Label = r.counted(MaxUsed)
	if _, ok := DecodeUsedLabel(row.Label); !ok {
		r.fail("want a label")
	}
	day := r.uvarint()
	if day > MaxUsedDay {
		r.fail("want a day")
		return row
	}
	row.Day, row.Hits = uint32(day), r.hits()
	row.Budget = r.counted(MaxUsed)
	if len(row.Budget) > 0 {
		if _, ok := DecodeBudget(row.Budget); !ok {
			r.fail("want a budget")
		}
	}
	return row
}

// DecodeUsedLabel reads a label; ok is false if it is malformed. Its name shares memory with b.
func DecodeUsedLabel(b []byte) (l UsedLabel, ok bool) {
	r := reader{data: b}
	l.Rule = r.ruleName()
	copy(l.ID[:], r.bytes(len(l.ID)))
	l.Model = string(r.counted(MaxUsedModel))
	l.Name = r.name()
	return l, r.end() == nil
}

// DecodeBudget reads a budget; ok is false if it is malformed.
func DecodeBudget(b []byte) (budget Budget, ok bool) {
	r := reader{data: b}
	for _, n := range [...]*uint64{&budget.AtSeconds, &budget.StartSeconds, &budget.EndSeconds, &budget.Used, &budget.Quota} {
		*n = r.amount()
	}
	if budget.StartSeconds >= budget.EndSeconds || budget.EndSeconds-budget.StartSeconds > maxBudgetSeconds {
		r.fail("want a window that ends after its start, within 367 days")
	}
	if max(budget.AtSeconds, budget.EndSeconds) > lastSecond {
		r.fail("want times up to the year 2400")
	}
	return budget, r.end() == nil
}

// AppendUsedAnswer appends the answer to a sender's message.
func AppendUsedAnswer(dst []byte, sequence uint64) []byte {
	return binary.LittleEndian.AppendUint64(append(dst, usedAnswerVersion), sequence)
}

// AnswersUsed reports whether a body is the answer to the message with a sequence.
func AnswersUsed(b []byte, sequence uint64) bool {
	return len(b) == 9 && b[0] == usedAnswerVersion && binary.LittleEndian.Uint64(b[1:]) == sequence
}
