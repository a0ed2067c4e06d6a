package host

import "time"

// Tests look at these.

// Callbacks counts the calls of the guest's callbacks, by the names of their exports. Those that
// were never called, or that the guest does not export, are not there.
func (vm *VM) Callbacks() map[string]uint64 {
	counts := map[string]uint64{}
	for cb, n := range vm.entered {
		if n > 0 {
			counts[callbacks[cb].name] = n
		}
	}
	return counts
}

// ID is the context id.
func (r *Root) ID() uint32 { return r.id }

// TickPeriod returns the period that the plugin set; 0 is no ticks.
func (r *Root) TickPeriod() time.Duration { return r.period }

// Closed says whether the guest has been told that the context is gone.
func (r *Root) Closed() bool { return r.state == rootDeleted }

// ID is the context id.
func (s *Stream) ID() uint32 { return s.id }

// Set writes a value, by the rules of [sharedata.Map]: a wrong cas gets CasMismatch. BadArgument if
// no VM has this vm_id.
func (d SharedData) Set(key string, value []byte, cas uint32) Status {
	return d.set([]byte(key), value, cas)
}
