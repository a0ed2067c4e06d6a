// Package filter is the plugin: it matches requests to rules, decides them from the counters in shared data, answers, and
// keeps the counters in step with the backend.
//
// A [VM] may hold several plugin contexts, one for each configuration, so nothing of a plugin's is global. A VM has one
// thread; nothing here is safe for concurrent use, and nothing needs to be. What joins the VMs of a proxy is shared data.
package filter

import "github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

// VM makes a plugin context for each configuration.
type VM struct{ types.DefaultVMContext }

// NewPluginContext implements types.VMContext.
func (*VM) NewPluginContext(uint32) types.PluginContext { return &plugin{} }
