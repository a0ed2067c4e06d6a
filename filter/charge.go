package filter

import (
	"weir/internal/node"
	"weir/internal/proxywasm"
	"weir/internal/usage"
)

// charge is what a request has taken of a rule, until its response has told what it costs.
type charge struct {
	_ [0]func() // or else Go makes a function that compares values

	node.Charge
	rule *requestRule
	// taken is what the request took at first: what it costs besides, or if the rule reserves, what it
	// costs if nothing else is known.
	taken  uint64
	reader *usage.Reader // of the body; nil if that is not read
	// measure is that of a shadow rule that has not decided yet: then nothing was taken, and due is what
	// the response has cost, if it has told.
	measure *measure
	due     uint64
	told    bool
	// spent says that the response has cost more than was reserved, and than is left.
	spent bool
}

// soFar is what the response has cost at least, as far as it has come. A stream that is cut when it
// has cost too much may tell only at its end: until then an event stands for one token.
func (c *charge) soFar() (cost uint64, found bool) {
	cost, found = c.reader.Cost()
	if n := c.reader.Untold(); n > 0 && c.rule.guesses {
		return min(cost+n, usage.Most), true
	}
	return cost, found
}

// course is how a response goes.
type course struct {
	failed bool // by its status
	ended  bool // whole
	cuts   bool // it can be ended if it costs too much
	cut    bool // its client gets no more
}

const (
	// bodyPiece is how much of a body is read at once: a VM keeps the memory.
	bodyPiece = 16 << 10
	// cutPiece is how much is read at once of a stream that may be cut, which ends within it.
	cutPiece = 1 << 10
	// maxIdleReaders bounds the readers that are kept for later streams.
	maxIdleReaders = 256
	// settledPerTick bounds the streams that are looked at in a tick.
	settledPerTick = 256
)

// charge notes what demands have taken that were allowed.
//
//go:noinline
func (s *stream) charge(demands []node.Demand, now int64) {
	for i := range demands {
		if rule := &s.plugin.rules[demands[i].Rule.Index]; rule.charges {
			s.chargeFor(rule, &demands[i], now, nil)
		}
	}
}

// chargeFor notes what a demand has taken, or will have if a shadow rule is undecided.
func (s *stream) chargeFor(rule *requestRule, d *node.Demand, now int64, undecided *measure) {
	c := charge{rule: rule, taken: d.Cost, measure: undecided}
	if undecided == nil {
		c.Charge = s.plugin.node.Charge(d, now)
	}
	s.charges = append(s.charges, c)
}

// said is what a request says that its response costs.
type said struct {
	_ [0]func() // or else Go makes a function that compares values

	rule *requestRule
	cost uint64
	ok   bool
}

// say reads what the current request says of its response's cost.
//
//go:noinline
func (s *stream) say(demands []node.Demand) {
	p := s.plugin
	for i := range demands {
		if rule := &p.rules[demands[i].Rule.Index]; rule.says {
			cost, ok := p.request.selectedCost(&rule.onResponse, usage.Most)
			s.said = append(s.said, said{rule: rule, cost: cost, ok: ok})
		}
	}
}

// drop forgets a charge.
func (s *stream) drop(i int) {
	c := &s.charges[i]
	if c.reader != nil {
		s.plugin.putReader(c.reader)
	}
	if c.measure != nil && c.told {
		c.measure.owe(*c)
	}
	last := len(s.charges) - 1
	copy(s.charges[i:], s.charges[i+1:])
	s.charges[last] = charge{}
	s.charges = s.charges[:last]
}

// openResponse looks at a response's headers: at what they tell themselves, and whether the body can
// be read.
//
//go:noinline
func (s *stream) openResponse(end bool) {
	p := s.plugin
	status, ok := proxywasm.ResponseHeader(":status")
	s.course.failed = ok && len(status) > 0 && status[0] >= '4'
	format, known := usage.Unreadable, end
	now := p.now()
	for i := 0; i < len(s.charges); i++ {
		c := &s.charges[i]
		cost, told := s.toldCost(c.rule)
		if told {
			s.finish(c, cost, now)
			s.drop(i)
			i--
			continue
		}
		if !known {
			format, known = responseFormat(), true
		}
		if c.rule.usage != nil && format != usage.Unreadable {
			if c.rule.cuts && format == usage.Events {
				_, sized := proxywasm.ResponseHeader("content-length")
				s.course.cuts = !sized
			}
			c.reader = p.reader()
			c.reader.Reset(c.rule.usage.Fields, format)
		}
	}
	switch {
	case len(s.charges) == 0:
		p.node.PushCharges()
	case end:
		s.end()
	case format != usage.Unreadable && s.at == 0:
		p.open = append(p.open, s)
		s.at = len(p.open)
	}
}

// toldCost is what the headers of a response tell of its cost, or the request has said.
func (s *stream) toldCost(rule *requestRule) (cost uint64, told bool) {
	r := &s.plugin.request
	switch {
	case rule.usage != nil:
	case rule.onResponse.responseHeader != "":
		return r.responseCost(rule.onResponse.responseHeader)
	case !rule.says:
		value, there := r.read(&r.properties[rule.onResponse.property]) // which may be another one by now
		return r.number(value, there, usage.Most)
	default:
		for i := range s.said {
			if said := &s.said[i]; said.rule == rule {
				return said.cost, said.ok
			}
		}
		return 0, false
	}
	for _, name := range rule.usage.Headers {
		if value, ok := proxywasm.ResponseHeader(name); ok {
			hits, ok := r.number(value, true, usage.Most-cost)
			if !ok {
				return 0, false
			}
			cost, told = cost+hits, true
		}
	}
	return cost, told
}

