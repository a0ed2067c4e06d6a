package node

// Tallies count a node's own doings since it was made. They only grow.
type Tallies struct {
	LostRaces uint64 // compare-and-sets that another worker was faster with
	GivenUp   uint64 // decisions whose hits lost every race, and were kept to be added later
	Lost      uint64 // hits that could not be kept
	Evicted   uint64 // counters that had to make room before they expired
	Corrupt   uint64 // pages or entries of a form that nobody writes
	Pushed    uint64 // hits that were sent to the backend
	Failed    uint64 // pushes that the backend did not take, and that are sent again
	Waited    uint64 // requests that waited for the backend
	Alone     uint64 // requests decided without the backend, as it was away, or as too many waited
	Crowded   uint64 // requests that did not wait for the backend, as too many did
	Delayed   uint64 // requests that waited for room
	Blocked   uint64 // keys that were blocked, as they were refused
	Advanced  uint64 // hits that passed before the backend had counted them
	Late      uint64 // requests that waited for the backend, and were decided without it in the end
}
