package host

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Plugin is one configuration of a plugin.
type Plugin struct {
	// Name and RootID are the properties plugin_name and plugin_root_id.
	Name, RootID string
	// Configuration is the text that proxy_on_configure reads.
	Configuration []byte
	// AllowOnHeadersStopIteration is the field of this name in Envoy's PluginConfig. Without it, a
	// headers callback that pauses stops all of its direction. With it, only the headers wait, and
	// the body and trailers go to their callbacks. If any of these answers Continue, the whole
	// direction continues.
	AllowOnHeadersStopIteration bool
}

// Root is a root context: one plugin configuration inside a VM. A VM may have several, whose
// streams run side by side.
type Root struct {
	vm      *VM
	id      uint32
	plugin  Plugin
	period  time.Duration
	streams int
	state   rootState
}

type rootState int

const (
	rootRunning rootState = iota
	rootClosing           // takes no new streams, waits for the last to end
	rootWaiting           // answered false to proxy_on_done, waits for proxy_done
	rootDeleted
)

// StartError says that a VM or a root context did not start, and has the plugin's log messages.
type StartError struct {
	// Step is "initialize", "context_create", "vm_start" or "configure".
	Step string
	// Log has the messages that the guest logged in the start.
	Log []string
	// Err is the trap, or nil if the plugin answered false.
	Err error
}

func (e *StartError) Error() string {
	reason := "the plugin refused"
	if e.Err != nil {
		reason = e.Err.Error()
	}
	if len(e.Log) > 0 {
		reason += ": " + strings.Join(e.Log, "\n")
	}
	return fmt.Sprintf("%s: %s", e.Step, reason)
}

func (e *StartError) Unwrap() error { return e.Err }

// NewRoot makes a root context for a plugin configuration: it calls proxy_on_context_create,
// proxy_on_vm_start and proxy_on_configure. Other root contexts of the VM and their streams go on.
// The error is a [*StartError].
func (vm *VM) NewRoot(plugin Plugin) (*Root, error) {
	if vm.failure != nil {
		return nil, &StartError{Step: "context_create", Err: vm.failure}
	}
	r := &Root{vm: vm, id: vm.newID(), plugin: plugin}
	in := scope{root: r}
	vm.contexts[r.id] = in
	var step string
	var accepted uint64
	log, err := vm.captured(func() (err error) {
		step = "context_create"
		if _, err = vm.call(onContextCreate, in, uint64(r.id), 0); err != nil {
			return err
		}
		vm.starting = &r.plugin
		defer func() { vm.starting = nil }()
		step = "vm_start"
		accepted, err = vm.call(onVMStart, in, uint64(r.id), 0)
		if err != nil || accepted == 0 {
			return err
		}
		step = "configure"
		accepted, err = vm.call(onConfigure, in, uint64(r.id), uint64(len(plugin.Configuration)))
		return err
	})
	if err != nil || accepted == 0 {
		r.Close()
		return nil, &StartError{Step: step, Log: log, Err: err}
	}
	return r, nil
}

// newID returns the next context id that is not in use.
func (vm *VM) newID() uint32 {
	for {
		vm.nextContext++
		if _, used := vm.contexts[vm.nextContext]; !used && vm.nextContext != 0 {
			return vm.nextContext
		}
	}
}

// Streams returns the number of streams that have not ended.
func (r *Root) Streams() int { return r.streams }

// Close ends the context once its last stream has ended: it calls proxy_on_done, then
// proxy_on_delete. If proxy_on_done returns false, the context lives until the plugin calls
// proxy_done.
func (r *Root) Close() {
	if r.state == rootRunning {
		r.state = rootClosing
		r.finish()
	}
}

func (r *Root) finish() {
	if r.state != rootClosing || r.streams > 0 {
		return
	}
	r.state = rootWaiting
	done, err := r.vm.call(onDone, scope{root: r}, uint64(r.id))
	if err != nil || done != 0 {
		r.vm.deleteRoot(r)
	}
}

// deleteRoot forgets a root context and its callouts. As in Envoy, only the guest stops its timer. The
// guest of a failed VM is not called.
func (vm *VM) deleteRoot(r *Root) {
	if r.state == rootDeleted {
		return
	}
	r.state = rootDeleted
	if _, err := vm.call(onDelete, scope{root: r}, uint64(r.id)); err != nil {
		vm.log(LevelDebug, err.Error())
	}
	delete(vm.contexts, r.id)
	for id, root := range vm.callouts {
		if root == r {
			delete(vm.callouts, id)
		}
	}
}

func (r *Root) setPeriod(period time.Duration) {
	if period == r.period {
		return
	}
	r.period = period
	if r.vm.config.OnTickPeriod != nil {
		r.vm.config.OnTickPeriod(r, period)
	}
}

// roots returns the root contexts, oldest first.
func (vm *VM) roots() []*Root {
	var rs []*Root
	for _, s := range vm.contexts {
		if s.stream == nil {
			rs = append(rs, s.root)
		}
	}
	slices.SortFunc(rs, func(a, b *Root) int { return cmp.Compare(a.id, b.id) })
	return rs
}
