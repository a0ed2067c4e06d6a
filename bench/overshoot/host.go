package main

import (
	"fmt"

	"weir/internal/proxywasm"
)

// world is the host of all VMs, each of which calls it during its own callbacks only.
var _ proxywasm.Host = (*world)(nil)

// Log implements proxywasm.Host. Whatever is worse than information makes the simulation fail.
func (w *world) Log(level proxywasm.LogLevel, message string) {
	if level > proxywasm.LogWarn && w.err == nil {
		w.err = fmt.Errorf("the plugin says: %s", message)
	}
}

// Now implements proxywasm.Host.
func (w *world) Now() int64 { return w.now + w.vm.node.off }

// SetTickPeriod implements proxywasm.Host.
func (w *world) SetTickPeriod(milliseconds uint32) {
	w.vm.period = int64(milliseconds) * millisecond
	w.schedule(w.vm, w.vm.period)
}

// PluginConfiguration implements proxywasm.Host.
func (w *world) PluginConfiguration() ([]byte, bool) { return w.configuration, true }

var (
	get        = []byte("GET")
	root       = []byte("/")
	somebody   = []byte("10.0.0.1:1234")
	wireType   = []byte("application/x-weir")
	textType   = []byte("text/plain")
	timeoutTag = []byte("upstream request timeout")
)

// RequestHeader implements proxywasm.Host.
func (w *world) RequestHeader(name string) ([]byte, bool) {
	switch name {
	case "x-user":
		return w.vm.current.key, true
	case ":method":
		return get, true
	case ":path":
		return root, true
	}
	return nil, false
}

// ResponseHeader implements proxywasm.Host.
func (w *world) ResponseHeader(string) ([]byte, bool) { return nil, false }

// ReplaceResponseHeader implements proxywasm.Host.
func (w *world) ReplaceResponseHeader(string, []byte) {}

// SendLocalResponse implements proxywasm.Host.
func (w *world) SendLocalResponse(*proxywasm.LocalResponse) bool { return w.decide(rejected) }

// ResumeRequest implements proxywasm.Host.
func (w *world) ResumeRequest() { w.decide(resumed) }

// decide ends the wait of the current stream, which takes effect when the callback is over; or tells what becomes of the one
// whose request is being decided. A stream is decided once.
func (w *world) decide(state streamState) bool {
	s := w.vm.current
	if s == nil || s.state != deciding && s.state != waiting {
		return false
	}
	if s.state == waiting {
		w.finished = append(w.finished, s)
	}
	s.state = state
	return true
}

// SetContext implements proxywasm.Host.
func (w *world) SetContext(id uint32) {
	w.vm.current = w.vm.waiting[id]
	if w.vm.current == nil && id != rootContext && w.err == nil {
		w.err = fmt.Errorf("the plugin named stream %d, which does not wait", id)
	}
}

// Property implements proxywasm.Host.
func (w *world) Property(path string) ([]byte, bool) { return somebody, path == "source\x00address" }

// GetSharedData implements proxywasm.Host.
func (w *world) GetSharedData(key []byte) (data []byte, cas uint32, found bool) {
	value := w.vm.node.shared[string(key)]
	if value == nil {
		return nil, 0, false
	}
	return value.data, value.cas, true
}

// SetSharedData implements proxywasm.Host as Envoy does: 0 always writes, and a missing key is created whatever the number.
func (w *world) SetSharedData(key, data []byte, cas uint32) bool {
	n := w.vm.node
	value := n.shared[string(key)]
	if value == nil {
		value = &sharedValue{cas: cas}
		n.shared[string(key)] = value
	}
	if cas != 0 && value.cas != cas {
		return false
	}
	n.writes++
	value.data, value.cas = append(value.data[:0], data...), n.writes
	return true
}

// Dispatch implements proxywasm.Host.
func (w *world) Dispatch(c *proxywasm.Callout) bool {
	var out *callout
	if last := len(w.callouts) - 1; last >= 0 {
		out, w.callouts = w.callouts[last], w.callouts[:last]
	} else {
		out = &callout{}
	}
	*out = callout{vm: w.vm, body: append(out.body[:0], c.Body...), done: c.Done, answer: out.answer, status: "200"}
	w.sent++
	w.network.carry(&w.clock, w.random, int64(c.TimeoutMillis)*millisecond,
		func() { out.answer, _ = w.backend.apply(out.body, out.answer[:0]) },
		func(ok bool) { w.deliver(out, ok) })
	return true
}

// CalloutHeader implements proxywasm.Host.
func (w *world) CalloutHeader(name string) ([]byte, bool) {
	c := w.vm.answer
	switch {
	case c == nil:
		return nil, false
	case name == ":status":
		return []byte(c.status), true
	case name == "content-type" && c.status == "200":
		return wireType, true
	case name == "content-type":
		return textType, true
	}
	return nil, false
}

// CalloutBody implements proxywasm.Host.
func (w *world) CalloutBody(limit int) ([]byte, bool) {
	c := w.vm.answer
	switch {
	case c == nil:
		return nil, false
	case c.status != "200":
		return timeoutTag, true
	}
	return c.answer[:min(limit, len(c.answer))], true
}

// DefineMetric implements proxywasm.Host. Metrics are those of all nodes together.
func (w *world) DefineMetric(name string, _ bool) proxywasm.Metric {
	if _, ok := w.metrics[name]; !ok {
		w.metrics[name] = proxywasm.Metric(len(w.counts))
		w.counts = append(w.counts, 0)
	}
	return w.metrics[name]
}

// AddMetric implements proxywasm.Host.
func (w *world) AddMetric(m proxywasm.Metric, n uint64) { w.counts[m] += n }

// SetMetric implements proxywasm.Host.
func (w *world) SetMetric(m proxywasm.Metric, n uint64) { w.counts[m] = n }

// PluginDone implements proxywasm.Host. A plugin must not go while requests wait for it.
func (w *world) PluginDone() {
	if w.vm.dead = w.vm.leaving; w.vm.dead && len(w.vm.waiting) > len(w.finished) && w.err == nil {
		w.err = fmt.Errorf("the plugin is done though %d requests wait", len(w.vm.waiting))
	}
}
