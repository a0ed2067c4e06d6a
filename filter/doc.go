// Package filter is the plugin: it matches requests to rules, decides them from the counters in shared data, answers, and
// keeps the counters in step with the backend.
//
// A [VM] may hold several plugin contexts, one for each configuration, so nothing of a plugin's is global. A VM has one
// thread; nothing here is safe for concurrent use, and nothing needs to be. What joins the VMs of a proxy is shared data.
package filter

import "github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

// VM makes a plugin context for each configuration.
type VM struct {
	types.DefaultVMContext
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
