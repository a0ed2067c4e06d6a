// Package node is the engine of a process that keeps limits together with others. It decides
// requests from counters in shared data, asks the backend for what only that can allow, and pushes
// what was counted. It knows no HTTP and no proxy.
//
// A [Node] is one worker's. A process may have several, of one namespace or of many. They have
// nothing in common but the shared data that they are given. A node is not safe for concurrent use:
// all calls come one after the other, its host's too.
//
// The files are layers, and calls go down only: tick and leave; answers; requests, which wait;
// decide; wishes, for leases; push, of keys that are due; callouts; counters, which are what keys
// have in the table; and the node's own parts. look is for who only looks, beside all nodes.
package node
