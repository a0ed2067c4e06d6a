package filter

import (
	"math/rand/v2"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"
)

// VM makes a plugin context for each configuration.
type VM struct {
	types.DefaultVMContext
	random *rand.Rand // nil until it is wanted
	// plugins are the contexts that synchronise.
	plugins []*plugin
}

// rand is what plugin contexts differ by.
//
//go:noinline
func (vm *VM) rand() *rand.Rand {
	if vm.random == nil {
		vm.random = rand.New(processRandom{})
	}
	return vm.random
}

// processRandom is the generator of math/rand/v2.
type processRandom struct{}

// Uint64 implements rand.Source.
func (processRandom) Uint64() uint64 { return rand.Uint64() }

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
