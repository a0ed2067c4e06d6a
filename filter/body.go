package filter

import (
	"encoding/binary"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/internal/counter"
	"weir/internal/node"
	"weir/internal/proxywasm"
	"weir/internal/usage"
)

// What a request costs may stand in its body. Then the request is decided when the body has told, or
// can't: its headers are paused, and its body comes to the stream's callbacks. That is so only of an
// Envoy with allow_on_headers_stop_iteration, which no plugin can see; another one keeps the body until
// the headers go on. So a plugin waits until it knows which of them it has.

const (
	// maxRequestBody is how much of a body is looked at. It is the buffer that Envoy's guide has at
	// its edge (per_connection_buffer_limit_bytes): of a request that is paused, no more might come.
	maxRequestBody = 32 << 10
	// bodyWait is how long a request waits for its body, in nanoseconds.
	bodyWait = int64(5e9)
	// keptAfter is how old a request is at least, in nanoseconds, whose body has come to the proxy and
	// not here, if the proxy keeps bodies: another filter may hold one back for a moment.
	keptAfter = int64(2e8)
)

// bringing says whether the proxy brings the bodies of requests whose headers are paused.
type bringing uint8

const (
	unknown bringing = iota
	brings
	keeps
)

// awaitBody has a request wait until its body has come, if a rule wants to know what that says: then the
// stream has what the body tells. A body that can't be read is returned as one that has told nothing.
//
//go:noinline
func (s *stream) awaitBody(demands, shadows []node.Demand) (unread *told) {
	p := s.plugin
	b := p.getTold()
	b.add(p.rules, demands)
	b.add(p.rules, shadows)
	if len(b.numbers) == 0 {
		p.putTold(b)
		return nil
	}
	if p.bringing == keeps || !bodyComes() {
		return b
	}
	b.missing, b.until = len(b.numbers), proxywasm.Now()+bodyWait
	if p.bringing == unknown {
		b.headers, b.sized = requestSize()
	}
	b.at, s.told = len(p.waiting), b
	p.waiting = append(p.waiting, s)
	return nil
}

func (p *plugin) getTold() *told {
	n := len(p.idleTold)
	if n == 0 {
		return new(told)
	}
	b := p.idleTold[n-1]
	p.idleTold = p.idleTold[:n-1]
	return b
}

func (p *plugin) putTold(b *told) {
	*b = told{numbers: b.numbers[:0]}
	if len(p.idleTold) < maxIdleReaders {
		p.idleTold = append(p.idleTold, b)
	}
}

func (b *told) add(rules []requestRule, demands []node.Demand) {
	for i := range demands {
		path := rules[demands[i].Rule.Index].cost.path
		if path == nil {
			continue
		}
		if len(b.numbers) == cap(b.numbers) {
			b.numbers = append(b.numbers, bodyNumber{})
		} else {
			b.numbers = b.numbers[:len(b.numbers)+1] // with the memory that its reader has
		}
		n := &b.numbers[len(b.numbers)-1]
		n.path, n.broken = path, false
		n.reader.ResetAll(path)
	}
}

// bodyComes reports whether the current request's body can be read, and comes without an answer
// before. Its type does not matter but for the charset: what is no JSON is known for that when it is read.
func bodyComes() bool {
	if mediaType, ok := proxywasm.RequestHeader("content-type"); ok && !usage.IsUTF8(mediaType) {
		return false
	}
	if encoding, ok := proxywasm.RequestHeader("content-encoding"); ok && string(encoding) != "identity" {
		return false
	}
	if _, upgrades := proxywasm.RequestHeader("upgrade"); upgrades {
		return false
	}
	_, expects := proxywasm.RequestHeader("expect") // which a proxy that answers it has removed
	return !expects && !isGRPC()
}

// requestSize is the size of the current request's headers, and of what the proxy has of its body.
func requestSize() (bytes uint64, ok bool) {
	value, ok := proxywasm.Property("request\x00total_size")
	if !ok || len(value) != 8 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(value), true
}

