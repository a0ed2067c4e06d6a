package filter

import (
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"
)

// VM makes a plugin context for each configuration.
type VM struct {
	types.DefaultVMContext
	observed
	backends backends
}

// NewPluginContext implements types.VMContext.
func (vm *VM) NewPluginContext(id uint32) types.PluginContext {
	p := &plugin{id: id, backends: &vm.backends}
	p.streams.context, p.streams.engine.observed = id, &vm.observed
	return p
}
