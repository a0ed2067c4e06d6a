package backend

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// noticeLife is how long nodes that come back hear of a changed counter. Without it they find out
// when their windows end at the latest.
const noticeLife = time.Hour

// Counter has everything that a store keeps of one key.
type Counter struct {
	// NowNanos is the store's time.
	NowNanos uint64
	// Limits are ordered by width, without those that have no hits. Known means that the store has
	// a counter, even if all its hits were given back.
	Limits []store.LimitCounter
	Known  bool
	// Leased is how many hits nodes had leased and not used, as far as they have reported it of requests
	// in the last ten seconds or so. Pending is how many hits had passed at nodes by then that they have
	// not told yet, at most.
	Leased, Pending uint64
	// Holders are the nodes whose requests hold places of the key, by their recent reports, in
	// descending order of places.
	Holders []Holder
}

// Holder is a node whose requests hold places of a key.
type Holder struct {
	Node   Number `json:"node"`
	Places uint64 `json:"places"`
	// OldestMS is how long the oldest place has been held, in milliseconds.
	OldestMS uint64 `json:"oldest_ms"`
}

// CounterLimit is one limit of a counter, for people.
type CounterLimit struct {
	Algorithm string `json:"algorithm"`
	WidthMS   uint64 `json:"width_ms"`
	// Period is day, week or month for a window of the calendar.
	Period string `json:"period,omitempty"`
	// PrecisionNS is the width of sub-buckets in nanoseconds, if there are any.
	PrecisionNS uint64 `json:"precision_ns,omitempty"`
	Ordinal     uint8  `json:"ordinal"`
	// Used is how many hits the store counts now: those that requests have used, and those that are Leased.
	Used uint64 `json:"used"`
	// Leased is how many of Used nodes had leased and not used some seconds ago, as they have reported.
	// Since then they may have used them.
	Leased uint64 `json:"leased,omitempty"`
	// Pending is how many hits have passed at nodes that the store does not count yet, at most: they were
	// not pushed when nodes reported, and the time for that is not over.
	Pending uint64 `json:"pending,omitempty"`
	// Limit and Left are left out if the limit is unknown.
	Limit *uint64 `json:"limit,omitempty"`
	Burst uint64  `json:"burst,omitempty"`
	Left  *uint64 `json:"left,omitempty"`
	// NextMS is the time until one more hit than Left has room if no other hits come, in
	// milliseconds. It is left out if the limit is unknown or no waiting helps.
	NextMS *int64 `json:"next_ms,omitempty"`
	// ResetMS is the time until the window ends, the last hit has left, or the bucket is full, in
	// milliseconds. It is left out if there is no such time.
	ResetMS *int64 `json:"reset_ms,omitempty"`
}

// Counter returns the counter of a key as the store has it now.
func (b *Backend) Counter(ctx context.Context, namespace string, id wire.ID) (c Counter, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if c, err = b.counter(ctx, namespace, id); err != nil {
		return c, err
	}
	reports, _, err := b.reports(ctx, namespace, c.NowNanos)
	c.Holders = holders(reports, id, c.NowNanos)
	c.Leased, c.Pending = passing(reports, id, c.NowNanos)
	return c, err
}

// passing sums up what nodes have leased of a key, and what they have not told yet at a time. The workers
// of a node see the same counter.
func passing(reports []*wire.Report, id wire.ID, now uint64) (leased, pending uint64) {
	type part struct{ leased, pending uint64 }
	by := map[uint64]part{}
	for _, r := range reports {
		for i := range r.Rules {
			for _, k := range r.Rules[i].Used.Keys {
				if k.ID != id || k.Recent == 0 {
					continue
				}
				of := by[r.Node]
				of.leased = max(of.leased, k.Leased)
				if now < r.AtNanos+1e6*r.Rules[i].SyncMillis { // else they are counted by now
					of.pending = max(of.pending, k.Pending)
				}
				by[r.Node] = of
			}
		}
	}
	for _, of := range by {
		leased, pending = leased+of.leased, pending+of.pending
	}
	return leased, pending
}

