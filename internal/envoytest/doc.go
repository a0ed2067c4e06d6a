// Package envoytest runs a real Envoy for tests and benchmarks.
//
// [Start] starts a process with the caller's bootstrap, and [Run] does so for a test. [Listener] and
// [Cluster] are what most processes have. [Binaries] finds the programs: the versions
// that scripts/test-dependencies has installed, or the files in the environment variable
// WEIR_ENVOY. A [Clock] sets the time of a process, so that windows end without a test waiting for
// them.
package envoytest
