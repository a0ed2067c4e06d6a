package filter

import (
	"weir/internal/counter"
	"weir/sharedata"
	"weir/window"
)

// match is a rule that applies to the request being decided, with what it has counted for the request's key.
type match struct {
	rule    *Rule
	key     []byte
	address sharedata.Address
	slot    sharedata.Slot
	cell    counter.Cell
	cost    uint64
	numbers []uint64 // of the windows that were charged
	inSlot  bool     // the hits are in the slot already, and have to be written
	taken   bool
	held    bool
	verdict counter.Verdict
}

// withheld tells that a match was refused though its limits have room as far as is known here: the backend had no more for this
// node, or decides everything and can't be reached.
func (m *match) withheld() bool { return m.verdict == counter.Rejected && m.cell.Allows(m.cost) }

// decide takes a request's hits from all limits of all the rules that match it, or from none. The cells of the matches then
// stand as they are after the decision. It is unsure if no rule has refused, but one has to ask the backend: nothing was taken then.
//
// First all entries are read: most refusals are found without a write. Then they are written one after the other, each by a
// compare-and-set against what was decided on. Where another worker was faster the entry is decided again, and if it has no
// room any more, the entries written before get their hits back.
func (p *plugin) decide(matches []match, now int64) counter.Verdict {
	verdict := counter.Allowed
	for i := range matches {
		m := &matches[i]
		m.verdict = p.load(m, now)
		verdict = worse(verdict, m.verdict)
	}
	for i := 0; i < len(matches) && verdict == counter.Allowed; i++ {
		m := &matches[i]
		if m.verdict = p.charge(m, now, counted); m.verdict != counter.Allowed {
			verdict = m.verdict
			if verdict == counter.Rejected {
				p.remember(m, now)
			}
			for j := range matches[:i] {
				p.giveBack(&matches[j], now)
			}
		}
	}
	if verdict != counter.Allowed {
		for i := range matches {
			if m := &matches[i]; m.inSlot {
				m.uncount()
			}
		}
	}
	if verdict == counter.Rejected {
		p.countRejected(matches, now)
	}
	return verdict
}

// uncount takes hits back that are in the slot only. The slot still has them: it has to be read again before it is written.
func (m *match) uncount() {
	m.inSlot = false
	m.numbers = m.cell.Numbers(m.numbers[:0])
	m.cell.GiveBack(m.numbers, m.cost)
}

// countRejected counts the hits of a rejected request where the rule that has rejected it wants that.
func (p *plugin) countRejected(matches []match, now int64) {
	for i := range matches {
		// A cost above the limit never passes: counted, it would only keep others of the key from passing.
		if m := &matches[i]; m.verdict == counter.Rejected && m.rule.CountRejected && m.cell.Possible(m.cost) {
			p.charge(m, now, rejected)
		}
	}
}

// refuse rejects a request that was unsure, as the backend did not give it hits.
func (p *plugin) refuse(matches []match, now int64) counter.Verdict {
	for i := range matches {
		if m := &matches[i]; m.verdict == counter.Unsure {
			m.verdict = counter.Rejected
		}
	}
	p.countRejected(matches, now)
	return counter.Rejected
}

// worse is what becomes of a request that two rules have a say in.
func worse(a, b counter.Verdict) counter.Verdict {
	switch {
	case a == counter.Rejected || b == counter.Rejected:
		return counter.Rejected
	case a == counter.Unsure || b == counter.Unsure:
		return counter.Unsure
	}
	return counter.Allowed
}

// verdict is what a match's cell, at the time of now, says of its cost. A request that is decided without the backend goes by what is
// known here.
func (p *plugin) verdict(m *match, now int64) counter.Verdict {
	switch {
	case p.sync == nil || p.alone:
		if m.cell.Allows(m.cost) {
			return counter.Allowed
		}
		return counter.Rejected
	case p.config.SyncRate == 0:
		if m.cell.Possible(m.cost) {
			return counter.Unsure
		}
		return counter.Rejected
	}
	return m.cell.Verdict(m.cost, now)
}

// load reads what the match's rule has counted, and tells whether the match has room. A refusal that this VM remembers needs
// no shared data.
func (p *plugin) load(m *match, now int64) counter.Verdict {
	m.inSlot, m.taken, m.held = false, false, false
	m.address = p.table.Address(m.key)
	if !m.rule.CountRejected {
		if payload := p.refusals.find(m.address, m.rule.Index, now); payload != nil && m.cell.Load(&m.rule.Rule, payload) {
			if m.cell.Advance(now); p.verdict(m, now) == counter.Rejected {
				return counter.Rejected
			}
		}
	}
	found := p.table.Read(&m.slot, m.address)
	if found && m.cost != 0 && m.cell.Count(&m.rule.Rule, m.slot.Payload(), now, m.cost) {
		m.inSlot = true
		return counter.Allowed
	}
	p.decode(m, found)
	m.cell.Advance(now)
	verdict := p.verdict(m, now)
	if verdict == counter.Rejected {
		p.remember(m, now)
	}
	return verdict
}

// read gets a match's cell as it was written last, and brings it to the present.
func (p *plugin) read(m *match, now int64) {
	p.fetch(m)
	m.cell.Advance(now)
}

// fetch gets a match's cell as it was written last.
func (p *plugin) fetch(m *match) { p.decode(m, p.table.Read(&m.slot, m.address)) }

func (p *plugin) decode(m *match, found bool) {
	if m.slot.Corrupt() {
		p.tallies.Corrupt++
	}
	if !found {
		m.cell.Load(&m.rule.Rule, nil)
	} else if !m.cell.Load(&m.rule.Rule, m.slot.Payload()) {
		p.tallies.Corrupt++
	}
}

