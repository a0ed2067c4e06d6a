package host

import (
	"log/slog"
	"sync"
	"time"
)

// worker is one thread of Envoy: a goroutine with a VM that no other goroutine touches.
type worker struct {
	proxy *Proxy
	index int
	inbox inbox
	done  chan struct{}

	// All fields below belong to the worker's goroutine.
	vm       *VM
	root     *Root // of the newest configuration
	plugin   Plugin
	timers   map[*Root]*time.Timer
	reloaded int64 // when the VM was last replaced, in ns
	frozen   bool  // Configure is under way, so the VM is not replaced
}

// newWorker starts a worker once its VM runs.
func (p *Proxy) newWorker(index int) (*worker, error) {
	w := &worker{
		proxy:  p,
		index:  index,
		inbox:  inbox{wake: make(chan struct{}, 1)},
		done:   make(chan struct{}),
		plugin: p.config.Plugin,
		timers: map[*Root]*time.Timer{},
	}
	if err := w.start(); err != nil {
		return nil, err
	}
	go w.run()
	return w, nil
}

// start makes the VM and its root context.
func (w *worker) start() error {
	c := &w.proxy.config
	vm, err := w.proxy.process.NewVM(w.proxy.ctx, c.Module, VMConfig{
		ID:           c.VMID,
		Logger:       c.Logger.With(slog.Int("worker", w.index)),
		OnCallout:    func(call Callout) { w.proxy.callout(w, call) },
		OnTickPeriod: w.setTimer,
	})
	if err != nil {
		return err
	}
	root, err := vm.NewRoot(w.plugin)
	if err != nil {
		w.report(vm.Kill())
		return err
	}
	w.vm, w.root = vm, root
	return nil
}

// reload replaces a failed VM, if the policy says so and the last replacement is long enough ago.
func (w *worker) reload() {
	now := w.proxy.process.clock()
	if w.vm.Err() == nil || w.frozen || w.proxy.config.FailurePolicy != FailReload ||
		w.reloaded != 0 && now-w.reloaded < int64(reloadInterval) {
		return
	}
	w.reloaded = now
	w.stopTimers()
	old := w.vm
	if err := w.start(); err != nil {
		w.report(err)
		return
	}
	w.report(old.Kill())
}

// report logs an error that no caller gets. A failed VM has logged its own.
func (w *worker) report(err error) {
	if err != nil {
		w.proxy.config.Logger.Warn("worker", slog.Int("worker", w.index), slog.Any("error", err))
	}
}

// setTimer sets a root context's tick timer; 0 stops it. As in Envoy, the next period begins when a
// tick is over.
func (w *worker) setTimer(root *Root, period time.Duration) {
	if w.proxy.config.ManualTicks {
		return
	}
	if t := w.timers[root]; t != nil {
		t.Stop()
		delete(w.timers, root)
	}
	if period <= 0 {
		return
	}
	var t *time.Timer
	tick := func() {
		if w.timers[root] != t {
			return // stopped, or set again, after it fired
		}
		if err := root.vm.Tick(root); err != nil {
			delete(w.timers, root)
			return
		}
		if w.timers[root] == t {
			t.Reset(period)
		}
	}
	t = time.AfterFunc(period, func() { w.post(tick) })
	w.timers[root] = t
}

func (w *worker) stopTimers() {
	for root, t := range w.timers {
		t.Stop()
		delete(w.timers, root)
	}
}

func (w *worker) run() {
	defer close(w.done)
	for {
		fs, open := w.inbox.take()
		for _, f := range fs {
			f()
		}
		if !open {
			return
		}
	}
}

// post has the worker run f later. After close it does nothing.
func (w *worker) post(f func()) { w.inbox.put(f) }

// do has the worker run f, and waits for it. It reports whether the worker was still there.
func (w *worker) do(f func()) bool {
	done := make(chan struct{})
	if !w.inbox.put(func() { f(); close(done) }) {
		return false
	}
	<-done
	return true
}

func (w *worker) close() error {
	var err error
	w.do(func() {
		w.stopTimers()
		err = w.vm.Close()
	})
	w.inbox.close()
	<-w.done
	return err
}

// inbox is a queue without a bound, because workers post to each other, and must not wait for each
// other.
type inbox struct {
	mu     sync.Mutex
	queue  []func()
	spare  []func()
	closed bool
	wake   chan struct{}
}

func (b *inbox) put(f func()) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.queue = append(b.queue, f)
	b.mu.Unlock()
	b.signal()
	return true
}

func (b *inbox) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.signal()
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take waits for functions. The next call reuses the slice. open is false when no more will come.
func (b *inbox) take() (fs []func(), open bool) {
	for {
		b.mu.Lock()
		if len(b.queue) > 0 || b.closed {
			fs, open = b.queue, !b.closed
			clear(b.spare)
			b.queue, b.spare = b.spare[:0], fs
			b.mu.Unlock()
			return fs, open
		}
		b.mu.Unlock()
		<-b.wake
	}
}
