package filter

import (
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"
)

// VM makes a plugin context for each configuration.
type VM struct {
	types.DefaultVMContext
	observed
	// plugins are the contexts that synchronise.
	plugins []*plugin
}

// NewPluginContext implements types.VMContext.
func (vm *VM) NewPluginContext(id uint32) types.PluginContext { return &plugin{vm: vm, id: id} }

// heir is a plugin context that can push what p has counted.
func (vm *VM) heir(p *plugin) *plugin {
	for _, other := range vm.plugins {
		if other != p && other.config.Namespace == p.config.Namespace && other.config.Backend.Cluster == p.config.Backend.Cluster {
			return other
		}
	}
	return nil
}

func (vm *VM) remove(p *plugin) {
	for i, other := range vm.plugins {
		if other == p {
			vm.plugins = append(vm.plugins[:i], vm.plugins[i+1:]...)
			return
		}
	}
}
