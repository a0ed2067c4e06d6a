// Package filter is the plugin: it matches requests to rules, asks a node of package node to decide
// them, and answers. It also sends the node's pushes to the backend, and publishes metrics.
//
// A [VM] may hold several plugin contexts, each for a configuration, so the plugin has no global
// state. A VM has a single thread: nothing here is safe for concurrent use. The VMs of a proxy
// share data through Envoy's shared data.
package filter