func (p *plugin) remember(m *match, now int64) {
	p.entry = m.cell.Append(p.entry[:0], now)
	// Of a synced rule other nodes' hits may go, and leases come.
	p.refusals.add(m.address, m.rule.Index, p.entry, now, m.cell.Revocable() || m.rule.Synced())
}

// charging says what becomes of hits that have no room.
type charging uint8

const (
	// counted hits are those of a request that passes only if they have room.
	counted charging = iota
	// forced hits are those of a request that has passed.
	forced
	// rejected hits are those of a request that doesn't pass, and are counted all the same.
	rejected
)

// charge takes the hits of a match that was read, unless they have no room any more, and need it.
func (p *plugin) charge(m *match, now int64, how charging) counter.Verdict {
	if m.cost == 0 || p.take(m, now, how) {
		return counter.Allowed
	}
	return p.takeAgain(m, now, how)
}

// take tries to write a match's cell with its hits.
func (p *plugin) take(m *match, now int64, how charging) (taken bool) {
	adopted := p.sync != nil && p.sync.prepare(m, now)
	switch {
	case m.inSlot:
	case how == rejected:
		m.cell.TakeRejected(m.cost)
	default:
		m.cell.Take(m.cost)
	}
	if !p.write(m, now) {
		return false
	}
	if m.taken = true; m.rule.Revocable {
		m.numbers = m.cell.Numbers(m.numbers[:0])
	}
	if p.sync != nil {
		p.sync.took(m, now, adopted)
	}
	return true
}

// takeAgain goes on where another worker was faster.
//
//go:noinline
func (p *plugin) takeAgain(m *match, now int64, how charging) counter.Verdict {
	for attempt := 1; ; attempt++ {
		p.read(m, now)
		if how == counted {
			if verdict := p.verdict(m, now); verdict != counter.Allowed {
				return verdict
			}
		}
		if attempt == p.table.Attempts() {
			// The decision stands; the hits are added as soon as shared data lets them.
			p.hold(m)
			m.cell.Take(m.cost)
			return counter.Allowed
		}
		if p.take(m, now, how) {
			return counter.Allowed
		}
	}
}

// prepare gets a cell ready for its match's hits, and tells whether this worker is to push them.
//
//go:noinline
func (s *syncer) prepare(m *match, now int64) (adopted bool) {
	adopted = !m.cell.Silent(m.cost) && s.plugin.adopt(m, now)
	if !m.cell.Identified() {
		m.cell.Identify(counter.Identity(m.key))
	}
	return adopted
}

// took does what is to be done for hits that were taken.
//
//go:noinline
func (s *syncer) took(m *match, now int64, adopted bool) {
	if adopted {
		s.remember(m)
	}
	if m.cell.Low(m.cost) {
		s.prefetch(m, now)
	}
}

// adopt tells whether this worker is to push what the match's cell is about to take or give back.
func (p *plugin) adopt(m *match, now int64) bool {
	return p.sync != nil && m.cell.Adopt(now, !p.sync.link.open())
}

// write writes a match's cell, unless another worker wrote its page since it was read.
func (p *plugin) write(m *match, now int64) (written bool) {
	var meta sharedata.Meta
	meta.ExpiresNanos, meta.Use = m.cell.Worth()
	if m.inSlot {
		m.inSlot = false
		written = p.table.Rewrite(&m.slot, meta, now)
	} else {
		p.entry = m.cell.Append(p.entry[:0], now)
		written = p.table.Write(&m.slot, p.entry, meta, now)
	}
	if !written {
		p.tallies.LostRaces++
		return false
	}
	if m.slot.Crowded() {
		m.slot.Evicted(p.rescue)
	}
	return true
}

// rescue keeps what an entry that had to make room has for the backend: its hits would be lost otherwise.
func (p *plugin) rescue(payload []byte) {
	p.tallies.Evicted++
	counter.Orphans(payload, func(id [16]byte, l *window.Limit, push *window.Push, ends int64) {
		if p.sync == nil || !p.sync.rescue(id, l, push, ends) {
			p.tallies.Lost += push.Taken()
		}
	})
}

// giveBack returns a match's hits to the windows that they were taken from.
func (p *plugin) giveBack(m *match, now int64) {
	if m.held {
		// What this request holds is what was held last.
		m.held = false
		p.held = p.held[:len(p.held)-1]
	}
	if !m.taken {
		return
	}
	m.taken = false
	for range p.table.Attempts() {
		p.read(m, now)
		adopted := p.adopt(m, now)
		m.cell.GiveBack(m.numbers, m.cost)
		if m.slot.Payload() == nil || p.write(m, now) {
			if adopted {
				p.sync.remember(m)
			}
			return
		}
	}
	p.tallies.GivenUp++
}

// heldHits are hits that lost every race to be written.
type heldHits struct {
	rule int
	key  []byte
	cost uint64
}

// maxHeld bounds how many held hits a VM keeps.
const maxHeld = 1024

func (p *plugin) hold(m *match) {
	p.tallies.GivenUp++
	if len(p.held) == maxHeld {
		p.tallies.Lost += m.cost
		return
	}
	m.held = true
	p.held = append(p.held, heldHits{rule: m.rule.Index, key: append([]byte(nil), m.key...), cost: m.cost})
}

// addHeld tries again to write the hits that lost their races. They count from now on.
func (p *plugin) addHeld(now int64) {
	if len(p.held) == 0 {
		return
	}
	held := p.held
	p.held = nil
	m := &p.matches[0]
	for _, h := range held {
		m.rule, m.cost = &p.counted[h.rule], h.cost
		m.key = append(m.key[:0], h.key...)
		m.address = p.table.Address(m.key)
		p.read(m, now)
		p.charge(m, now, forced)
	}
}
