package redis

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// errReply is the error of a reply that commit.lua never sends.
var errReply = errors.New("the reply of the script is not understood")

// hear applies the script's reply to the attempt.
func (a *attempt) hear(reply []any, sent time.Duration) error {
	received := time.Since(began)
	if a.lone {
		return a.hearLone(reply, sent, received)
	}
	if len(reply) < 3 {
		return errReply
	}
	seconds, _ := reply[0].(string)
	rest, _ := reply[1].(string)
	s, errSeconds := strconv.ParseInt(seconds, 10, 64)
	us, errRest := strconv.ParseInt(rest, 10, 64)
	if errSeconds != nil || errRest != nil {
		return errReply
	}
	a.clock.hear(s*1e6+us, sent, received)
	what, _ := reply[2].(int64)
	switch reply = reply[3:]; what {
	case 0:
		return a.learn(reply)
	case 1:
		if a.micros != "" {
			for _, one := range a.group.all {
				one.out.Answer.NowNanos = uint64(s*1e6+us) * 1000
			}
		}
		return a.settle(reply)
	default:
		a.busy = true
		return nil
	}
}

// learn remembers the contents in the reply to an attempt that was not written.
func (a *attempt) learn(reply []any) error {
	senders := len(a.again) + len(a.noted)
	known := 2*senders + len(a.counters)
	if a.group.c.store.keys.partitions == 1 {
		if len(reply) != known+1 {
			return errReply
		}
		if err := a.lacks(reply[known]); err != nil {
			return err
		}
		reply = reply[:known]
	}
	if len(reply) != known {
		return errReply
	}
	for i, one := range a.noted {
		state, _ := reply[2*(len(a.again)+i)].(string)
		if state != stateApplied {
			one.b.state = state
			one.granted, _ = reply[2*(len(a.again)+i)+1].(string)
		}
	}
	for i, h := range a.counters {
		switch is := reply[2*senders+i].(type) {
		case string:
			h.remember(a, parseRecords(is))
		case []any:
			fields, err := texts(is)
			if err != nil {
				return err
			}
			h.remember(a, parseHash(h.LimitCounter, fields))
		case int64:
			h.remember(a, &entry{is: []string{foreign}, broken: true, limitless: true})
		}
	}
	return nil
}

// texts converts texts and integers to texts.
func texts(reply []any) ([]string, error) {
	all := make([]string, len(reply))
	for i, value := range reply {
		switch v := value.(type) {
		case string:
			all[i] = v
		case int64:
			all[i] = strconv.FormatInt(v, 10)
		default:
			return nil, errReply
		}
	}
	return all, nil
}

func (h *held) remember(a *attempt, e *entry) {
	size := 256 + len(h.key) + 32*len(e.contents.Windows)
	for _, s := range e.is {
		size += 16 + len(s)
	}
	a.group.c.seen.put(h.key, e, size)
}

// settle applies the reply to an attempt that was written.
func (a *attempt) settle(reply []any) error {
	if len(reply) == 0 {
		return errReply
	}
	a.written = true
	for _, one := range a.noted {
		a.group.c.noted.put(one.b.sender, one.noted, 1)
	}
	repaired, _ := reply[0].(int64)
	first := &a.group.all[0].out
	first.Repaired += repaired + a.group.repaired
	reply = reply[1:]
	for _, h := range a.counters {
		if h.changed && h.seen.broken {
			first.Repaired++
		}
		switch {
		case h.Shape().IsLog():
			if h.changed {
				h.remember(a, h.writtenLog())
			}
			continue
		case h.exact:
			if h.changed {
				h.remember(a, h.writtenHash())
			}
			continue
		case len(reply) == 0:
			return errReply
		}
		if _, is := reply[0].(int64); is {
			if reply = reply[1:]; h.changed {
				h.remember(a, h.made())
			}
			continue
		}
		is, _ := reply[0].([]any)
		fields, err := texts(is)
		if err != nil {
			return err
		}
		reply = reply[1:]
		h.added(a, parseHash(h.LimitCounter, fields))
	}
	a.shift()
	return a.hearWords(reply)
}

// writtenLog returns the end of a log after it was written.
func (h *held) writtenLog() *entry {
	is := records(h.contents.Windows)
	is = is[max(0, len(is)-h.end()):]
	return parseRecords(is)
}

// writtenHash returns a hash after it was written, with a likely order of fields: Redis appends new
// fields while it keeps the hash as a list.
func (h *held) writtenHash() *entry {
	values := make(map[string]string, len(h.contents.Windows)+1)
	names := make([]string, 0, len(h.contents.Windows)+1)
	for _, w := range h.contents.Windows {
		name := field(h.LimitCounter, w.Number)
		names = append(names, name)
		values[name] = strconv.FormatInt(w.Hits, 10)
	}
	if window.Kind(h.Kind).Refills() && len(names) > 0 {
		names = append(names, limitField)
		values[limitField] = strconv.FormatUint(h.contents.Limit, 10)
	}
	is := make([]string, 0, 2*len(names))
	put := func(name string) {
		if value, ok := values[name]; ok {
			is = append(is, name, value)
			delete(values, name)
		}
	}
	if !h.seen.broken {
		seen := h.seen.fields()
		for i := 0; i < len(seen); i += 2 {
			put(seen[i])
		}
	}
	for _, name := range names {
		put(name)
	}
	return parseHash(h.LimitCounter, is)
}

// made returns a new hash of windows of the clock after hits were added.
func (h *held) made() *entry {
	e := &entry{limitless: true}
	for _, number := range h.named {
		if hits := h.contents.HitsOf(number); hits != 0 {
			e.contents.Windows = append(e.contents.Windows, store.Window{Number: number, Hits: hits})
		}
	}
	slices.SortFunc(e.contents.Windows, store.NewestFirst)
	return e
}

// added remembers a hash of windows of the clock after hits were added, and the hits that were not
// seen before.
func (h *held) added(a *attempt, now *entry) {
	span := a.calendar.Span(h.LimitCounter)
	for _, number := range h.named {
		if number < span.Kept || number > span.Newest {
			continue // answers don't have this window
		}
		if there := now.contents.HitsOf(number) - h.contents.HitsOf(number); there != 0 {
			if h.unseen == nil {
				h.unseen = make(map[uint64]int64)
			}
			h.unseen[number] = there
		}
	}
	h.remember(a, now)
}

// shift adds unseen hits to the answers.
func (a *attempt) shift() {
	for _, h := range a.counters {
		if h.unseen == nil {
			continue
		}
		for _, one := range a.group.all {
			for _, take := range one.b.takes {
				for j := range take.Rooms {
					if take.Rooms[j].LimitCounter == h.LimitCounter {
						h.shift(&take.grant.Totals[j])
					}
				}
			}
			for i, item := range one.b.items {
				if item.LimitCounter == h.LimitCounter {
					h.shift(one.b.totals[i])
				}
			}
		}
	}
}

func (h *held) shift(t *wire.Total) {
	for age := range t.Hits {
		t.Hits[age] = uint64(int64(t.Hits[age]) + h.unseen[t.Newest-uint64(age)])
	}
}