// responseFormat is the form of the response's body, as far as it can be read as it is.
func responseFormat() usage.Format {
	if encoding, ok := proxywasm.ResponseHeader("content-encoding"); ok && string(encoding) != "identity" {
		return usage.Unreadable
	}
	mediaType, _ := proxywasm.ResponseHeader("content-type")
	return usage.FormatOf(mediaType)
}

// readBody reads a piece of a response's body.
//
//go:noinline
func (s *stream) readBody(size int, end bool) {
	p, drops, most := s.plugin, s.course.cut, bodyPiece
	if s.course.cuts {
		most = cutPiece
	}
	for start := 0; start < size && s.at != 0; {
		piece, ok := proxywasm.ResponseBody(start, min(most, size-start))
		if !ok || len(piece) == 0 {
			break
		}
		for i := range s.charges {
			if r := s.charges[i].reader; r != nil {
				r.Feed(piece)
			}
		}
		if start += len(piece); s.course.cuts && !s.course.cut && !end {
			s.mayCut(start)
		}
	}
	switch {
	case drops:
		proxywasm.ReplaceResponseBody(size, nil)
	case s.course.cut:
		proxywasm.ReplaceResponseBody(size, p.piece)
		if cap(p.piece) > bodyPiece {
			p.piece = nil
		}
	}
	if end {
		s.end()
	}
}

// mayCut ends what the client gets of a stream, behind the last whole event of what was read of the
// body's piece, if that has cost more than was reserved, and more than is left. The upstream goes on, as
// a plugin can't end a response: what it still sends is read for what it tells, and dropped.
func (s *stream) mayCut(read int) {
	p := s.plugin
	for i := range s.charges {
		c := &s.charges[i]
		if !c.rule.cuts || c.reader == nil {
			continue
		}
		if cost, found := c.soFar(); !c.spent && found && (!c.rule.reserves || cost > c.taken) {
			now := p.now()
			s.finish(c, cost, now)
			c.spent = p.node.Spent(&c.Charge, now)
		}
		if rest := c.reader.Rest(); c.spent && rest <= read {
			p.piece = c.reader.AppendEnding(appendBody(p.piece[:0], read-rest), c.rule.usage.Ending)
			s.course.cut = true
			p.request.cutStreams++
			return
		}
	}
}

// appendBody appends the first bytes of the piece of a body that has come.
func appendBody(dst []byte, size int) []byte {
	for start := 0; start < size; {
		piece, ok := proxywasm.ResponseBody(start, min(bodyPiece, size-start))
		if !ok || len(piece) == 0 {
			break
		}
		dst = append(dst, piece...)
		start += len(piece)
	}
	return dst
}

// end settles a response that has come to its end.
func (s *stream) end() {
	s.course.ended = true
	s.settle()
}

// settle has every rule take what the stream has turned out to cost, and no more than that. A
// response that has come to its end tells. What was seen of another one is the least that it may have
// cost. A request that fails costs nothing, unless the rule says so; one whose client has gone before
// there was an answer may cost its upstream as much as others.
//
//go:noinline
func (s *stream) settle() {
	p := s.plugin
	now := p.now()
	for i := len(s.charges) - 1; i >= 0; i-- {
		c := &s.charges[i]
		cost, found := uint64(0), false
		switch {
		case c.reader == nil:
		case s.course.ended:
			cost, found = c.reader.Cost()
		default:
			cost, found = c.soFar()
		}
		switch {
		case found && (s.course.ended || !c.rule.reserves || cost > c.taken):
			s.finish(c, cost, now)
		case found:
			s.finish(c, c.taken, now)
		case s.course.failed && c.rule.reserves && !c.rule.keeps:
			s.finish(c, 0, now)
		case s.course.ended && !s.course.failed:
			p.request.unreadCosts++
		}
		s.drop(i)
	}
	if s.at != 0 {
		last := len(p.open) - 1
		p.open[s.at-1] = p.open[last]
		p.open[s.at-1].at = s.at
		p.open[last], p.open, s.at = nil, p.open[:last], 0
	}
	p.node.PushCharges()
}

// finish has a charge cost what the response has told.
func (s *stream) finish(c *charge, cost uint64, now int64) {
	if !c.rule.reserves {
		cost += c.taken
	}
	if cost = min(cost, usage.Most); c.measure != nil {
		c.due, c.told = cost, true
		return
	}
	s.plugin.revise(c, cost, now)
}

// revise has a charge cost what the response has told, in the place of what was taken.
func (p *plugin) revise(c *charge, cost uint64, now int64) {
	if cost > c.Cost {
		tellCharged(&p.vm.observed, c.Rule.Index, cost-c.Cost)
	}
	p.node.Revise(&c.Charge, cost, now)
}

// settleOpen has the streams that are under way take what they have told so far, if that is more
// than they have taken.
//
//go:noinline
func (p *plugin) settleOpen() {
	now := p.now()
	for range min(len(p.open), settledPerTick) {
		p.nextOpen++
		if p.nextOpen >= len(p.open) {
			p.nextOpen = 0
		}
		s := p.open[p.nextOpen]
		for i := range s.charges {
			c := &s.charges[i]
			if c.reader == nil {
				continue
			}
			if cost, found := c.soFar(); found && (!c.rule.reserves || cost > c.taken) {
				s.finish(c, cost, now)
			}
		}
	}
}

func (p *plugin) reader() *usage.Reader {
	n := len(p.readers)
	if n == 0 {
		return new(usage.Reader)
	}
	r := p.readers[n-1]
	p.readers = p.readers[:n-1]
	return r
}

func (p *plugin) putReader(r *usage.Reader) {
	if len(p.readers) < maxIdleReaders {
		p.readers = append(p.readers, r)
	}
}
