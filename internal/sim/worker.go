package sim

import (
	"bytes"
	"errors"
	"fmt"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/link"
	"weir/internal/wire"
)

// worker is an engine with its host. It uses the engine like package filter does.
type worker struct {
	world   *World
	process *process
	node    *engine.Engine
	timer   timer
	leaving bool
	dead    bool // whether its process has ended
	rules   [1]engine.Rule
	demands [1]engine.Check
	waiting int        // requests
	idle    []*Request // for reuse
}

var (
	_ engine.Host  = (*worker)(nil)
	_ engine.Owner = (*worker)(nil)
)

// owner returns the node's owner; nil if it does not listen for overrides.
func (v *worker) owner() engine.Owner {
	if !v.world.Overrides {
		return nil
	}
	return v
}

// AppendKey implements engine.Owner. No key is overridden.
func (*worker) AppendKey(key []byte, _ int, _ [][]byte) ([]byte, bool) { return key, false }

// Move implements engine.Owner. No rule is moved.
func (*worker) Move(int, wire.Mode) {}

// Now implements engine.Host.
func (v *worker) Now() int64 { return v.world.Now + v.process.off }

// TickEvery implements engine.Host.
func (v *worker) TickEvery(millis uint32) {
	v.timer.period = int64(millis) * Millisecond
	v.timer.start(v.timer.period)
}

// Send implements engine.Host.
func (v *worker) Send(push []byte, ticket engine.Ticket) (sent bool) {
	w := v.world
	if wire.IsReport(push) {
		return true // a report on keys, which studies don't read
	}
	w.Sent++
	v.process.sent++
	body, answer := bytes.Clone(push), []byte(nil)
	apply := func() { answer = w.Backend.apply(body) }
	if ticket.Patience() > 0 {
		w.Network.hold(&w.Clock, w.random, apply, func() { v.answered(ticket, link.PushAnswered, answer) })
		return true
	}
	w.Network.Carry(&w.Clock, w.random, timeout, apply, func(ok bool) {
		if ok {
			v.answered(ticket, link.PushAnswered, answer)
		} else {
			v.answered(ticket, link.PushLost, nil)
		}
	})
	return true
}

func (v *worker) answered(ticket engine.Ticket, outcome link.Outcome, answer []byte) {
	if !v.dead {
		v.node.Answered(ticket, outcome, answer)
	}
}

// now returns the time of the backend's clock as the engine knows it.
func (v *worker) now() int64 { return v.node.Time(v.Now()) }

func (v *worker) tick() {
	v.node.Tick()
	if v.leaving {
		v.goOnLeaving()
	}
}

// leave lets the engine push its hits once no request waits. The worker ends after that.
func (v *worker) leave() {
	v.node.Retry(v.now())
	v.leaving = true
	v.goOnLeaving()
}

func (v *worker) goOnLeaving() {
	if v.node.Waits() {
		return
	}
	if v.node.Leave(); !v.node.Left() {
		return
	}
	if v.waiting > 0 {
		v.world.fail(fmt.Errorf("an engine has left though %d requests wait", v.waiting))
	}
	v.end()
}

func (v *worker) end() {
	v.dead = true
	v.timer.stop()
}

// Request is a request that may wait. The world reuses it after it has passed or was refused.
type Request struct {
	// Number is the caller's number, and Came the time of the request.
	Number int
	Came   int64

	worker *worker
	wait   engine.Wait
	waits  bool
}

func (v *worker) request(key []byte, number int) {
	var r *Request
	if last := len(v.idle) - 1; last >= 0 {
		r, v.idle = v.idle[last], v.idle[:last]
	} else {
		r = &Request{worker: v}
		r.wait.Request = r
	}
	r.Number, r.Came = number, v.world.Now
	if v.node.HasRetries() {
		v.node.Retry(v.now())
	}
	d := &v.demands[0]
	d.Rule, d.Key, d.Cost = &v.rules[0], key, 1
	verdict := v.node.Decide(v.demands[:], v.now(), &r.wait)
	if verdict == counter.Unsure {
		r.waits = true
		v.waiting++
		return
	}
	r.done(v.demands[:], v.now(), verdict)
}

// Decided implements engine.Request.
func (r *Request) Decided(demands []engine.Check, now int64, verdict counter.Verdict) {
	w := r.worker.world
	if !r.waits {
		w.fail(errors.New("a request was decided that does not wait"))
		return
	}
	r.waits = false
	r.worker.waiting--
	w.Waits.Requests++
	w.Waits.Longest = max(w.Waits.Longest, w.Now-r.Came)
	r.done(demands, now, verdict)
}

// done reports to the caller whether the request passed.
func (r *Request) done(demands []engine.Check, now int64, verdict counter.Verdict) {
	if w := r.worker.world; verdict == counter.Allowed {
		w.Passed(r)
	} else {
		at, ok := engine.RetryAt(demands, now)
		if !ok {
			at = 0
		}
		w.Refused(r, at)
	}
	r.worker.idle = append(r.worker.idle, r)
}
