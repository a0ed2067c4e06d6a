// Package check finds Weir's configurations in files for deployment, and reports mistakes in them
// with their places.
//
// A file is JSON or YAML. It is a configuration, or a document of Envoy, Istio, Envoy Gateway or
// Kubernetes (a ConfigMap) that contains some. [File] converts each configuration to the JSON that
// the plugin would get, parses it by [config.Parse], and traces each mistake back to its place in
// the file. The plugin contains none of this.
//
// The package trusts no file. It expands aliases only as far as the plugin would read, and follows
// a value that contains itself only to the permitted depth.
package check
