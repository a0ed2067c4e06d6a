// Package filter is the plugin: it matches requests to rules, has a node of package node decide
// them, and answers. It carries the node's pushes to the backend, and publishes metrics.
//
// A [VM] may hold several plugin contexts, one for each configuration. So nothing of a plugin's is
// global. A VM has one thread, so nothing here is safe for concurrent use. Shared data joins the
// VMs of a proxy.
package filter
