// Package node is the engine of a process that shares limits with others. It decides requests by
// counters in shared data, asks the backend for hits that only the backend can allow, and pushes
// hits that were counted. It knows neither HTTP nor a proxy.
//
// A [Engine] belongs to one worker. A process may have several, for one namespace or many, which
// share nothing but shared data. A node is not safe for concurrent use: its owner and its host make
// all calls one after the other.
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
// The files are layers in the same way. [Look] stands apart: it only reads.
package engine
