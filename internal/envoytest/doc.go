// Package envoytest runs a real Envoy for tests and benchmarks.
//
// [Start] runs one process with a bootstrap of the caller's. [Binaries] finds what can be run: the
// versions that scripts/test-dependencies has installed, or the files that the environment's
// WEIR_ENVOY names. A [Clock] gives a process a time of the test's, so that windows end without
// anybody waiting for them.
package envoytest
