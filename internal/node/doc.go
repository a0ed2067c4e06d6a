// Package node is the engine of a process that keeps limits together with others. It decides
// requests from counters in shared data, asks the backend for what only that can allow, and pushes
// what was counted. It knows no HTTP and no proxy.
//
// A [Node] is one worker's. A process may have several, of one namespace or of many. They have
// nothing in common but the shared data that they are given. A node is not safe for concurrent use:
// all calls come one after the other, its host's too.
//
// A node consists of rooms. Each has its own fields, and pointers to rooms above it in this list:
//
//	rules      the rules, and what holds of all of them
//	link       the host, its time, the backend's time, the breaker
//	ticks      when the host calls, and how long a call may work
//	variants   rules as overrides have them
//	keys       what keys have in the table, and their names
//	waits      requests that wait
//	callouts   pushes that are not done
//	pushes     keys with hits for the backend
//	asks       questions for hits
//	watch      what people look at: sightings, warnings
//	accounts   what keys have used, for the backend
//	decider    what is asked of keys: allowed, refused or unsure
//	charges    what requests cost in the end
//	requests   requests that are decided at once, or wait
//	overrides  other limits, as the backend tells them
//	answers    what the backend has answered
//
// The files are layers in the same way. Look is for who only looks, beside all nodes.
package node