// holders returns the nodes that have reported places of a key, as they stand at a time.
func holders(reports []*wire.Report, id wire.ID, now uint64) []Holder {
	by := map[uint64]*Holder{}
	for _, r := range reports {
		for _, h := range r.Held {
			if h.ID != id {
				continue
			}
			of := by[r.Node]
			if of == nil {
				of = &Holder{Node: Number(r.Node)}
				by[r.Node] = of
			}
			of.Places, of.OldestMS = of.Places+h.Places, max(of.OldestMS, (now-min(now, h.SinceNanos))/1e6)
		}
	}
	var all []Holder
	for _, of := range by {
		all = append(all, *of)
	}
	slices.SortFunc(all, func(a, b Holder) int { return cmp.Or(cmp.Compare(b.Places, a.Places), cmp.Compare(a.Node, b.Node)) })
	return all
}

func (b *Backend) counter(ctx context.Context, namespace string, id wire.ID) (c Counter, err error) {
	if c.Limits, err = store.CountersOf(ctx, b.store, namespace, id); err != nil {
		return c, err
	}
	c.Known = len(c.Limits) > 0
	c.Limits = slices.DeleteFunc(c.Limits, func(l store.LimitCounter) bool {
		return !slices.ContainsFunc(l.Windows, func(w store.Window) bool { return w.Hits > 0 })
	})
	// A push without hits is a read, used here for the time.
	out, err := b.store.Push(ctx, &wire.Push{Namespace: namespace, Sequence: 1, Floor: 1}, 1)
	if err != nil {
		return c, err
	}
	c.NowNanos = out.Answer.NowNanos
	slices.SortFunc(c.Limits, func(a, b store.LimitCounter) int {
		return cmp.Or(cmp.Compare(a.WidthMillis, b.WidthMillis), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Precision, b.Precision), cmp.Compare(a.Ordinal, b.Ordinal))
	})
	return c, nil
}

// Change is a change of a key's counter.
type Change struct {
	// ID is the key's. Rule and Values name the key for nodes.
	ID     wire.ID
	Rule   string
	Values []string
	// Grant gives back this number of hits in each limit, if that many are counted. 0 empties the
	// counter.
	Grant uint64
}

// ErrUnannounced is wrapped by the error of a change that was made without nodes being told.
var ErrUnannounced = errors.New("the counter was changed, but nodes were not told")

