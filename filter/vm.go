package filter

import (
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/internal/proxywasm"
)

// VM makes a plugin context for each configuration.
type VM struct {
	types.DefaultVMContext
	observed
	backends backends
	gauges   gauges
}

// NewPluginContext implements types.VMContext.
func (vm *VM) NewPluginContext(id uint32) types.PluginContext { return vm.NewPlugin(id) }

// NewPlugin implements proxywasm.VM.
func (vm *VM) NewPlugin(id uint32) proxywasm.Plugin {
	p := &plugin{id: id, backends: &vm.backends}
	p.streams.context, p.streams.decider.observed, p.streams.metrics.gauges = id, &vm.observed, &vm.gauges
	return p
}
