// Package check finds the configurations of Weir in files that people deploy, and says what is wrong
// with them and where.
//
// A file is JSON or YAML. It is a configuration, or a document of Envoy, Istio, Envoy Gateway or
// Kubernetes (a ConfigMap) with some in it. [File] turns each configuration into the JSON that the plugin would get, has
// [config.Parse] read it, and leads each mistake back to its place in the file. Nothing of this is
// part of the plugin.
//
// The package trusts no file: what aliases make of a small document is bounded by what the plugin
// reads, and a value that leads back to itself ends at the depth that it may have.
package check
