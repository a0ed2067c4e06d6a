package filter

import (
	"encoding/binary"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/proxywasm"
	"weir/internal/usage"
)

const (
	// cutPiece is how many bytes of a stream that may be cut are read at once: the cut lies in such
	// a piece.
	cutPiece = 1 << 10
	// settledPerTick bounds the responses that are checked in a tick.
	settledPerTick = 256
)

// responses are the responses of a plugin context that tell their cost.
type responses struct {
	rules   *rules
	decider *decider
	// open are the responses whose bodies are being read.
	open     []*charges
	nextOpen int
	// piece replaces a piece of a body.
	piece   []byte
	readers []*usage.Reader  // to be used again
	unasked []*usage.Unasked // the same
	// holders are the requests that hold places.
	holders holders
}

// settleOpen charges responses under way for their cost so far, if that is above the hits taken.
func (r *responses) settleOpen() {
	if len(r.open) == 0 {
		return
	}
	now := r.decider.now()
	for range min(len(r.open), settledPerTick) {
		r.nextOpen++
		if r.nextOpen >= len(r.open) {
			r.nextOpen = 0
		}
		list := r.open[r.nextOpen].list
		for i := range list {
			c := &list[i]
			if cost, exceeds := c.exceeds(); exceeds {
				c.finish(r.decider, cost, now)
			}
		}
	}
}

func (r *responses) renewPlaces() {
	if r.holders.first != nil && r.holders.renewPlaces(r.decider.now()) {
		r.decider.node.PushCharges()
	}
}

// charges are the charges of a request, until its response tells the cost.
type charges struct {
	responses *responses
	list      []charge
	// hints are what the request says about its cost, read while the request is there.
	hints   []hint
	names   []byte // of their models
	course  course
	holding holding
	at      int32 // 1 + the index in responses.open
}

// hint has what a request says about its cost by a rule.
type hint struct {
	_ [0]func() // keeps Go from generating an equality function

	rule *rule
	// cost is the cost itself, if the request tells it.
	cost uint64
	ok   bool
	// ending is how the request's provider ends its event streams.
	ending usage.Ending
	// rates are the prices of the tokens, of list's entry for the model that the request names. If it
	// names none of the list, model is empty, and list has the prices of the model that the answer
	// names. tier is how the list names the request's.
	rates       *usage.Rates
	list        *usage.PriceList
	model, tier string
	// named is the request's name for its model, in charges.names, if the list has tiers.
	named []byte
}

// forget drops a request: a cost that its response has not told by now stays unknown.
func (c *charges) forget() {
	if len(c.list) > 0 || c.at != 0 || c.holding.holders != nil {
		c.settle()
	}
	c.hints, c.names, c.course = c.hints[:0], c.names[:0], course{}
}

// noteTaken records what allowed checks have taken.
func (c *charges) noteTaken(checks []engine.Check, now int64) {
	for i := range checks {
		if d := &checks[i]; c.responses.rules.of(d).charges && !d.Rule.Spare && !d.Marked() {
			c.addCharge(checks, i, now, nil)
		}
	}
}

// addCharge records what check i has taken, or will take if a shadow rule is undecided.
func (c *charges) addCharge(checks []engine.Check, i int, now int64, undecided *measure) {
	d := &checks[i]
	rule := c.responses.rules.of(d)
	added := charge{rule: rule, taken: d.Cost, measure: undecided, since: now}
	if undecided == nil {
		added.take(c.responses.decider, checks, i, now)
	}
	c.list = append(c.list, added)
	if rule.config.Hold != 0 && d.Cost != 0 && (undecided != nil || added.Cost != 0) {
		if c.holding.holders == nil {
			c.holding.since = proxywasm.Now()
		}
		c.responses.holders.places += added.Cost
		c.holding.holder = c
		c.responses.holders.add(&c.holding, now)
	}
}

