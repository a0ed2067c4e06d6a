//go:build wasip1

// Empty is the smallest plugin that stock Go makes; size.js compares with it.
package main

//go:wasmexport proxy_on_tick
func onTick(uint32) {}

func main() {}
