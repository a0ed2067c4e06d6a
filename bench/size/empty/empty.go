//go:build wasip1

// Empty is the smallest plugin that stock Go can build. size.mjs compares others with it.
package main

//go:wasmexport proxy_on_tick
func onTick(uint32) {}

func main() {}