// renewPlaces implements holder.
func (c *charges) renewPlaces(now int64) (lost uint64) {
	e := c.responses.decider
	for i := len(c.list) - 1; i >= 0; i-- {
		charge := &c.list[i]
		switch {
		case charge.rule.config.Hold == 0 || charge.measure != nil:
		case now-charge.since < int64(charge.rule.config.Hold):
			e.node.Charges.Renew(&charge.Charge, now)
		default:
			lost += charge.Cost
			charge.release(c.responses.decider, &c.responses.holders, now)
			c.dropCharge(i)
		}
	}
	c.stopHolding()
	return lost
}

// stopHolding has a request be no holder any more that holds nothing, and will hold nothing: its places
// were lost, or the shadow rules that might have held some have refused it.
func (c *charges) stopHolding() {
	for i := range c.list {
		if c.list[i].rule.config.Hold != 0 {
			return
		}
	}
	c.responses.holders.remove(&c.holding)
}

// eachCharge implements holder.
func (c *charges) eachCharge(visit func(c *engine.Charge, since int64) (more bool)) (more bool) {
	for i := range c.list {
		charge := &c.list[i]
		if charge.rule.config.Hold != 0 && charge.measure == nil && !visit(&charge.Charge, charge.since) {
			return false
		}
	}
	return true
}

// noteHints reads what the current request says about the cost of its response.
func (c *charges) noteHints(checks []engine.Check) {
	rules := c.responses.rules
	for i := range checks {
		rule := rules.of(&checks[i])
		if !rule.needsHints || checks[i].Rule.Spare {
			continue
		}
		hint := hint{rule: rule}
		if rule.hinted {
			hint.cost, hint.ok = rules.request.selectedCost(&rule.onResponse, usage.Most)
		} else if rule.config.Usage.Auto {
			hint.ending = endingOf(providerOf())
		}
		if p := rule.prices; p != nil {
			if at := len(c.names); len(p.named) > 0 {
				c.names = append(c.names, p.named...)
				hint.named = c.names[at:]
			}
			if hint.rates, hint.list, hint.tier = p.rates, p.list, p.tier; p.unknown {
				rules.request.unknownModels++
			} else if p.sure {
				hint.model = p.model
			}
		}
		c.hints = append(c.hints, hint)
	}
}

// hintFor returns what the request says for a rule, or an empty value.
func (c *charges) hintFor(rule *rule) *hint {
	for i := range c.hints {
		if c.hints[i].rule == rule {
			return &c.hints[i]
		}
	}
	return &noHint
}

var noHint hint

func (c *charges) dropCharge(i int) {
	dropped := &c.list[i]
	if dropped.reader != nil {
		keepIdle(&c.responses.readers, dropped.reader, maxIdleReaders)
	}
	if dropped.measure != nil && dropped.known {
		dropped.measure.owe(owed{Charge: dropped.Charge, rule: dropped.rule, due: dropped.due})
	}
	last := len(c.list) - 1
	copy(c.list[i:], c.list[i+1:])
	c.list[last] = charge{}
	c.list = c.list[:last]
}

// openResponse processes a response's headers: costs that they tell, and whether the body can be
// read.
func (c *charges) openResponse(end bool) {
	r := c.responses
	status := statusOf(proxywasm.ResponseHeader(":status"))
	c.course.failed = status >= 400
	format, known := usage.Unreadable, end
	now := r.decider.now()
	for i := 0; i < len(c.list); i++ {
		charge := &c.list[i]
		if charge.rule.config.Hold != 0 {
			continue
		}
		if c.chargeByHeaders(charge, status, now) {
			c.dropCharge(i)
			i--
			continue
		}
		if c.course.failed && !c.course.begun && charge.rule.config.Reserve {
			c.course.begun = mayHaveBegun()
		}
		if !known {
			format, known = responseFormat(), true
		}
		if charge.rule.config.Usage != nil && format != usage.Unreadable {
			if charge.ending = charge.rule.config.Usage.Ending; charge.rule.config.Usage.Auto {
				charge.ending = c.hintFor(charge.rule).ending
			}
			if charge.rule.cuts() && charge.ending != usage.NoEnding && format == usage.Events {
				_, sized := proxywasm.ResponseHeader("content-length")
				c.course.cuts = !sized
			}
			reader, ok := takeIdle(&r.readers)
			if !ok {
				reader = new(usage.Reader)
			}
			charge.reader = reader
			hint := c.hintFor(charge.rule)
			if charge.reader.Reset(charge.rule.config.Usage.Fields, format, hint.rates); hint.list != nil {
				charge.reader.Ask(hint.list, hint.model, hint.tier, hint.named)
			}
			if charge.rule.config.Cut {
				charge.reader.CountEvents()
			}
		}
	}
	switch {
	case len(c.list) == 0:
		r.decider.node.PushCharges()
	case end:
		c.endResponse()
	case format != usage.Unreadable && c.at == 0:
		r.open = append(r.open, c)
		c.at = int32(len(r.open))
	}
}