// readRequest reads a piece of the body of a request that waits for it.
//
//go:noinline
func (s *stream) readRequest(size int, end bool) types.Action {
	b := s.told
	s.plugin.bringing = brings
	start := 0
	for most := min(size, maxRequestBody-b.size); start < most && b.missing > 0; {
		piece, ok := proxywasm.RequestBody(start, min(bodyPiece, most-start))
		if !ok || len(piece) == 0 {
			break
		}
		b.feed(piece)
		start += len(piece)
	}
	b.size += start
	read := start == size
	if b.whole = read && end; read && !end && b.missing > 0 && b.size < maxRequestBody {
		return types.ActionPause
	}
	return s.decideByBody(s.takeTold())
}

// decideByBody decides a request that has waited for its body, by what has come of it.
//
//go:noinline
func (s *stream) decideByBody(b *told) types.Action {
	p := s.plugin
	p.request.begin()
	p.request.told = b
	bad, absent := p.request.badCosts, p.request.absentCosts // were counted when the headers came
	demands, shadows := p.findDemands()
	p.request.told, p.request.badCosts, p.request.absentCosts = nil, bad, absent
	if b.unread {
		p.request.unreadBodies++
	}
	p.putTold(b)
	for i := range demands {
		if r := &p.rules[demands[i].Rule.Index]; r.cost.path != nil && demands[i].Cost == refusedCost {
			return s.refuseUnread(demands, i)
		}
	}
	return s.decide(demands, shadows)
}

// refuseUnread answers a request whose body can't be read, as one of its rules wants that. It takes
// nothing of any rule.
func (s *stream) refuseUnread(demands []node.Demand, refusing int) types.Action {
	p := s.plugin
	now := p.now()
	for i := range demands {
		d := &demands[i]
		p.node.Look(d, now)
		d.Cost, d.Verdict, d.Warned = 0, counter.Allowed, 0
		p.metrics.rules[d.Rule.Index].rejected.count++
	}
	if !p.answer.refuseUnread(demands, refusing, now, &s.headers) {
		return types.ActionContinue // see conclude
	}
	s.answered = true
	return types.ActionPause
}

// takeTold ends the stream's wait for its body.
func (s *stream) takeTold() *told {
	p, b := s.plugin, s.told
	last := len(p.waiting) - 1
	p.waiting[b.at] = p.waiting[last]
	p.waiting[b.at].told.at = b.at
	p.waiting[last], p.waiting, s.told = nil, p.waiting[:last], nil
	return b
}

// decideWaiting decides the requests that have waited too long for their bodies, and all of them if
// the proxy keeps bodies, which is found once for a configuration.
//
//go:noinline
func (p *plugin) decideWaiting(all bool) {
	now := proxywasm.Now()
	for i := len(p.waiting) - 1; i >= 0 && p.bringing == unknown; i-- {
		if p.waiting[i].isKept(now) {
			p.bringing = keeps
		}
	}
	all = all || p.bringing == keeps
	for i := len(p.waiting) - 1; i >= 0; i-- {
		s := p.waiting[i]
		// A clock may have been set back.
		if left := s.told.until - now; !all && 0 < left && left <= bodyWait {
			continue
		}
		proxywasm.SetContext(s.id)
		if s.decideByBody(s.takeTold()) == types.ActionContinue {
			proxywasm.ResumeRequest()
		}
	}
	proxywasm.SetContext(p.id)
}

// isKept reports whether the proxy has something of a request's body, and keeps it.
func (s *stream) isKept(now int64) bool {
	b := s.told
	if !b.sized {
		return now >= b.until
	}
	if now < b.until-bodyWait+keptAfter {
		return false
	}
	proxywasm.SetContext(s.id)
	size, ok := requestSize()
	return !ok || size > b.headers
}
