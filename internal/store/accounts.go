package store

import (
	"bytes"
	"fmt"
	"time"

	"weir/internal/wire"
)

// Accounted is the result of a usage message.
type Accounted struct {
	// Duplicate means that the message was added before.
	Duplicate bool
	// Folded is how many of its rows went to a label of others.
	Folded int
}

const (
	// UsedDays is how many days after a day its hits are kept: 13 months.
	UsedDays = 400
	// UsedSenderLife is how long a sender's last sequence is remembered at least.
	UsedSenderLife = 48 * time.Hour
	// MaxUsed is the most labels of a namespace on a day, besides those of others. Senders at the
	// same time may exceed it by a few rows.
	MaxUsed = 10_000
	// MaxUsedOthers is the most labels of others in a namespace on a day. Hits of further rules go
	// to the label of no rule.
	MaxUsedOthers = 256
)

// Displaces reports whether a label without a place takes that of the label with the lowest rank,
// whose hits then go to others. It does so with a chance of its hits by those of the other. So labels
// with many hits get a place and keep it, even if thousands of labels with few hits come before or
// after them, and hits lose their label no faster than others come without a place. random is from
// 0 up to 1.
//
// Without the ranks, new labels would displace each other in a single place, and a label whose hits
// come a few at a time would never keep it. It is the randomized admission of
// https://arxiv.org/abs/1612.02962.
func Displaces(hits, least int64, random float64) bool {
	return hits > 0 && random*float64(least) < float64(hits)
}

// noRule stands for a rule's name if there is no room for its own label of others.
const noRule = "-"

// OthersLabel returns the labels for hits of a label without room: that of its rule and, if this
// has no room either, that of all rules.
func OthersLabel(label []byte) (ofRule, ofAll []byte) {
	l, _ := wire.DecodeUsedLabel(label)
	return wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: l.Rule}), wire.AppendUsedLabel(nil, &wire.UsedLabel{Rule: noRule})
}

// isOthers reports whether a label is that of a rule's others.
func isOthers(label []byte) bool {
	ofRule, _ := OthersLabel(label)
	return bytes.Equal(ofRule, label)
}

const dayNanos = uint64(24 * time.Hour)

// Day returns the day at the clock's time, in UTC, counted from 1 January 1970.
func (c Calendar) Day() uint32 { return uint32(c.NowNanos / dayNanos) }

// UsedDay returns the day that hits for a day are added to. It is the same day, unless that is
// further ahead than in any time zone, or is no longer kept. Then it is the nearest day that is
// valid.
func (c Calendar) UsedDay(day uint32) uint32 {
	today := c.Day()
	return min(max(day, today-min(today, UsedDays)), today+1)
}

// UsedUntil returns when a day's hits are dropped, in nanoseconds of Unix time.
func UsedUntil(day uint32) uint64 { return (uint64(day) + UsedDays + 1) * dayNanos }

// CheckUsed returns an error that wraps [ErrInvalid] if a usage message is invalid.
func CheckUsed(u *wire.Used) error {
	if err := checkNamespace(u.Namespace); err != nil {
		return err
	}
	switch {
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