// chargeByHeaders charges by a response's headers, and reports whether they suffice.
func (c *charges) chargeByHeaders(charge *charge, status int, now int64) bool {
	if status != 0 && !charge.rule.config.ChargeWhen.Has(status) {
		charge.costs(c.responses.decider, 0, now)
		return true
	}
	cost, known := c.costOf(charge.rule)
	if known {
		charge.finish(c.responses.decider, cost, now)
	}
	return known
}

// mayHaveBegun reports whether an upstream may have begun to answer the current request, though the
// response is the proxy's own: it has timed out, or the upstream was reset. A proxy that tries several
// times tells only of the last.
func mayHaveBegun() bool {
	details, ok := proxywasm.Property("response\x00code_details")
	if !ok || string(details) == "via_upstream" {
		return false
	}
	if address, ok := proxywasm.Property("upstream\x00local_address"); ok && len(address) > 0 {
		return true // it was connected
	}
	attempts, ok := proxywasm.Property("upstream\x00request_attempt_count")
	return ok && len(attempts) == 8 && binary.LittleEndian.Uint64(attempts) > 1
}

// costOf returns a rule's cost of the response if its headers or the request tell it.
func (c *charges) costOf(rule *rule) (cost uint64, known bool) {
	r := &c.responses.rules.request
	switch {
	case rule.config.Usage != nil:
	case rule.onResponse.responseHeader != "":
		return r.responseCost(rule.onResponse.responseHeader)
	case !rule.onResponse.selected:
		return 0, true // nothing is added to the hits taken
	case !rule.hinted: // its value may have changed by now
		p := &r.properties[rule.onResponse.property]
		value, there := r.readProperty(&r.properties[p.of])
		if there {
			value, there = p.part.of(value, &r.scratch)
		}
		return r.readNumber(value, there, usage.Most)
	default:
		hint := c.hintFor(rule)
		return hint.cost, hint.ok
	}
	var tokens usage.Tokens
	for i := range rule.config.Usage.Headers {
		header := &rule.config.Usage.Headers[i]
		if value, ok := proxywasm.ResponseHeader(header.Name); ok {
			hits, ok := r.readNumber(value, true, usage.Most)
			if !ok {
				return 0, false
			}
			tokens[header.Kind] += hits
			known = true
		}
	}
	if !known {
		return 0, false
	}
	hint := c.hintFor(rule)
	if cost, known = hint.list.CostOf(&tokens, hint.rates, hint.model); !known {
		r.badCosts++
	}
	return cost, known
}

// responseFormat returns the format of the response's body; compressed bodies are unreadable.
func responseFormat() usage.Format {
	if encoding, ok := proxywasm.ResponseHeader("content-encoding"); ok && string(encoding) != "identity" {
		return usage.Unreadable
	}
	mediaType, _ := proxywasm.ResponseHeader("content-type")
	return usage.FormatOf(mediaType)
}

