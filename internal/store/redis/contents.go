package redis

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// entry is the last known contents of a counter. It is never changed.
type entry struct {
	contents store.Contents
	// is has a hash's fields and values, alternating, or the end of a string. It is nil if a hash of windows of the clock
	// most likely has its windows alone: see fields.
	is []string
	// broken means that another program has written some of it, and that it must be written anew.
	broken bool
	// limitless means that the hash has no limit: a token bucket then takes the limit of its next
	// item.
	limitless bool
}

// unseen is the entry of a counter that was not seen yet.
var unseen = &entry{limitless: true}

// over reports whether a hash of windows of the clock has expired since, as none of its windows is kept.
func (e *entry) over(of wire.LimitCounter, c store.Calendar) bool {
	seen := e.contents.Windows // newest first
	return clocked(of) && !e.broken && len(seen) > 0 && seen[0].Number < c.Span(of).Kept
}

// foreign stands for a key of another type.
const foreign = "?"

// expected returns the contents as commit.lua compares them.
func (e *entry) expected() string { return strings.Join(e.fields(), " ") }

// fields are a hash's fields and values, or the end of a string, in a likely order: Redis appends new fields while it keeps
// the hash as a list.
func (e *entry) fields() []string {
	if e.is != nil {
		return e.is
	}
	is := make([]string, 0, 2*len(e.contents.Windows))
	for _, w := range slices.Backward(e.contents.Windows) {
		is = append(is, strconv.FormatUint(w.Number, 10), strconv.FormatInt(w.Hits, 10))
	}
	return is
}

// limitField is the field of a token bucket's limit.
const limitField = "limit"

// nanosFormat formats numbers so that they sort as strings.
const nanosFormat = "%020d"

// field returns the name of a window's field in its counter's hash.
func field(of wire.LimitCounter, number uint64) string {
	if kind := window.Kind(of.Kind); kind.Started() || kind.Bucketed() {
		return fmt.Sprintf(nanosFormat, number)
	}
	return strconv.FormatUint(number, 10)
}

// integer parses a number. It accepts only the digits that this package writes.
func integer(s string) (n int64, ok bool) {
	u, err := strconv.ParseUint(s, 10, 64)
	return int64(u), err == nil && u <= wire.MaxHits && strconv.FormatUint(u, 10) == s
}

// parseHash parses a hash's fields and values.
func parseHash(of wire.LimitCounter, is []string) *entry {
	e := &entry{is: is, limitless: true}
	kind := window.Kind(of.Kind)
	for i := 0; i+1 < len(is); i += 2 {
		hits, ok := integer(is[i+1])
		if ok && kind.Refills() && is[i] == limitField {
			e.contents.Limit, e.limitless = uint64(hits), false
			continue
		}
		number, err := strconv.ParseUint(is[i], 10, 64)
		if !ok || kind.Started() && len(e.contents.Windows) > 0 || !isField(of, number, err, is[i]) {
			e.broken = true
			continue
		}
		e.contents.Windows = append(e.contents.Windows, store.Window{Number: number, Hits: hits})
	}
	slices.SortFunc(e.contents.Windows, store.NewestFirst)
	return e
}

// isField reports whether a field's name is the name of the number parsed from it. A start too
// large for a number is accepted: it lies too far ahead.
func isField(of wire.LimitCounter, number uint64, err error, is string) bool {
	if kind := window.Kind(of.Kind); err == nil || !kind.Started() && !kind.Bucketed() {
		return err == nil && field(of, number) == is
	}
	return len(is) == 20 && strings.Trim(is, "0123456789") == ""
}

// recordSize is the bytes of a log's record: seven with the microseconds of a time, two with the
// nanoseconds beyond them, and seven with hits.
const recordSize = 16

// parseRecords parses a log, or the end of one. A sender's limit bounds how much of it is read. It reads nothing that [records]
// did not write.
func parseRecords(is string) *entry {
	e := &entry{is: []string{is}, broken: len(is)%recordSize != 0}
	windows, after := make([]store.Window, 0, len(is)/recordSize), uint64(0)
	for i := 0; i < len(is) && !e.broken; i += recordSize {
		micros := binary.BigEndian.Uint64([]byte(is[i:i+8])) >> 8
		nanos := uint64(binary.BigEndian.Uint16([]byte(is[i+7 : i+9])))
		hits := int64(binary.BigEndian.Uint64([]byte(is[i+8:i+16]))<<8) >> 8
		at := micros*1000 + nanos
		e.broken = micros > math.MaxInt64/1000 || nanos > 999 || i > 0 && at <= after || hits <= 0 || hits > wire.MaxHits
		windows, after = append(windows, store.Window{Number: at, Hits: hits}), at
	}
	if !e.broken {
		slices.Reverse(windows)
		e.contents.Windows = windows
	}
	return e
}

// records encodes the buckets of a log, which are newest first.
func records(buckets []store.Window) string {
	b := make([]byte, 0, recordSize*len(buckets)+1)
	for _, w := range slices.Backward(buckets) {
		b = binary.BigEndian.AppendUint64(b, w.Number/1000<<8)
		b = binary.BigEndian.AppendUint16(b[:len(b)-1], uint16(w.Number%1000))
		b = binary.BigEndian.AppendUint64(b, uint64(w.Hits)<<8)
		b = b[:len(b)-1]
	}
	return string(b)
}
