// The plugin: a rate limiter for Envoy and Istio. See README.md for how to build and load it.
package main

import (
	"weir/filter"
	"weir/internal/proxywasm"
)

// A reactor's main is never run.
func main() {}

func init() { proxywasm.SetVMContext(&filter.VM{}) }