// ChangeCounter removes hits from a key's counter, once, and tells all nodes to drop their state of
// it. Hits that are counted meanwhile stay. It returns how many hits were given back in all limits
// together, without a block's, and the version of the list with the notice. If the change is invalid, the error wraps
// [store.ErrInvalid]. After any other error except [ErrUnannounced], the change may have been made.
func (b Changer) ChangeCounter(ctx context.Context, namespace string, change *Change) (returned, version uint64, err error) {
	notice := wire.Override{Rule: change.Rule, Values: change.Values}
	if err := checkKey(&notice); err != nil {
		return 0, 0, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	if change.Grant > wire.MaxHits {
		return 0, 0, fmt.Errorf("%w: grant: want at most 2^53-1, got %d", store.ErrInvalid, change.Grant)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout) // who has gone may ask again what became of it
	defer cancel()
	what, hits := grantHits, change.Grant
	if hits == 0 {
		what, hits = resetCounter, wire.MaxHits
	}
	push := wire.Push{Namespace: namespace, Sender: rand.Uint64(), Sequence: 1, Floor: 1}
	record := b.record(namespace, what)
	earlier, err := record.once(ctx, b.by, change)
	if err != nil {
		return 0, 0, err
	}
	if earlier != nil && earlier.Made {
		_, version, err = b.store.Overrides(ctx, namespace, 0)
		return earlier.Returned, version, err
	}
	found, err := b.counter(ctx, namespace, change.ID)
	if err != nil {
		return 0, 0, err
	}
	calendar := store.Calendar{NowNanos: found.NowNanos}
	if record != nil {
		push.Sender = record.member
		known := b.configurations(ctx, namespace, nil) // the last that was told; without it, the record has the store's widths
		var limits []window.Limit
		if of := RuleOf(known, change.Rule); of != nil {
			limits = of.Plain()
		}
		of := []Changed{changedCounter(calendar, &found, limits, change)}
		if earlier != nil && len(earlier.Of) > 0 {
			of[0].Before, of[0].After = earlier.Of[0].Before, earlier.Of[0].After // of the call that came first
		}
		if err := record.begin(ctx, of); err != nil {
			return 0, 0, err
		}
		defer func() {
			record.Returned = returned
			record.end(ctx, err)
		}()
	}
	blocks := uint64(0)
	for i := range found.Limits {
		items := calendar.GiveBack(&found.Limits[i], hits)
		if window.Kind(found.Limits[i].Kind).Blocks() {
			blocks += hitsOf(items)
		}
		push.Items = append(push.Items, items...)
	}
	now := found.NowNanos
	if len(push.Items) > 0 {
		out, err := b.pushTwice(ctx, &push)
		if err != nil {
			return 0, 0, err
		}
		// No request has used the hits of a block.
		returned, now = uint64(out.Returned)-min(uint64(out.Returned), blocks), out.Answer.NowNanos
	}
	// Rounded up: a lease within this millisecond may be older.
	millis := now/1e6 + 1
	if notice.Until = uint64(b.overrides.now().Add(noticeLife).UnixMilli()); change.Grant == 0 {
		notice.Notice.Reset = millis
	} else {
		notice.Notice.Granted = millis
	}
	version, _, err = b.changeList(ctx, namespace, nil, roomForRules, func(s *settings) int {
		next := notice
		for i := range s.overrides {
			if o := &s.overrides[i]; o.Compare(&notice) == 0 {
				next.Notice = wire.Notice{Reset: max(notice.Notice.Reset, o.Notice.Reset), Granted: max(notice.Notice.Granted, o.Notice.Granted)}
			}
		}
		s.overrides = put(s.overrides, []wire.Override{next}, compareOverrides)
		return 1
	})
	if err != nil {
		return returned, 0, fmt.Errorf("%w: %w", ErrUnannounced, err)
	}
	return returned, version, nil
}

// pushTwice repeats a push that fails. That is safe, since a push is applied once.
func (b *Backend) pushTwice(ctx context.Context, p *wire.Push) (store.Outcome, error) {
	again, err := b.store.Push(ctx, p, 1)
	if err != nil && !errors.Is(err, store.ErrInvalid) {
		again, err = b.store.Push(ctx, p, 1)
	}
	if err == nil && again.Duplicate {
		// The first push was applied, but its outcome was lost. It returned at most the requested
		// hits.
		again.Returned = int64(min(hitsOf(p.Items), wire.MaxHits))
	}
	return again, err
}

// changedCounter is what a record tells of a counter: the hits that each limit has before the change,
// and those that stay unless others come meanwhile. limits are the rule's, as far as nodes have told them.
func changedCounter(calendar store.Calendar, found *Counter, limits []window.Limit, change *Change) Changed {
	c := Changed{Rule: change.Rule, Hash: hex.EncodeToString(change.ID[:]), values: change.Values}
	for i := range found.Limits {
		l := &found.Limits[i]
		limit := uint64(window.MaxLimit)
		if window.Kind(l.Kind).Refills() {
			limit = l.Limit
		}
		used, _ := calendar.Standing(l, limit, limit)
		left := uint64(0)
		switch {
		case window.Kind(l.Kind).Blocks():
			if used = min(used, 1); change.Grant > 0 {
				left = used
			}
		case change.Grant > 0:
			left = used - min(used, change.Grant)
		}
		in := span(l.WidthMillis)
		if at := CalendarAt(limits, l.Ordinal, l.WidthMillis, int64(calendar.NowNanos)); at >= 0 {
			in = "a " + PeriodOf(&limits[at])
		}
		c.Before += fmt.Sprintf("%d in %s ", used, in)
		c.After += fmt.Sprintf("%d in %s ", left, in)
	}
	c.Before, c.After = strings.TrimSpace(c.Before), strings.TrimSpace(c.After)
	return c
}

// hitsOf sums the hits that items give back.
func hitsOf(items []wire.Item) (sum uint64) {
	for i := range items {
		for _, hits := range items[i].Hits {
			sum += uint64(-hits)
		}
	}
	return sum
}
