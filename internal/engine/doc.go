// Package engine decides the requests of a process that shares limits with others: by counters in
// shared data, by questions to the backend for hits that only the backend can allow, and by pushes of
// hits that were counted. It knows neither HTTP nor a proxy.
//
// An [Engine] belongs to one worker. A process may have several, for one namespace or many, which share
// nothing but shared data. An engine is not safe for concurrent use: its owner and its host make all
// calls one after the other.
//
// Below it are packages that know nothing of each other unless it is said:
//
//	jitter   random times and pauses
//	link     the backend: its time, the number of nodes, the breaker (knows jitter)
//	rule     rules, and a request's checks of them
//	pending  which keys of the table the backend has yet to hear of (knows rule)
//	ledger   hits on credit, which were never in the table (knows rule)
//	entry    counters in the table (knows link, rule and pending)
//	seat     even parts of fair classes (knows entry)
//	straight simple requests, in one step (knows entry)
//	wait     requests that wait for room
//	charge   changes of what passed requests have taken, and blocks (knows entry, ledger, observe and meter)
//	claim    which hits go next, and how they go in flight (knows entry and ledger)
//	credit   the part of the limits that is for hits on credit (knows entry and ledger)
//	take     decisions without asking the backend, in the table or on credit (knows entry, credit and ledger)
//	settle   what answers change in entries (knows entry and claim)
//	meter    what keys have used, for the backend to add up (knows entry)
//	observe  what people look at: reports, warnings (knows entry and meter)
//	feed     other limits, as the backend tells them (knows entry)
//
// In this package, decide.go has the way of a request until it is decided or waits: decider says whether it has
// room, and package take counts its hits. delay.go has requests that wait for room, requests.go how waits for the
// backend end. Acquires are questions for hits, pushes have what is claimed for the backend, the outbox sends both, and
// answers finds which keys and requests what comes back is for. Deciding sends nothing: what is to be asked is left in acquires, and sent
// when the decision is there.
//
// A function of the engine's packages that must not be inlined is called from several places, and was
// measured: inlined, it makes the module larger by more than 250 bytes.
package engine
