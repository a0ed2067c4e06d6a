// Package host runs proxy-wasm plugins as Envoy does, without Envoy, on wazero.
//
// It has two layers. Both behave like proxy-wasm-cpp-host, the library inside Envoy, and not like
// the emulator of an SDK: in the rules of compare-and-set, in the phases of a stream and what can be
// read in each, and in the effects of a failure.
//
//   - The VM layer is single-threaded and deterministic: [Compile] a [Module] once, make a
//     [Process] (the shared data, metrics, clusters and clock of one Envoy process), start VMs with [Process.NewVM], give them configurations with [VM.NewRoot], and
//     drive requests by hand with [Root.NewStream]. It starts no goroutine and reads no clock but
//     the one it was given. Use it for tests that decide who runs when.
//   - The proxy layer, [Proxy], is one Envoy process with real traffic: a canary, then one VM and
//     one goroutine for each worker, an HTTP server in front (HTTP/1.1 and HTTP/2 without TLS), an
//     upstream behind, real timers, HTTP callouts, a failure policy. Use it to try a plugin with
//     curl, or for black-box tests.
//
// # Promises
//
// Callbacks of a VM never overlap. A VM and everything reached through it ([Root], [Stream])
// belongs to one goroutine at a time; [Module], [Process], [Metrics] and [Proxy] may be used by
// many. A panic or trap of the guest fails its VM for good: every later call returns an error that
// wraps [ErrFailed] and names the callback. The host checks the guest's pointers, and keeps none of
// them after a host call.
//
// This host has of the ABI what Weir's plugin uses. It lacks gRPC callouts, trailers of callouts, resets of
// streams, foreign functions other than clear_route_cache, shared queues, network filters, and TLS, among others.
// [Process.NewVM] refuses a module that imports other host calls.
package host
