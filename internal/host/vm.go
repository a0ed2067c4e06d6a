package host

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"
)

var (
	// ErrFailed is wrapped by the errors of a VM whose guest has trapped, panicked or been closed.
	ErrFailed = errors.New("vm has failed")
	// ErrClosed says that a root context or a stream has ended.
	ErrClosed = errors.New("context is closed")
	// ErrStopped says that the rest of a message came while its headers had stopped everything.
	// Envoy keeps that rest until the plugin continues the stream.
	ErrStopped = errors.New("stopped by the headers callback")
)

// VMConfig configures [Process.NewVM]. Its functions are called on the VM's goroutine, and must not
// call into the VM.
type VMConfig struct {
	// ID is the vm_id: VMs of a process with equal ids share data.
	ID string
	// Logger gets the guest's log messages, and the lines of its standard output (info) and
	// standard error (error). nil logs nothing.
	Logger *slog.Logger
	// OnCallout gets HTTP callouts. The receiver delivers each answer with [VM.HTTPCallResponse].
	// If it is nil, callouts are never answered.
	OnCallout func(Callout)
	// OnTickPeriod gets the tick period of a root context when it changes; 0 is no ticks.
	OnTickPeriod func(root *Root, period time.Duration)
}

// VM is one instance of a plugin. It belongs to one goroutine at a time.
type VM struct {
	process  *Process
	config   VMConfig
	data     SharedData
	release  func()
	ctx      vmContext
	instance api.Module
	memory   api.Memory
	malloc   api.Function
	guest    [callbackCount]api.Function
	output   [2]lineWriter

	failure    error
	running    bool // inside a call into the guest
	restricted bool // only early host calls are allowed
	draining   bool
	deferred   []func() // calls that wait until the running callback has returned

	contexts    map[uint32]scope
	caller      scope // the context of the running callback
	scope       scope // the context that host calls act on: caller, or another that the guest chose
	nextContext uint32

	callouts    map[uint32]*Root
	nextCallout uint32
	answer      *CalloutResponse // while proxy_on_http_call_response runs

	starting *Plugin // while proxy_on_vm_start or proxy_on_configure runs
	capture  *[]string
	calls    []uint64
	entered  [callbackCount]uint64
	scratch  []byte
	stack    [8]uint64
	mstack   [1]uint64
}

// A scope is a context of the ABI. For a root context, stream is nil.
type scope struct {
	root   *Root
	stream *Stream
}

func (s scope) id() uint32 {
	switch {
	case s.stream != nil:
		return s.stream.id
	case s.root != nil:
		return s.root.id
	}
	return 0
}

// vmContext carries the VM to host functions, which all VMs of a module share.
type vmContext struct {
	context.Context
	vm *VM
}

type vmKey struct{}

func (c vmContext) Value(key any) any {
	if key == (vmKey{}) {
		return c.vm
	}
	return c.Context.Value(key)
}

func vmOf(ctx context.Context) *VM { return ctx.Value(vmKey{}).(*VM) }

// NewVM instantiates a module: it runs _initialize, and main if that is exported. If the module has
// no _initialize, it runs _start. Most host calls trap in these functions. The VM keeps the values
// of ctx; its end has no effect.
func (p *Process) NewVM(ctx context.Context, m *Module, config VMConfig) (_ *VM, err error) {
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	vm := &VM{
		process:  p,
		config:   config,
		data:     p.SharedData(config.ID),
		release:  p.acquire(config.ID),
		contexts: map[uint32]scope{},
		callouts: map[uint32]*Root{},
		calls:    make([]uint64, len(hostcalls)),
	}
	vm.ctx = vmContext{withMemory(context.WithoutCancel(ctx)), vm}
	vm.output = [2]lineWriter{{vm: vm, level: LevelInfo}, {vm: vm, level: LevelError}}
	defer func() {
		if err != nil {
			err = errors.Join(err, vm.Kill())
		}
	}()
	vm.restricted = true
	vm.instance, err = m.runtime.InstantiateModule(vm.ctx, m.compiled, wazero.NewModuleConfig().
		WithName("").
		WithStartFunctions().
		WithStdout(&vm.output[0]).
		WithStderr(&vm.output[1]).
		WithRandSource(rand.Reader).
		WithWalltime(func() (int64, int32) {
			now := p.clock()
			return now / 1e9, int32(now % 1e9)
		}, sys.ClockResolution(1)).
		WithNanotime(func() int64 { return p.clock() }, sys.ClockResolution(1)))
	if err != nil {
		return nil, fmt.Errorf("instantiate module: %w", err)
	}
	if err := vm.link(); err != nil {
		return nil, err
	}
	log, err := vm.captured(vm.initialize)
	if err != nil {
		return nil, &StartError{Step: "initialize", Log: log, Err: err}
	}
	return vm, nil
}

func (vm *VM) link() error {
	if vm.memory = vm.instance.Memory(); vm.memory == nil {
		return errors.New("module exports no memory")
	}
	vm.malloc = vm.instance.ExportedFunction("malloc")
	if vm.malloc == nil {
		vm.malloc = vm.instance.ExportedFunction("proxy_on_memory_allocate")
	}
	for cb := range callbackCount {
		f := vm.instance.ExportedFunction(callbacks[cb].name)
		if f == nil {
			continue
		}
		if err := checkCallback(cb, f.Definition()); err != nil {
			return err
		}
		vm.guest[cb] = f
	}
	return nil
}

