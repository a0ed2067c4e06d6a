package store

import (
	"context"
	"fmt"
	"time"

	"weir/internal/wire"
)

// Accounts is where a store keeps what keys have used, day by day. It does not look into labels and
// budgets.
type Accounts interface {
	// Account adds what a sender tells that keys have used, all of it or nothing, and once: the atomic
	// step that adds it also notes its sequence. If a sequence of the sender was noted that is not
	// lower, nothing is added. Days are those that [Calendar.UsedDay] says. A sum stays within
	// wire.MaxHits of zero. If a namespace has MaxUsed labels on a day, hits of others go to the label
	// that [OthersLabel] returns. The budget of a label is that of the row that came last with one.
	//
	// If the message breaks what [CheckUsed] asks for, the error wraps [ErrInvalid], and nothing has
	// changed. After any other error it may have been added: send it again, unchanged, for less than
	// UsedSenderLife.
	Account(ctx context.Context, u *wire.Used) (Accounted, error)

	// Used calls visit for each label of a namespace's days from from to to, in no order, on the caller's
	// goroutine. It stops at the first error of visit, and returns it.
	Used(ctx context.Context, namespace string, from, to uint32, visit func(wire.UsedRow) error) error
}

// Accounted tells what became of a message.
type Accounted struct {
	// Duplicate says that it was added before.
	Duplicate bool
	// Folded is how many of its rows went to other labels than their own.
	Folded int
}

const (
	// UsedDays is for how many days after a day its hits are kept: 13 months.
	UsedDays = 400
	// UsedSenderLife is how long it is known at least what a sender has sent last.
	UsedSenderLife = 48 * time.Hour
	// MaxUsed is the most labels that a namespace has on a day, beside those of others. Several senders
	// at once may pass it by some rows.
	MaxUsed = 10_000
	// MaxUsedOthers is the most labels of others that a namespace has on a day. If there are more
	// rules, their hits go to the label of no rule.
	MaxUsedOthers = 256
)

// noRule is in place of a rule's name where there is no room for that.
const noRule = "-"

// OthersLabel is the label for hits of a label that finds no room, or if that finds none either, the
// label for all of these.
func OthersLabel(label []byte) (ofRule, ofAll []byte) {
	l, _ := wire.DecodeUsedLabel(label)
	return wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: l.Rule}), wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: noRule})
}

// dayNanos is a day of UTC.
const dayNanos = uint64(24 * time.Hour)

// Day is the day of UTC at the clock's time, counted from 1 January 1970.
func (c Calendar) Day() uint32 { return uint32(c.NowNanos / dayNanos) }

// UsedDay is the day on which hits count that are told for a day: that day, unless it lies further
// ahead than any time zone has it, or is not kept any more. Then it is the nearest day that is.
func (c Calendar) UsedDay(day uint32) uint32 {
	today := c.Day()
	return min(max(day, today-min(today, UsedDays)), today+1)
}

// UsedUntil is when a day's hits are forgotten, in nanoseconds of Unix time.
func UsedUntil(day uint32) uint64 { return (uint64(day) + UsedDays + 1) * dayNanos }

// CheckUsed tells what is wrong with a message of what keys have used. The error wraps [ErrInvalid].
func CheckUsed(u *wire.Used) error {
	switch {
	case !ValidNamespace(u.Namespace):
		return fmt.Errorf("%w: namespace: want 1 to %d of A-Za-z0-9._-, got %.80q", ErrInvalid, wire.MaxNamespace, u.Namespace)
	case u.Sequence == 0 || u.Sequence > wire.MaxHits:
		return fmt.Errorf("%w: sequence: want 1 to 2^53-1, got %d", ErrInvalid, u.Sequence)
	case len(u.Rows) > wire.MaxUsedRows:
		return fmt.Errorf("%w: rows: want at most %d, got %d", ErrInvalid, wire.MaxUsedRows, len(u.Rows))
	}
	for i := range u.Rows {
		r := &u.Rows[i]
		if _, ok := wire.DecodeUsedLabel(r.Label); !ok {
			return fmt.Errorf("%w: rows[%d]: want a label", ErrInvalid, i)
		}
		if r.Day > wire.MaxUsedDay || r.Hits > wire.MaxHits || r.Hits < -wire.MaxHits {
			return fmt.Errorf("%w: rows[%d]: want a day, and hits of -(2^53-1) to 2^53-1", ErrInvalid, i)
		}
		if _, ok := wire.DecodeBudget(r.Budget); !ok && len(r.Budget) > 0 {
			return fmt.Errorf("%w: rows[%d]: want a budget", ErrInvalid, i)
		}
	}
	return nil
}