// readBody reads a piece of a response's body, and returns the size that it has then: it may be cut.
func (c *charges) readBody(size int, end bool) (left int) {
	r, drops, most := c.responses, c.course.cut, bodyPiece
	if c.course.cuts {
		most = cutPiece
	}
	for start := 0; start < size && c.at != 0; {
		piece, ok := proxywasm.ResponseBody(start, min(most, size-start))
		if !ok || len(piece) == 0 {
			break
		}
		if start+len(piece) < size && !c.course.cuts {
			piece = usage.WholeEvents(piece) // the rest comes again, with the end of its event
		}
		for i := range c.list {
			if reader := c.list[i].reader; reader != nil {
				reader.Feed(piece)
			}
		}
		if start += len(piece); c.course.cuts && !c.course.cut && !end {
			c.cutIfSpent(start)
		}
	}
	left = size
	switch {
	case drops:
		left = 0
		proxywasm.ReplaceResponseBody(size, nil)
	case c.course.cut:
		left = len(r.piece)
		proxywasm.ReplaceResponseBody(size, r.piece)
		if cap(r.piece) > bodyPiece {
			r.piece = nil
		}
	}
	if end {
		c.endResponse()
	}
	return left
}

// cutIfSpent ends a stream for the client after the last whole event read so far, if it has cost
// more than was reserved and more than is left. A plugin can't end a response, so the upstream goes
// on: the rest is read for its cost, and dropped.
func (c *charges) cutIfSpent(read int) {
	r := c.responses
	for i := range c.list {
		charge := &c.list[i]
		if !charge.rule.cuts() || charge.measure != nil || charge.reader == nil || charge.ending == usage.NoEnding {
			continue // also if a shadow rule was moved before it has decided
		}
		if cost, exceeds := charge.exceeds(); exceeds && !charge.spent {
			now := r.decider.now()
			charge.finish(r.decider, cost, now)
			charge.spent = r.decider.node.Charges.Spent(&charge.Charge, now)
		}
		if rest := charge.reader.Rest(); charge.spent && rest <= read {
			r.piece = appendBody(r.piece[:0], read-rest, proxywasm.ResponseBody)
			if charge.rule.config.CutFails {
				r.piece = charge.reader.AppendError(r.piece, charge.ending)
			} else {
				r.piece = charge.reader.AppendEnding(r.piece, charge.ending)
			}
			c.course.cut = true
			r.rules.request.cutStreams++
			return
		}
	}
}

// appendBody appends the first bytes of the current piece of a body.
func appendBody(dst []byte, size int, read func(start, size int) ([]byte, bool)) []byte {
	for start := 0; start < size; {
		piece, ok := read(start, min(bodyPiece, size-start))
		if !ok || len(piece) == 0 {
			break
		}
		dst = append(dst, piece...)
		start += len(piece)
	}
	return dst
}

// endResponse charges for a complete response.
func (c *charges) endResponse() {
	c.course.ended = true
	c.settle()
}

// settle charges every rule for the stream's final cost. A complete response has told it. For any
// other the least cost of the part seen so far counts. A failed request costs nothing, unless the
// rule says otherwise. If the client left before an answer, the hits stay, since the upstream may
// have done the work.
func (c *charges) settle() {
	r := c.responses
	now := r.decider.now()
	r.holders.remove(&c.holding)
	for i := len(c.list) - 1; i >= 0; i-- {
		if c.list[i].settle(r.decider, &r.holders, c.course, now) {
			r.rules.request.unreadCosts++
		}
		c.dropCharge(i)
	}
	if c.at != 0 {
		removeAt(&r.open, int(c.at)-1).at = c.at
		c.at = 0
	}
	r.decider.node.PushCharges()
}

// measured implements debtor.
func (c *charges) measured(m *measure, checks []engine.Check, now int64, verdict counter.Verdict) {
	for i := range c.list {
		charge := &c.list[i]
		if charge.measure != m {
			continue
		}
		if charge.measure = nil; verdict == counter.Allowed {
			charge.take(c.responses.decider, checks, 0, now)
			if charge.rule.config.Hold != 0 {
				c.responses.holders.places += charge.Cost
			}
		} else {
			c.dropCharge(i)
			c.stopHolding()
		}
		return
	}
}