func (vm *VM) initialize() error {
	vm.restricted = true
	defer func() { vm.restricted = false }()
	steps := []string{"_initialize", "main"}
	if vm.instance.ExportedFunction(steps[0]) == nil {
		steps = []string{"_start"}
	}
	for _, name := range steps {
		f := vm.instance.ExportedFunction(name)
		if f == nil {
			continue
		}
		// The main of a C program has the parameters argc and argv: both are 0.
		if _, err := f.Call(vm.ctx, make([]uint64, len(f.Definition().ParamTypes()))...); err != nil {
			return vm.fail(name, err)
		}
	}
	return nil
}

// Err returns nil, or the reason why the VM has failed, which wraps [ErrFailed].
func (vm *VM) Err() error { return vm.failure }

// MemorySize returns the size of the guest's memory in bytes. It never shrinks.
func (vm *VM) MemorySize() int64 { return int64(vm.memory.Size()) }

// HostCalls counts the host calls that the guest has made, by name. Host calls that it never made
// are absent.
func (vm *VM) HostCalls() map[string]uint64 {
	counts := map[string]uint64{}
	for i, n := range vm.calls {
		if n > 0 {
			counts[hostcalls[i].name] = n
		}
	}
	return counts
}

// Tick calls proxy_on_tick for a root context.
func (vm *VM) Tick(root *Root) error {
	if root.state == rootDeleted {
		return ErrClosed
	}
	_, err := vm.call(onTick, scope{root: root}, uint64(root.id))
	return err
}

// Close ends all streams (log, done, delete) and root contexts (done, delete), then frees the VM.
func (vm *VM) Close() error {
	for _, s := range vm.contexts {
		if s.stream != nil {
			s.stream.Close()
		}
	}
	for _, s := range vm.contexts {
		s.root.Close()
		vm.deleteRoot(s.root)
	}
	return vm.Kill()
}

// Kill frees the VM at once, without a call to the guest. Envoy ends a canary so.
func (vm *VM) Kill() error {
	if vm.failure == nil {
		vm.failure = fmt.Errorf("%w: closed", ErrFailed)
	}
	vm.release()
	if vm.instance == nil {
		return nil
	}
	return vm.instance.Close(vm.ctx)
}

// call runs a callback of the guest in a context, then the calls that had to wait for its end.
func (vm *VM) call(cb callback, in scope, args ...uint64) (uint64, error) {
	result, err := vm.invoke(cb, in, args...)
	if err != nil {
		return 0, err
	}
	vm.drain()
	return result, vm.failure
}

// invoke runs a callback of the guest. If the guest does not export it, the result comes from the
// table callbacks.
func (vm *VM) invoke(cb callback, in scope, args ...uint64) (uint64, error) {
	if vm.failure != nil {
		return 0, vm.failure
	}
	f := vm.guest[cb]
	if f == nil {
		return callbacks[cb].missing, nil
	}
	if vm.running {
		return 0, fmt.Errorf("%s: the vm is inside another callback", cb)
	}
	vm.running, vm.caller, vm.scope = true, in, in
	vm.entered[cb]++
	copy(vm.stack[:], args)
	err := f.CallWithStack(vm.ctx, vm.stack[:])
	result := vm.stack[0]
	vm.flush()
	if err != nil {
		err = vm.fail(cb.String(), err)
	}
	vm.running, vm.caller, vm.scope = false, scope{}, scope{}
	return result, err
}

// after runs f when the running callback has returned. Envoy too defers calls into the guest so.
func (vm *VM) after(f func()) { vm.deferred = append(vm.deferred, f) }

func (vm *VM) drain() {
	if vm.draining {
		return
	}
	vm.draining = true
	for len(vm.deferred) > 0 && vm.failure == nil {
		f := vm.deferred[0]
		vm.deferred = vm.deferred[1:]
		f()
	}
	vm.deferred = vm.deferred[:0]
	vm.draining = false
}

func (vm *VM) fail(where string, err error) error {
	vm.flush()
	vm.failure = fmt.Errorf("%w: %s: %w", ErrFailed, where, err)
	vm.log(LevelCritical, vm.failure.Error())
	return vm.failure
}

func (vm *VM) flush() {
	vm.output[0].flush()
	vm.output[1].flush()
}

// The log levels of proxy-wasm, as levels of slog.
const (
	LevelTrace    = slog.LevelDebug - 4
	LevelDebug    = slog.LevelDebug
	LevelInfo     = slog.LevelInfo
	LevelWarn     = slog.LevelWarn
	LevelError    = slog.LevelError
	LevelCritical = slog.LevelError + 4
)

var levels = [...]slog.Level{LevelTrace, LevelDebug, LevelInfo, LevelWarn, LevelError, LevelCritical}

func (vm *VM) log(level slog.Level, message string) {
	if vm.capture != nil {
		*vm.capture = append(*vm.capture, message)
	}
	var plugin string
	if vm.scope.root != nil {
		plugin = vm.scope.root.plugin.Name
	}
	vm.config.Logger.LogAttrs(vm.ctx, level, message,
		slog.String("vm_id", vm.config.ID), slog.String("plugin", plugin), slog.Uint64("context", uint64(vm.scope.id())))
}

// captured runs a step of the start, and returns the messages that the guest logged in it.
func (vm *VM) captured(step func() error) (log []string, err error) {
	vm.capture = &log
	defer func() { vm.capture = nil }()
	return log, step()
}

// lineWriter logs each line that the guest writes to its standard output or standard error.
type lineWriter struct {
	vm    *VM
	level slog.Level
	rest  []byte
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	for {
		line, rest, ok := bytes.Cut(w.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		w.vm.log(w.level, string(line))
		w.rest = append(w.rest[:0], rest...)
	}
}

// flush logs a line that has no end yet.
func (w *lineWriter) flush() {
	if len(w.rest) > 0 {
		w.vm.log(w.level, string(w.rest))
		w.rest = w.rest[:0]
	}
}
